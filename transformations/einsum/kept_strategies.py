"""What a program keeps of the strategies of its redistributions when it is built again for other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dace import SDFG

from dace_redist.library_nodes import Redistribute
from dace_redist.strategies import OPTIONS


def take_strategies(target: SDFG, source: SDFG) -> None:
    """
    Gives the redistributions of an SDFG the strategies and options that those of another one have.

    A redistribution that the other SDFG lacks takes them if they are the same for all others.

    :param target: Changed in place.
    :param source: The same program, built for other sizes.
    """
    known: dict[Any, list[dict[str, Any]]] = {}
    for key, node in _redistributions(source):
        known.setdefault(key, []).append({name: getattr(node, name) for name in ("implementation", *OPTIONS)})
    every = [chosen for choices in known.values() for chosen in choices]
    common = every[:1] if all(chosen == every[0] for chosen in every) else []
    for key, node in _redistributions(target):
        choices = known.get(key, common)
        chosen = choices.pop(0) if len(choices) > 1 else next(iter(choices), {})
        for name, value in chosen.items():
            setattr(node, name, value)


def _redistributions(sdfg: SDFG) -> Iterator[tuple[Any, Redistribute]]:
    """Each redistribution, and what tells it from others: its tensor and its ends."""
    for node, _ in sdfg.all_nodes_recursive():
        if isinstance(node, Redistribute):
            yield (node.label, str(node.source), str(node.target)), node
