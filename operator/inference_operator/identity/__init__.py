"""Who is who between operator and workers: an authority, the certificates that it signs, and how they are checked."""
