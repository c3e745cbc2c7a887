"""HTML reports about runs and results, and inspection of discriminators."""
