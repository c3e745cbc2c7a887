"""Labelled texts and an encoder in, a classifier out."""
