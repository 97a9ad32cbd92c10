"""Plots and reports over results frames: one import gives the figures.

    import analysis

    frame = analysis.read_frame(directory)                    # of python -m sim.sweep; or analysis.frame_of(runs)
    analysis.latency(frame, axes)                             # any matplotlib Axes
    analysis.save(analysis.latency, frame, "latency.svg")     # or a file in the house style

Every figure function takes its data and an Axes, draws and returns it; an empty frame gives an empty panel that says
so, and a frame that lacks a column or a run that the figure needs raises InputError with one line.
"""

from analysis.acceptance import acceptance_by_depth, acceptance_by_task, signal_against_acceptance
from analysis.frame import frame_of, read_frame
from analysis.gain import speed_up
from analysis.lengths import k_distribution, k_over_time
from analysis.load import latency, pareto, regret
from analysis.shares import straggler_and_waste, time_split
from analysis.style import draw, save
from analysis.timeline import timeline_of_steps

FRAME_FIGURES = (
    latency,
    pareto,
    speed_up,
    regret,
    straggler_and_waste,
    time_split,
    acceptance_by_depth,
)
"""Of a results frame."""
RUN_FIGURES = (k_over_time, k_distribution, timeline_of_steps)
"""Of one run, or of several by name."""

__all__ = [
    "FRAME_FIGURES",
    "RUN_FIGURES",
    "acceptance_by_depth",
    "acceptance_by_task",
    "draw",
    "frame_of",
    "k_distribution",
    "k_over_time",
    "latency",
    "pareto",
    "read_frame",
    "regret",
    "save",
    "signal_against_acceptance",
    "speed_up",
    "straggler_and_waste",
    "time_split",
    "timeline_of_steps",
]
