"""The worker: loads one verified model, warms it up, and then answers requests or runs one batch task."""

__version__ = "0.1.0"
