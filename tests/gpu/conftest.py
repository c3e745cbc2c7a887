"""The modules here run in their own processes, because they pretend that there is a GPU."""

collect_ignore_glob = ["[!t]*.py", "trace.py"]
