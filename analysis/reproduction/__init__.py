"""Experiments of papers in simulation, each held against what was published: `python -m analysis reproduce PAPER`."""
