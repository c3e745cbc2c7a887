"""Recipes: their schema, their checks and the TOML files that come along."""
