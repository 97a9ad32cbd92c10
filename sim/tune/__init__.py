"""The speculation to deploy for a pair, a device, a workload and SLOs: K by batch size, and whether it pays.

`python -m sim.tune` on the command line.
"""
