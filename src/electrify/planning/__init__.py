"""What a run needs before it is started: parameters, FLOPs, memory and time."""
