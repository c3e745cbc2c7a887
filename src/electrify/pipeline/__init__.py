"""From text to a model and a report in one command."""
