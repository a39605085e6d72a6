"""How a service follows its load: the real HPA, real workers, open-loop callers."""
