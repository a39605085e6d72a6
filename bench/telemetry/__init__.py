"""What a round of questions to many workers costs the operator."""
