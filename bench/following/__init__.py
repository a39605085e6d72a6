"""Whole hours of real arrivals at a target of 15 ms with 2 to 20 workers: simulated, in virtual time."""
