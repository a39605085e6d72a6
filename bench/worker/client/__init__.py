"""The open-loop client: a process of its own on a core of its own, in an environment with nothing but numpy and hpack."""
