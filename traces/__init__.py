"""Workloads: what arrives, when, and how long it is."""
