"""What the hardware and the models answer: profile, cost model, acceptance windows, simulated executor."""
