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
# # 02 Policy sweep
#
# Which policy should serve, at which load? A product of settings runs in parallel, one row per run; runs of one
# seed share requests and luck, so that policies are compared pair by pair.

# %%
# %matplotlib inline
import os
import tempfile

import analysis
from analysis.findings import findings
from analysis.report import report
from sim.sweep import expand, paired, sweep

PROMPTS = int(os.environ.get("DRAFTLAB_PROMPTS", "200"))  # the tests of this notebook run fewer

# %% [markdown]
# The same on the command line, with more of everything:
#
#     python -m sim.sweep --profile h100-llama-3.1-8b-tp1 --acceptance tiny-s --policy none fixed:k=2 fixed:k=4 dsde \
#         priced oracle:goodput --request-rate 2 8 32 --seed 0 1 --num-prompts 2000 --baseline none --output-dir results
#     python -m analysis report results
#
# It can be interrupted and goes on where it stopped.

# %%
axes = {
    "profile": ["h100-llama-3.1-8b-tp1"],
    "acceptance": ["tiny-s"],
    "num_prompts": [PROMPTS],
    "policy": ["none", "fixed:k=2", "fixed:k=4", "dsde", "priced", "oracle:goodput"],
    "request_rate": ["2", "8", "32"],
    "seed": [0, 1],
    "goodput": [("ttft:300", "tpot:10")],
}
with tempfile.TemporaryDirectory() as directory:
    frame = sweep(expand(axes), directory, jobs=2)
f"{len(frame)} runs, {frame['error'].notna().sum()} failed"

# %% [markdown]
# ## What it found
# Sentences are computed from the frame; what noise explains is not told apart. Two seeds make wide intervals: run
# more.

# %%
for sentence in findings(frame):
    print("-", sentence)

# %% [markdown]
# ## Figures

# %%
analysis.draw(analysis.latency, frame)

# %%
analysis.draw(analysis.latency, frame, metric="p99_ttft_ms")

# %%
analysis.draw(analysis.pareto, frame)

# %%
analysis.draw(analysis.regret, frame)

# %%
analysis.draw(analysis.acceptance_by_depth, frame)

# %% [markdown]
# ## Paired differences
# `ratio` is policy / none on the same requests, with its 95 % interval over seeds.

# %%
differences = paired(frame, "none", ["mean_tpot_ms"])
differences[["policy", "request_rate", "n", "ratio", "ratio_low", "ratio_high"]].round(3)

# %% [markdown]
# ## The page for a colleague
# All of this as one HTML file. Figures that need the steps of a run come from simulating a few runs again.

# %%
page = report(frame, rerun=False)
f"{len(page) / 1e6:.1f} MB, {page.count('<svg')} figures"
