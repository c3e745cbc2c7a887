"""Zero-shot classification: which label in a template looks most original to a model."""
