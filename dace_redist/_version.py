"""The version of the package: written here, read by everything else."""

__version__ = "0.1.0"
