"""What a machine has, what electrify needs of it, and whether training works on its GPU."""
