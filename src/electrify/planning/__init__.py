"""Estimate what a run needs before it starts: parameters, FLOPs, memory and time."""
