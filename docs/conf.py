"""Settings of Sphinx for the manual; ``make docs`` builds it into build/docs."""

import dace_redist

project = "dace-redist"
author = "the dace-redist developers"
copyright = author  # noqa: A001
release = dace_redist.__version__

extensions = ["myst_parser"]
exclude_patterns = ["extensions"]
html_theme = "furo"
html_title = f"dace-redist {release}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3  # links to sections of other pages are checked
