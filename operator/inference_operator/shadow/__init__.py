"""A learned policy that is asked beside each pass and has no say. Only the composition root imports it."""
