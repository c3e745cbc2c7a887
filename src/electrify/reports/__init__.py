"""What people look at: pages about runs and results, and models at work."""
