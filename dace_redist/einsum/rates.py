"""Rates of a rank by which plans are compared: assumed, the same on every machine."""

#: Operations per second, as matrix products on one core have them, and bytes to and from other ranks.
FLOPS_PER_SECOND, BYTES_PER_SECOND = 4e10, 1e9
#: Bytes to and from other nodes per second; this time is added to that of the bytes between ranks.
INTERNODE_BYTES_PER_SECOND = 1e9
#: Bytes per second that a rank reads and writes in memory, and in the second-level cache.
MEMORY_BYTES_PER_SECOND, CACHE_BYTES_PER_SECOND = 8e9, 2e10
