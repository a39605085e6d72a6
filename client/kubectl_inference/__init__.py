"""The kubectl plug-in."""
