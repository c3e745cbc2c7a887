"""Compare a model with what it became on the text of a field."""
