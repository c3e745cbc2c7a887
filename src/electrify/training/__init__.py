"""Masked batches and models in, checkpoints out."""
