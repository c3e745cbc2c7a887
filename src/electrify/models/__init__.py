"""Build, tie, initialise, export and load generators and discriminators of any architecture."""
