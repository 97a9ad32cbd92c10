"""Plots and reports over results frames."""
