"""The live executor: real models behind the simulator's own control plane. `python -m calibrate.live --help`."""
