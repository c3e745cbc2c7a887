"""Fine-tune any encoder on your files: classes, scores or tags."""
