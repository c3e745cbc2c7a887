"""Fine-tune encoders on labeled texts and evaluate them."""
