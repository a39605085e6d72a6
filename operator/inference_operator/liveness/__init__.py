"""Who is alive, by the operator's own polls: evidence, what it weighs, and who is suspected. Nothing is deleted on suspicion."""
