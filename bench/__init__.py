"""Benchmarks: `make bench NAME=...` runs `bench/NAME` and writes `build/bench/NAME.json`. Bars are reported, never enforced."""
