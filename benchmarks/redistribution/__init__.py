"""The benchmark behind ``benchmarks/bench.py``: start reading at :mod:`redistribution.run`; cases: ``cases.json``."""
