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
# # 03 Straggler caps
#
# A step drafts as long as its longest draft, and the whole batch waits. A cap cuts each length to one number of
# the batch: its mean (DSDE, arXiv 2509.01083), its median, a quantile. DSDE reports that from batch 1 to 64
# throughput grows 11.2 to 11.9 times without a cap and 12.2 to 13.0 times with it: the cap is worth 8 to 9 %.

# %%
# %matplotlib inline
import os

import matplotlib.pyplot as plt

import analysis
from analysis.style import styles
from sim.config import SimConfig
from sim.simulate import load_inputs, simulate

PROMPTS = int(os.environ.get("DRAFTLAB_PROMPTS", "256"))  # the tests of this notebook run fewer
CAPS = ("none", "mean", "median", "quantile:0.75")
BATCHES = (1, 4, 16, 64)

# %% [markdown]
# A closed loop: always B requests in flight. DSDE decides the lengths, and only the cap differs. `compact` lets a
# sequence leave the draft after its own last token; in `padded`, as engines do it, it goes through all passes of
# the step.

# %%
runs = {}
for batch in BATCHES:
    config = SimConfig(
        trace="random",
        input_len=128,
        output_len=128,
        num_prompts=max(4, min(PROMPTS, 4 * batch)),
        request_rate="inf",
        max_concurrency=batch,
        profile="h100-llama-3.1-70b-tp8",
        acceptance="regimes",
        policy="dsde",
    )
    inputs = load_inputs(config)
    for cap in CAPS:
        runs[batch, cap] = simulate(SimConfig(**{**vars(config), "cap": cap}), inputs)
frame = analysis.frame_of(runs.values())

# %% [markdown]
# Throughput against batch 1, as in the paper, and what each cap adds to no cap at the same batch. Models, hardware
# and acceptance are not the paper's: what should hold is the shape, a cap that is worth more the larger the batch.

# %%
throughput = frame.pivot(index="max_concurrency", columns="cap", values="output_throughput")[list(CAPS)]
scaling = throughput / throughput.iloc[0]
scaling.round(2)

# %%
gain = 100 * (throughput.div(throughput["none"], axis=0) - 1)
gain.round(1)

# %% [markdown]
# Why: the share of draft slots that wait for the longest draft of their step.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
idle = 100 * frame.pivot(index="max_concurrency", columns="cap", values="draft_idle_share")[list(CAPS)]
for cap, look in styles(CAPS).items():
    left.plot(idle.index, idle[cap], label=cap, **look)
left.set(xscale="log", xlabel="requests in flight", ylabel="percent of draft slots that wait", ylim=(0, None))
left.set_xticks(BATCHES, BATCHES)
left.legend(title="cap", frameon=False)
largest = {cap: runs[BATCHES[-1], cap] for cap in CAPS}
_ = analysis.k_distribution(largest, right)

# %% [markdown]
# The same on the clock: steps of the largest batch. Without a cap the drafts are deeper and the steps longer;
# with one, more steps fit into the same time, and each emits a little less.

# %%
analysis.draw(analysis.timeline_of_steps, largest, steps=12)

# %%
at_largest = frame[frame["max_concurrency"] == BATCHES[-1]]
analysis.draw(analysis.straggler_and_waste, at_largest)

# %% [markdown]
# A cap is not free: a sequence that would have been accepted further is cut. Emitted tokens per step and
# sequence, and time per output token:

# %%
shown = ["mean_emitted_per_step", "mean_draft_length", "mean_tpot_ms", "output_throughput"]
at_largest.set_index("cap")[shown].round(2)
