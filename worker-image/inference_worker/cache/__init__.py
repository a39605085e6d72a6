"""Answers that are used again: imported only where a job asks for it (`serve.cache`, ADR 0032)."""
