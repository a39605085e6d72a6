"""The control law against the plain p95, in virtual time."""
