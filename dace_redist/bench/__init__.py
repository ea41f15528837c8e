"""
The benchmark behind ``dace-redist bench``: every strategy against stock DaCe, peers and the limits of the machine.

Start reading at :mod:`dace_redist.bench.run`; the cases are data, in ``cases.json``.
"""
