"""Benchmarks: `make bench NAME=...` runs `bench/NAME` and writes `build/bench/NAME.json`. Targets are reported, never enforced."""
