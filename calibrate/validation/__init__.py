"""The simulator held against live runs of the same requests. `python -m calibrate.validate --help`."""
