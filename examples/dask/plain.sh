#!/bin/bash
# A Dask scheduler and workers without a queue: copy, edit, run on the first machine.
#
# Shared: the folder below and everything that the command reads and writes, at the same path on all machines.
set -eu
SHARED=/shared                      # seen by all machines
ENVIRONMENT=/shared/venv            # has electrify[cluster,data]
HOSTS=(node1 node2)                 # reachable with ssh

cd "$SHARED"
export PATH=$ENVIRONMENT/bin:$PATH
trap 'kill $(jobs -p)' EXIT
dask scheduler --scheduler-file scheduler.json --no-dashboard &
for host in "${HOSTS[@]}"; do
    ssh "$host" "cd $SHARED && $ENVIRONMENT/bin/dask worker --scheduler-file scheduler.json --nworkers auto --nthreads 1" &
done
until [ -f scheduler.json ]; do sleep 1; done
electrify prepare docs --tokenizer tokenizer --out shards --workers scheduler.json
# electrify glue model/encoder --data GLUE --out glue --workers scheduler.json
# electrify suite suite.toml model/encoder --out suite --workers scheduler.json
