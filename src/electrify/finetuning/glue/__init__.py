"""Any encoder, GLUE: tasks × seeds to a table beside published rows."""
