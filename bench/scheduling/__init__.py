"""Deadlines kept by the real `schedule()`, beside other policies and the clairvoyant optimum, in a simulation of a small fleet."""
