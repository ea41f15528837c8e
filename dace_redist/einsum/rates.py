"""The rates that plans are compared by."""

#: What a rank is taken to do in a second: operations, bytes to and from other ranks, and bytes of memory.
FLOPS_PER_SECOND, BYTES_PER_SECOND, MEMORY_BYTES_PER_SECOND = 1e10, 1e9, 4e9
#: What a rank's share of its node's link is taken to carry in a second; bytes to other nodes take this time besides.
INTERNODE_BYTES_PER_SECOND = 1e9
