# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     notebook_metadata_filter: jupytext,kernelspec,-all
#     cell_metadata_filter: -all
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 05 Write your own policy
#
# A length policy is one class with up to four hooks over arrays of the batch: `lengths` before drafting, `stop`
# after each draft token, `trim` before verification, `observe` after it. The same class runs in the simulator and
# in the live executor.

# %%
# %matplotlib inline
import os

import numpy as np

import analysis
from sim.config import SimConfig
from sim.policies import LengthPolicy, PolicyContext
from sim.simulate import load_inputs, simulate
from traces.errors import InputError

PROMPTS = int(os.environ.get("DRAFTLAB_PROMPTS", "200"))  # the tests of this notebook run fewer


# %% [markdown]
# ## The rule
# Additive increase, multiplicative decrease, per sequence: all accepted, one token more; otherwise half. State is
# one array per quantity, indexed by slot; `begin` forgets the predecessor in a slot. Options are the keyword
# arguments of `__init__`.


# %%
class Probe(LengthPolicy):
    """k + 1 after a fully accepted draft, else half of it, at least 1. Lossless; hooks lengths and observe [O]."""

    name = "probe"
    source = "our own [O]"

    def __init__(self, context: PolicyContext, k: int = 3, most: int = 8) -> None:
        if not 1 <= k <= most:
            raise InputError(f"policy probe: k is {k}, expected 1 to most, which is {most}")
        self.first, self.max_length = k, min(most, context.max_draft_tokens)
        self.next = np.full(context.num_slots, k)

    def begin(self, slots):
        self.next[slots] = self.first

    def lengths(self, batch):
        return self.next[batch.slot]

    def observe(self, batch, outcome):
        drafted = outcome.proposed > 0  # near the end of a request nothing is drafted: nothing is learnt
        k = self.next[batch.slot]
        after = np.where(outcome.accepted >= outcome.proposed, k + 1, k // 2)
        self.next[batch.slot] = np.where(drafted, np.clip(after, 1, self.max_length), k)


# %% [markdown]
# ## Run it
# `module:Class` names a policy of your own; in a notebook the module is `__main__`. For `python -m sim` and for
# sweeps, whose runs are in other processes, put the class into a file and say `mymodule:Probe`.

# %%
config = SimConfig(num_prompts=PROMPTS, request_rate="8", profile="h100-llama-3.1-8b-tp1", acceptance="tiny-s")
inputs = load_inputs(config)
policies = ("none", "fixed:k=2", "dsde", "__main__:Probe", "__main__:Probe:most=3", "oracle:goodput")
runs = {policy: simulate(SimConfig(**{**vars(config), "policy": policy}), inputs) for policy in policies}
frame = analysis.frame_of(runs.values())
shown = ["mean_tpot_ms", "mean_draft_length", "spec_decode_acceptance_rate", "wasted_verify_share"]
frame.set_index("policy")[shown].round(2)

# %% [markdown]
# ## Does it keep the books?
# A lossless policy changes times, never tokens: every request gets as many tokens as under plain decoding.

# %%
tokens = {policy: run.to_frame()["output_tokens"] for policy, run in runs.items()}
assert all(each.equals(tokens["none"]) for each in tokens.values())

# %% [markdown]
# ## Follow one sequence by hand
# Draft and accepted lengths of the first request, step by step: after `accepted == k` the next k is one more,
# otherwise half.

# %%
emissions = runs["__main__:Probe"].log.emissions
own = (emissions["request"] == 0) & (emissions["proposed"] >= 0)
k, accepted = emissions["proposed"][own], emissions["accepted"][own]
list(zip(k[:12].tolist(), accepted[:12].tolist(), strict=True))

# %%
expected = np.clip(np.where(accepted >= k, k + 1, k // 2), 1, 8)[:-1]
inside = slice(0, max(len(k) - 4, 1))  # the last drafts are cut to what the request has left
assert (expected[inside] == k[1:][inside]).all()

# %% [markdown]
# ## Hold it against the others

# %%
analysis.draw(analysis.k_distribution, runs)

# %%
analysis.draw(analysis.regret, frame)

# %% [markdown]
# ## Keep it
# To ship it: one file in `sim/policies` with `@policies.register("probe")` above the class. The invariants of
# `tests/sim/test_invariants.py` cover it from then on; add a sequence computed by hand, like the one above,
# beside it.
