"""Whether a learned policy keeps more deadlines than the rule of `decisions/lookahead.py`: training and judging it."""
