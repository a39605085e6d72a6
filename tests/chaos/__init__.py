"""Faults drawn from a seed, against the real cluster under load: nothing is lost, doubled or left behind."""
