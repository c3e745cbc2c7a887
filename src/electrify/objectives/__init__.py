"""Pre-training objectives: one module per objective, and what they share."""
