"""Raw sources in, documents out."""
