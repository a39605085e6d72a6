"""Ways of a large tensor to a model and back."""
