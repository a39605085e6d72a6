"""Whether a learned policy keeps more deadlines than the rule of `scheduling/timeline.py`: training and judging it."""
