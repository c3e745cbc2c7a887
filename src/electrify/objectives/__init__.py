"""What is learned: one file for each objective, and what they have in common."""
