"""Requests to runs of the model: which go together, in what order, and what happens when one fails."""
