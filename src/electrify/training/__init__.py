"""Train models on masked batches, and write checkpoints."""
