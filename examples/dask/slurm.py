"""Dask workers as SLURM jobs: copy, edit, run on a login node in a folder that all nodes share."""

import subprocess

from dask_jobqueue import SLURMCluster

WORKERS = 8
COMMAND = ["electrify", "prepare", "docs", "--tokenizer", "tokenizer", "--out", "shards"]
# COMMAND = ["electrify", "glue", "model/encoder", "--data", "GLUE", "--out", "glue"]
# COMMAND = ["electrify", "suite", "suite.toml", "model/encoder", "--out", "suite"]

if __name__ == "__main__":
    with SLURMCluster(cores=1, processes=1, memory="8GB", walltime="04:00:00") as cluster:
        cluster.scale(WORKERS)
        subprocess.run([*COMMAND, "--workers", cluster.scheduler_address], check=True)
