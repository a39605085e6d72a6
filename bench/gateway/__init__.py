"""What the gateway adds to a request."""
