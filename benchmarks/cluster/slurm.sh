#!/bin/sh
# Starts Slurm on the emulated nodes, then runs a command on the login node: NODES WORDS... Started by slurm.py, which
# writes SLURM_CONF. Nothing is stopped: when the command ends, inside.py does, and the kernel ends all others.
set -eu
nodes=$1
shift
folder=${SLURM_CONF%/*}

for node in $(seq 0 $((nodes - 1))); do
    mkdir -p "$folder/spool-node$node"
    /run/on_node "node$node" slurmd -D -N "node$node" >"$folder/slurmd-node$node.log" 2>&1 &
done
slurmctld -D >"$folder/slurmctld.log" 2>&1 &

tries=0
until [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" = "$nodes" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 200 ]; then
        echo "Slurm did not get $nodes idle nodes in 20 s:" >&2
        tail -n 20 "$folder"/*.log >&2
        exit 1
    fi
    sleep 0.1
done
exec "$@"
