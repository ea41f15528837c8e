"""Traces that ``DACE_REDIST_TRACE`` asked for: the time of each rank as text, picture or JSON. Start: Trace."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dace_redist.errors import naming_file
from dace_redist.report.canvas import new_figure, save
from dace_redist.report.units import count, format_bytes, format_seconds

#: Kinds of spans, in the order of the picture's legend; other kinds contain others.
KINDS = ("pack", "send", "put", "push", "pull", "read", "unpack", "copy", "reduce", "contract", "solve", "wait")
#: Kinds that contain others, and the name of the time between those.
OUTER = {"plan": "planning", "run": "between", "start": "between", "progress": "between"}


@dataclass(frozen=True)
class Span:
    """A period that a thread of a rank spent on one activity; times in microseconds."""

    rank: int
    thread: int
    kind: str
    name: str
    start: float
    duration: float
    nbytes: int = 0

    @property
    def end(self) -> float:
        """Time at which it ended."""
        return self.start + self.duration


class Trace:
    """
    The trace of a run, or a part of it.

    :param path: The folder with a file of each rank, or the one file that :meth:`merge` made of them.
    :param begin: Leave out events that ended earlier, in milliseconds after the first event.
    :param end: Leave out events that began later, in milliseconds after the first event.
    :raises ValueError: If it is not a trace of this package, or has no events at that time.
    :raises FileNotFoundError: If there is no such folder or file; says how to get one.
    :raises OSError: If it cannot be read.
    """

    def __init__(self, path: str | Path, begin: float = 0.0, end: float = math.inf):
        self.path = Path(path)
        try:
            self._events = _merged(self.path) if self.path.is_dir() else _read(self.path)
            spans = [_span(event) for event in self._events if event["ph"] == "X"]
        except (LookupError, TypeError, AttributeError):
            wrong = "holds JSON that dace-redist did not write" if self.path.is_dir() else _FOREIGN
            raise ValueError(f"trace: {str(path)!r} {wrong}, or is damaged; {_HOW_TO_GET}") from None
        if not spans:
            raise ValueError(f"trace: {str(path)!r} holds no events: the ranks moved and computed nothing")
        first, last = min(span.start for span in spans), max(span.end for span in spans)
        self.spans = [s for s in spans if s.end >= first + 1e3 * begin and s.start <= first + 1e3 * end]
        if not self.spans:
            asked = f"from {begin:g} to {end:g} ms" if end < math.inf else f"from {begin:g} ms on"
            length = f"its events take {(last - first) / 1e3:.4g} ms"
            raise ValueError(f"trace: {str(path)!r} holds no events {asked} after the first one: {length}")

    @property
    def ranks(self) -> list[int]:
        """The ranks that wrote something, ascending."""
        return sorted({span.rank for span in self.spans})

    @cached_property
    def seconds(self) -> dict[str, dict[int, float]]:
        """Seconds of each kind and rank without those of other kinds inside; over all threads of a rank."""
        seconds: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for span, own in self._own_times():
            seconds[OUTER.get(span.kind, span.kind)][span.rank] += own / 1e6
        return seconds

    def _own_times(self) -> Iterator[tuple[Span, float]]:
        """Each span with its time less that of the spans inside it."""
        by_thread: dict[tuple[int, int], list[Span]] = defaultdict(list)
        for span in self.spans:
            by_thread[span.rank, span.thread].append(span)
        for spans in by_thread.values():
            inside: list[tuple[Span, list[float]]] = []  # the open ones, outermost first, with the time of those inside
            for span in sorted(spans, key=lambda span: (span.start, -span.duration)):
                while inside and inside[-1][0].end <= span.start:
                    outer, inner = inside.pop()
                    yield outer, outer.duration - sum(inner)
                if inside:
                    inside[-1][1].append(span.duration)
                inside.append((span, []))
            for outer, inner in inside:
                yield outer, outer.duration - sum(inner)

    @cached_property
    def nbytes(self) -> dict[str, int]:
        """Bytes of each kind, of all ranks, where they were counted."""
        nbytes: dict[str, int] = defaultdict(int)
        for span in self.spans:
            nbytes[span.kind] += span.nbytes
        return nbytes

    def to_json(self) -> dict[str, Any]:
        """Seconds by kind and rank, bytes by kind."""
        return {"ranks": self.ranks, "seconds": self.seconds, "bytes": {k: n for k, n in self.nbytes.items() if n}}

    def __str__(self) -> str:
        ranks = self.ranks
        first, last = min(span.start for span in self.spans), max(span.end for span in self.spans)
        length = format_seconds((last - first) / 1e6)
        lines = [f"{self.path.name}: {count(len(ranks), 'rank')}, {length} from first to last event"]
        total = sum(sum(of_ranks.values()) for of_ranks in self.seconds.values()) or 1.0
        for kind, of_ranks in sorted(self.seconds.items(), key=lambda item: -sum(item[1].values())):
            busiest = max(of_ranks, key=lambda rank: of_ranks[rank])
            mean = sum(of_ranks.values()) / len(ranks)
            line = f"{kind:<9} {100 * mean * len(ranks) / total:5.1f} %  {format_seconds(mean)} a rank"
            if len(ranks) > 1:
                line += f", at most {format_seconds(of_ranks[busiest])} (rank {busiest})"
            lines.append(line + (f", {format_bytes(self.nbytes[kind])} in all" if self.nbytes.get(kind) else ""))
        return "\n".join(lines)

    def merge(self, path: str | Path) -> None:
        """
        Write one file of all ranks, in Chrome's trace event format, for Perfetto and ``chrome://tracing``.

        :param path: File to write; it holds all events, also those outside of ``begin`` and ``end``.
        :raises OSError: If it cannot be written.
        """
        with naming_file("merged trace", path, "name another file"):
            Path(path).write_text("[\n" + ",\n".join(map(json.dumps, self._events)) + "\n]\n")

    def plot(self, path: str | Path) -> None:
        """Draw the spans of each rank; parameters and errors as of :func:`dace_redist.report.canvas.save`."""
        save(lambda: draw(self), path)


_FOREIGN = "is JSON, but not a trace that dace-redist wrote"
_HOW_TO_GET = "run the program with DACE_REDIST_TRACE=FOLDER in its environment to get one"


def _read(path: Path) -> list[dict[str, Any]]:
    """The events of a file in Chrome's trace event format; a TypeError if they are not of this package."""
    try:
        events: list[dict[str, Any]] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(f"trace: there is no folder or file {str(path)!r}; {_HOW_TO_GET}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"trace: {str(path)!r} is not JSON, or was cut off ({error}); {_HOW_TO_GET}") from None
    if events[0]["name"] != "dace_redist":
        raise TypeError
    return events


def _read_rank(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], int] | None:
    """
    The head, the events, and the time of writing of the file of a rank, in nanoseconds since 1970; None if it is not.

    The last line of a rank that was killed may be incomplete.
    """
    lines: list[Any] = []
    for line in path.read_bytes().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    if not lines or not isinstance(lines[0], dict) or lines[0].get("trace") != "dace_redist":
        return None
    head, *events = lines
    last_end = max((event["end"] for event in events), default=head["loaded"])
    return head, events, max(path.stat().st_mtime_ns, last_end)


