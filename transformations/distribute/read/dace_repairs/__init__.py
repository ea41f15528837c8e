"""Stand-ins for functions of DaCe's frontend that differ from Python and NumPy. Start reading at: replaced.py."""
