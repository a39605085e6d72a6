"""What TLS costs."""
