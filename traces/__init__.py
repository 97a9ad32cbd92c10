"""Workloads: what arrives, when, and how long it is.

>>> from traces import load
>>> workload = load("sharegpt", num_prompts=100, request_rate="4")
>>> len(workload), workload.origin
(100, 'sampled from ShareGPT lengths in project-etalon/etalon (Apache-2.0)')
"""

from traces.errors import InputError
from traces.loader import load
from traces.options import TraceOptions
from traces.workload import PrefixBlocks, Workload

__all__ = ["InputError", "PrefixBlocks", "TraceOptions", "Workload", "load"]
