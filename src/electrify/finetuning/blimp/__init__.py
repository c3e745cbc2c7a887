"""BLiMP: which sentence of a minimal pair a model prefers, without fine-tuning."""
