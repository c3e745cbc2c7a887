"""A suite: tasks, seeds and models in one table."""
