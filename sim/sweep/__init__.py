"""Many simulations, one row each: run a product of settings in parallel, read it back, compare over seeds.

    from sim.sweep import paired, read, summary, sweep

`python -m sim.sweep` is the same on the command line. A directory holds runs.parquet, the table, and runs.jsonl, the
journal it is made from: finished runs, appended one by one.
"""

from sim.sweep.axes import expand
from sim.sweep.compare import paired, summary
from sim.sweep.runner import sweep
from sim.sweep.table import read

__all__ = ["expand", "paired", "read", "summary", "sweep"]
