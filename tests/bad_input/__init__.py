"""Bad input from the outside: handled and counted, or an error that says what, got and fix.

Never a traceback, a hang, a file outside the output folder, or half an output taken for a whole.
"""
