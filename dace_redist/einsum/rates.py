"""Assumed rates of a machine, by which plans are compared."""

#: Assumed rates of a rank: operations, bytes to and from other ranks, and bytes of memory, per second.
FLOPS_PER_SECOND, BYTES_PER_SECOND, MEMORY_BYTES_PER_SECOND = 1e10, 1e9, 4e9
#: Assumed internode bandwidth per rank, in bytes/s; this time is added to that of the bytes between ranks.
INTERNODE_BYTES_PER_SECOND = 1e9
