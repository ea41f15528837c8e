#!/bin/sh
# What a launcher calls in place of ssh: [OPTIONS] HOST WORDS... runs the words, as one line of shell, on that node.
while [ "${1#-}" != "$1" ]; do shift; done
node=$(cat "/run/nodes/$1" 2>/dev/null) || { echo "$0: there is no node $1" >&2; exit 1; }
shift
# The process is unshare, whose child is the first of the node's PID namespace. Entering the mount namespace leaves the
# working folder behind.
exec nsenter --target "$node" --net --uts --ipc --mount --pid="/proc/$node/ns/pid_for_children" \
    sh -c 'cd "$1" && eval "$2"' sh "$PWD" "$*"
