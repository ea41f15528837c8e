"""Settings of Sphinx for the manual; ``make docs`` builds it into build/docs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import dace_redist.library_nodes  # noqa: E402, F401 (registers what the SDFG programs of the manual use)

project = "dace-redist"
author = "the dace-redist developers"
copyright = author  # noqa: A001
release = dace_redist.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "strategy_tables"]
exclude_patterns = ["extensions"]
html_theme = "furo"
html_title = f"dace-redist {release}"
html_copy_source = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3  # links to sections of other pages are checked

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
add_module_names = False
