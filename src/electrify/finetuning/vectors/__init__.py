"""Sentence vectors: make them with any encoder, and train an encoder to make better ones."""
