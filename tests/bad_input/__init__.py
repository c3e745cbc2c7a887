"""Bad input is handled and counted, or raises an error with its three lines (what, got, fix).

There is never a traceback, a hang, a file outside the output folder, or an incomplete output that
is taken for a complete one.
"""
