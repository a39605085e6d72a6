"""Devices' meters: read from exporters, kept, made energy and usage of. energy.py and usage.py are pure."""
