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
# # 01 Quick start
#
# One simulated server, one trace, two policies: what speculative decoding buys, where its time goes, and what the
# figures rest on. Needs no GPU. Run from a clone of the repository or with `draftlab[notebook]` installed.

# %%
# %matplotlib inline
import os
import tempfile

import analysis
from sim.config import SimConfig
from sim.results import read_results
from sim.simulate import load_inputs, simulate

PROMPTS = int(os.environ.get("DRAFTLAB_PROMPTS", "300"))  # the tests of this notebook run fewer

# %% [markdown]
# The settings are the flags of `python -m sim`. This is Llama-3.1-8B with a 1B draft on one H100 (kernel times
# measured by NVIDIA, attention over several queries modelled), ShareGPT-like lengths (sampled), and acceptance
# recorded from a small pair of models.

# %%
config = SimConfig(
    trace="sharegpt",
    num_prompts=PROMPTS,
    request_rate="8",
    profile="h100-llama-3.1-8b-tp1",
    acceptance="tiny-s",
    goodput=("ttft:300", "tpot:8"),
)
inputs = load_inputs(config)  # shared: both policies see the same requests and the same luck
runs = {policy: simulate(SimConfig(**{**vars(config), "policy": policy}), inputs) for policy in ("none", "dsde")}

# %% [markdown]
# Metrics have the names and definitions of `vllm bench serve`.

# %%
shown = ["mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "output_throughput", "slo_attainment"]
frame = analysis.frame_of(runs.values())
frame.set_index("policy")[shown].T.round(2)

# %% [markdown]
# DSDE gives each sequence a draft length of its own. The step is as long as its longest draft: what lies between
# the two lines waits.

# %%
analysis.draw(analysis.k_over_time, runs["dsde"])

# %% [markdown]
# What a step is made of, on one clock. The numbers are the depth of the draft.

# %%
analysis.draw(analysis.timeline_of_steps, runs)

# %%
analysis.draw(analysis.time_split, frame)

# %% [markdown]
# Every request is a row, and every engine step too. A run is saved as JSON and parquet and read back.

# %%
with tempfile.TemporaryDirectory() as directory:
    runs["dsde"].save(directory, detailed=True)
    saved = read_results(directory)
saved.requests[
    ["task", "prompt_tokens", "output_tokens", "ttft_s", "tpot_s", "slo_met", "draft_acceptance_rate"]
].head()

# %% [markdown]
# What is measured, modelled, sampled and synthetic comes with every result.

# %%
saved.provenance["measured"], saved.provenance["modelled"], saved.provenance["notes"]
