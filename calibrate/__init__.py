"""Measured costs and acceptance: profiles for the simulator, from real devices and from measured kernel tables."""
