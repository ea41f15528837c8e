"""Sizes with which a machine profile is made within seconds."""

SIZES = {
    "footprints": (1 << 10, 8 << 10),
    "runs": (8, 64),
    "read_runs": (16 << 10,),
    "items": (8,),
    "messages": (8, 4 << 10),
    "chunks": (512,),
    "network_chunks": (1 << 10,),
    "matrices": (1 << 10, 8 << 10),
}
