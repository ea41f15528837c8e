"""Version of the package, written only here."""

__version__ = "0.1.0"
