"""Sizes with which a machine profile is made within seconds."""

SIZES = {
    "footprints": (1 << 10, 8 << 10),
    "runs": (8, 64),
    "exchanged_runs": (8, 16 << 10),
    "items": (8,),
    "messages": (8, 4 << 10),
    "network_chunks": (1 << 10,),
}
