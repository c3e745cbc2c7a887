"""Fine-tune encoders on GLUE with several seeds, and compare the scores with published ones."""
