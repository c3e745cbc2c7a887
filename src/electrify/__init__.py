"""electrify: pre-train text encoders the way ELECTRA does, from raw text to a GLUE table."""

__version__ = "0.1.0"
