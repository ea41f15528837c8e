"""Command ``dace-redist`` where the folder of scripts is not on ``PATH``: ``python -m dace_redist``."""

from dace_redist.cli import main

main()
