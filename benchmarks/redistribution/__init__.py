"""
The benchmark behind ``benchmarks/bench.py``: every strategy against stock DaCe, peers and the limits of the machine.

Start reading at :mod:`redistribution.run`; the cases are data, in ``cases.json``.
"""
