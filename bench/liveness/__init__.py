"""What the operator's liveness polls of many workers cost."""
