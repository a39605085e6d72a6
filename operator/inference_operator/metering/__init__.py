"""Devices' meters: read from exporters and from workers, kept, made energy and usage of. energy.py and usage.py are pure."""
