"""The quickstart: the complete pipeline on text that is already on the machine."""
