#!/bin/sh
# One node: NAME ADDRESS/BITS RATE BURST. Runs in network, host name, IPC, PID and mount namespaces of its own, which
# live as long as it does. Started by inside.py, which plugs in the cable (eth0) between "alive" and the line this reads.
set -eu
hostname "$1"
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
echo alive
read -r _

# Nothing but the job shall cross the link, and at the same pace everywhere; where a kernel refuses, we go without.
(echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6) 2>/dev/null || true
(echo cubic >/proc/sys/net/ipv4/tcp_congestion_control) 2>/dev/null || true
ip address add "$2" dev eth0
ip link set eth0 up
[ "$3" = none ] || tc qdisc add dev eth0 root tbf rate "$3" burst "$4" limit 16mb
echo ready
exec cat >/dev/null
