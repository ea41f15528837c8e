"""Native code: keys, builds, and functions called from Python."""
