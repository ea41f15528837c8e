"""Settings of Sphinx for the manual; ``make docs`` builds it into build/docs, and compiles nothing."""

import re
import runpy
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.ext.autodoc.mock import mock

DOCS = Path(__file__).parent

project = "dace-redist"
author = "the dace-redist developers"
copyright = author  # noqa: A001
release = runpy.run_path(str(DOCS.parent / "dace_redist" / "_version.py"))["__version__"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["extensions"]
html_theme = "furo"
html_title = f"dace-redist {release}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3  # links to sections of other pages are checked

autodoc_default_options = {"member-order": "bysource"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
suppress_warnings = ["ref.python"]  # NumPy's type ``dtype`` has the name of two attributes
add_module_names = False
toc_object_entries_show_parents = "hide"
copybutton_prompt_text = "$ "


class CompiledModule(types.ModuleType):
    """Stands for ``dace_redist._core``, which docstrings do without: classes, zeros, and options as in their table."""

    option_ranges = {
        name: (float(default) if "." in default else int(default), 0, float("inf"))
        for name, default in re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", (DOCS / "strategies.md").read_text(), re.M)
    }

    def __getattr__(self, name: str) -> Any:
        """Return a class for the name of one, else 0."""
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {"__module__": self.__name__}) if name[0].isupper() else 0


# Packages lie as in the repository, where two of them are beside dace_redist.
sys.path.insert(0, str(DOCS.parent))
sys.modules["dace_redist._core"] = CompiledModule("dace_redist._core")
sys.modules["dace_redist._core"].__spec__ = ModuleSpec("dace_redist._core", None)  # by which the package finds it
autodoc_mock_imports = ["mpi4py"]
with mock(autodoc_mock_imports):
    import dace_redist

    dace_redist.__path__.append(str(DOCS.parent))
    import dace_redist.library_nodes


def add_properties(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """List the DaCe properties that this package's classes define, which are no parameters."""
    own = [
        (found.attr_name, found)
        for found in getattr(thing, "__properties__", {}).values()
        if what == "class" and found.owner.__module__.startswith("dace_redist")
    ]
    told = "\n".join(lines)
    for attribute, found in own:
        if f":param {attribute}:" not in told:
            lines.append(f":ivar {attribute}: {found.desc}. Default: ``{found.default!r}``.")
    lines.append("")


def setup(app: Sphinx) -> None:
    """Connect the list of properties; attributes in lists are no links, which would lead to other classes' ones."""
    for field in PyObject.doc_field_types:
        field.rolename = "" if field.name == "variable" else field.rolename
    app.connect("autodoc-process-docstring", add_properties)
