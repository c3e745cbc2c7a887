"""Recipes: the schema, the checks and the TOML files of the package."""
