"""The cache of models that a node's workers share: a process of its own, and what workers ask it by (ADR 0040)."""