def _merged(folder: Path) -> list[dict[str, Any]]:
    """
    The events of all ranks of the last run, in Chrome's trace event format.

    A run replaces the files of its ranks. Others are left over from an earlier run: of another number of ranks, or
    last written before this run began.
    """
    files = [file for path in sorted(folder.glob("rank-*.jsonl")) if (file := _read_rank(path)) is not None]
    if not files:
        raise ValueError(f"trace: the folder {str(folder)!r} has no trace of a rank; {_HOW_TO_GET}")
    last = max((head for head, *_ in files), key=lambda head: head["loaded"])
    run = [file for file in files if file[0]["ranks"] == last["ranks"] and file[2] >= last["loaded"]]
    run.sort(key=lambda file: file[0]["rank"])
    origin = min(head["loaded"] for head, *_ in run)
    merged: list[dict[str, Any]] = [{"name": "dace_redist", "ph": "M", "pid": 0, "args": {"origin": origin}}]
    for head, events, _ in run:
        rank, named = head["rank"], f"rank {head['rank']} on {head['host']}"
        merged.append({"name": "process_name", "ph": "M", "pid": rank, "args": {"name": named}})
        merged.append({"name": "process_sort_index", "ph": "M", "pid": rank, "args": {"sort_index": rank}})
        merged += [_chrome_event(event, rank, origin) for event in events]
    return merged


def _chrome_event(event: dict[str, Any], rank: int, origin: int) -> dict[str, Any]:
    kind, peer = event["kind"], event["peer"]
    given = {
        "strategy": event["strategy"] or None,
        "peer": peer if peer >= 0 else None,
        "bytes": event["bytes"] or None,
    }
    return {
        **{"name": event["label"] or kind, "cat": kind, "ph": "X", "pid": rank, "tid": event["thread"]},
        **{"ts": (event["start"] - origin) / 1e3, "dur": (event["end"] - event["start"]) / 1e3},
        "args": {name: value for name, value in given.items() if value is not None},
    }


def _span(event: dict[str, Any]) -> Span:
    """Describe an event; a LookupError, a TypeError or an AttributeError if it is not one of this package."""
    rank, thread, kind, name, start, duration = (event[key] for key in ("pid", "tid", "cat", "name", "ts", "dur"))
    nbytes = event["args"].get("bytes", 0)
    if not (isinstance(kind, str) and abs(start) < 1e18 and 0 <= duration < 1e18 and min(rank, thread, nbytes) >= 0):
        raise TypeError
    return Span(rank, thread, kind, name, start, duration, nbytes)


def draw(trace: Trace) -> Any:
    """Return the ``matplotlib.figure.Figure``: a row for each rank, a colour for each kind."""
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    ranks = trace.ranks
    figure = new_figure(11, 1.6 + 0.32 * min(len(ranks), 64), layout="constrained")
    axes = figure.add_subplot()
    first = min(span.start for span in trace.spans)
    by_row: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for span in trace.spans:
        by_row[ranks.index(span.rank), span.kind].append(((span.start - first) / 1e3, span.duration / 1e3))
    colours = {kind: colormaps["tab20"](number) for number, kind in enumerate(KINDS)}
    colours["wait"] = (0.85, 0.85, 0.85, 1.0)
    for (row, kind), bars in sorted(by_row.items()):
        if kind in colours:
            axes.broken_barh(bars, (row - 0.35, 0.7), facecolors=[colours[kind]])
        else:  # what contains others is a frame around them
            axes.broken_barh(bars, (row - 0.42, 0.84), facecolors="none", edgecolors="0.4", linewidth=0.6)
    axes.set(xlabel="time in ms", ylabel="rank", ylim=(len(ranks) - 0.4, -0.6), yticks=range(len(ranks)))
    axes.set_yticklabels(ranks)
    present = {kind for _, kind in by_row}
    handles = [Patch(color=colours[kind], label=kind) for kind in KINDS if kind in present]
    handles.append(Patch(fill=False, edgecolor="0.4", label="making a plan, or an exchange"))
    axes.legend(handles=handles, ncols=len(handles), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return figure
