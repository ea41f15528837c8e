"""The directives ``strategies`` and ``options``: tables of what :mod:`dace_redist.strategies` declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from dace_redist.strategies import OPTIONS, STRATEGIES

Row = Sequence[str]


def strategy_rows() -> Iterator[Row]:
    """Name, summary, options and memory of each strategy, after the names of the columns."""
    yield "strategy", "what it does", "options", "memory per rank, besides the arrays"
    for strategy in STRATEGIES.values():
        options = ", ".join(f"`{name}`" for name in strategy.options) or "none"
        yield f"`{strategy.name}`", strategy.summary, options, strategy.memory


def option_rows() -> Iterator[Row]:
    """Name, default, range and meaning of each option, after the names of the columns."""
    yield "option", "default", "range", "what it is"
    for name, option in OPTIONS.items():
        bounds = f"{option.minimum} to {option.maximum}"
        yield f"`{name}`", str(option.default), bounds, option.description


def _directive(rows: Callable[[], Iterator[Row]]) -> type[SphinxDirective]:
    class Table(SphinxDirective):
        def run(self) -> list[nodes.Node]:
            head, *body = rows()
            lines = [" | ".join(row) for row in (head, ["---"] * len(head), *body)]
            return list(self.parse_text_to_nodes("\n".join(f"| {line} |" for line in lines)))

    return Table


def setup(app: Any) -> dict[str, Any]:
    """Registers the directives with Sphinx."""
    app.add_directive("strategies", _directive(strategy_rows))
    app.add_directive("options", _directive(option_rows))
    return {"parallel_read_safe": True}
