"""Requests that are nearly right, sent to real processes over sockets: `make fuzz-wire TARGET=http1 REQUESTS=1000000 SEED=1`."""
