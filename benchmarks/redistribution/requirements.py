"""Performance requirements, as ratios within one run, and their values in a set of results. Start: rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from redistribution import methods as kinds

Record = Mapping[str, Any]

_SEED = ("seed-k12", "seed-k16", "seed-k24")
_LARGE_MESSAGE = 1_000_000  # bytes from which the wire, not its latency, decides between nodes


@dataclasses.dataclass(frozen=True)
class Row:
    """
    One requirement.

    :param what: Description.
    :param required: Minimum value.
    :param seen: Value, or None if the results do not show it.
    :param cases: Number of cases.
    :param worst: The worst case.
    """

    what: str
    required: float
    seen: float | None
    cases: int = 0
    worst: str = ""

    @property
    def is_met(self) -> bool | None:
        """None if it was not seen."""
        return None if self.seen is None else self.seen >= self.required


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of at least one positive number."""
    logarithms = [math.log(value) for value in values]
    return math.exp(math.fsum(logarithms) / len(logarithms))


def rows(records: Iterable[Record]) -> list[Row]:
    """
    Return every requirement with its value in some results.

    :param records: Lines that were measured, of any cases and numbers of nodes; one per case, method and nodes.
    """
    runs = _by_run(records)
    one_node = [run for (_, nodes), run in runs.items() if nodes == 1]
    seed = [run for (case, nodes), run in runs.items() if nodes == 1 and case in _SEED]
    table = [*_bound_rows(runs), *_stock_rows(seed, one_node), *_peer_rows(one_node)]
    for nodes in (2, 4):
        table += _node_rows(nodes, [run for (_, count), run in runs.items() if count == nodes])
    return table + _best_rows(list(runs.values()))


#: The methods of one case on one number of nodes, by label.
_Run = Mapping[str, Record]
_Value = Callable[[_Run], float | None]


def _by_run(records: Iterable[Record]) -> dict[tuple[str, int], dict[str, Record]]:
    runs: dict[tuple[str, int], dict[str, Record]] = {}
    for record in records:
        if "median" in record:
            runs.setdefault((record["case"], record["environment"]["nodes"]), {})[record["method"]] = record
    return runs


def _case(run: _Run) -> str:
    name: str = next(iter(run.values()))["case"]
    return name


def _auto(variant: str) -> str:
    return "Auto" if variant == "ordinary" else f"Auto, {variant}"


def _field(label: str, name: str) -> _Value:
    return lambda run: run[label].get(name) if label in run else None


def _faster(label: str, *others: str) -> _Value:
    """Return the speedup over the best of other methods."""

    def value(run: _Run) -> float | None:
        medians = [run[other]["median"] for other in others if other in run]
        return min(medians) / run[label]["median"] if medians and label in run else None

    return value


def _row(what: str, required: float, runs: Iterable[_Run], value: _Value, mean: bool = False) -> Row:
    """Return the worst case, or the geometric mean, of a value over the runs that have it."""
    found = [(seen, _case(run)) for run in runs if (seen := value(run)) is not None]
    if not found:
        return Row(what, required, None)
    least, worst = min(found)
    return Row(what, required, geometric_mean(seen for seen, _ in found) if mean else least, len(found), worst)


def _bound_rows(runs: Mapping[tuple[str, int], _Run]) -> list[Row]:
    table = []
    for variant, needed in (
        ("shared-target", (0.8, 1.0, 1.0)),
        ("ordinary", (None, 0.6, 0.6)),
        ("shared-both", (None, 1.0, 1.0)),
    ):
        for case, required in zip(_SEED, needed, strict=True):
            if required is not None:
                value = _field(_auto(variant), "share_of_copy")
                what = f"Auto, share of the plain copy, {case}, {variant}"
                table.append(_row(what, required, [run for key, run in runs.items() if key == (case, 1)], value))
    return table


def _stock_rows(seed: Sequence[_Run], one_node: Sequence[_Run]) -> list[Row]:
    shared, ordinary = (_faster(_auto(variant), kinds.STOCK) for variant in ("shared-target", "ordinary"))
    return [
        _row("Auto to stock, seed k = 12, 16, 24, shared-target: mean", 3.0, seed, shared, mean=True),
        _row("Auto to stock, seed k = 12, 16, 24, shared-target: worst", 2.0, seed, shared),
        _row("Auto to stock, seed k = 12, 16, 24, ordinary: worst", 1.5, seed, ordinary),
        _row("Auto to stock, all on one node, shared-target: mean", 2.0, one_node, shared, mean=True),
        _row("Auto to stock, all on one node, shared-target: worst", 1.0, one_node, shared),
        _row("Auto to stock, all on one node, ordinary: mean", 1.5, one_node, ordinary, mean=True),
        _row("Auto to stock, all on one node, ordinary: worst", 1.0, one_node, ordinary),
    ]


def _peer_rows(one_node: Sequence[_Run]) -> list[Row]:
    table = []
    for name, peers, mean, worst in (
        ("Alltoallw / mpi4py-fft", (kinds.ALLTOALLW, kinds.PENCIL), 1.4, 1.0),
        ("ScaLAPACK", (kinds.SCALAPACK,), 3.0, 1.5),
    ):
        for variant in ("shared-target", "ordinary"):
            value = _faster(_auto(variant), *peers)
            table.append(_row(f"Auto to {name}, {variant}: mean", mean, one_node, value, mean=True))
            table.append(_row(f"Auto to {name}, {variant}: worst", worst, one_node, value))
    some = [run for run in one_node if _case(run).startswith("blocks-64-to-128")]
    for variant in ("shared-target", "ordinary"):
        for name, peer, required in (("ScaLAPACK", kinds.SCALAPACK, 8.0), ("nested MPI types", kinds.NESTED, 1.0)):
            what = f"Auto to {name}, blocks of 64 to 128, {variant}: worst"
            table.append(_row(what, required, some, _faster(_auto(variant), peer)))
    return table


def _node_rows(nodes: int, runs: Sequence[_Run]) -> list[Row]:
    large = [run for run in runs if next(iter(run.values()))["largest_message"] >= _LARGE_MESSAGE]
    share = _row(
        f"Auto, share of the wire, {nodes} nodes, messages >= 1 MB: worst", 0.9, large, _field("Auto", "share_of_wire")
    )
    return [share, _row(f"Auto to stock, {nodes} nodes: worst", 1.0, runs, _faster("Auto", kinds.STOCK))]


def _best_rows(runs: Sequence[_Run]) -> list[Row]:
    table = []
    for variant in ("shared-target", "ordinary"):

        def value(run: _Run, variant: str = variant) -> float | None:
            if not run.get(_auto(variant), {}).get("chosen", {}).get("recorded"):
                return None  # the default, not what was tuned
            single = [
                label
                for label, record in run.items()
                if record["kind"] == "strategy" and record["variant"] == variant and record["strategy"] != "Auto"
            ]
            return _faster(_auto(variant), *single)(run)

        what = f"Auto after tuning to the best single strategy, {variant}"
        table.append(_row(f"{what}: mean", 0.95, runs, value, mean=True))
        table.append(_row(f"{what}: worst", 0.95, runs, value))
    return table
