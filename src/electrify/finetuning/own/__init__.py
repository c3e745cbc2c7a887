"""Any encoder and your own files: classes, scores or tags."""
