"""
Networks between nodes: which links a message takes, for many messages at a time. Start reading at: Network.

Routes are the shortest, as SimGrid's are, spread evenly over links of the same kind; a dragonfly knows detours, too.
Links go one way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pydantic
from pydantic import Field

from dace_redist.simulation.machine_file import A_RATE, A_TIME, Fields, Rate, Time, Whole, Wholes

Array = npt.NDArray[np.int64]
#: Of many messages: which of them take a link of a kind, and the numbers of these links.
Stage = tuple[Array, Array]


@dataclasses.dataclass(frozen=True)
class Kind:
    """Links of one kind, as ``link from node``, numbered one after another, and the rate of each in bytes a second."""

    name: str
    count: int
    rate: float


#: Rate of links between switches or routers; default: that of a node's link.
FurtherRate = Annotated[Rate, Field(description=A_RATE)]


class Network(Fields):
    """A network; rates are in bytes per second."""

    kind: str
    link: Rate = Field(description=f"the rate of a node's link, {A_RATE}")
    latency: Time = Field(description=f"what a message between two nodes takes, {A_TIME}")
    hop: Time = Field(1e-7, description=f"what each further link on the way adds, {A_TIME}")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _as_fast_as_links(cls, fields: dict[str, Any]) -> dict[str, Any]:
        further = [name for name, field in cls.model_fields.items() if field.description == A_RATE]
        return dict.fromkeys(further, fields.get("link")) | fields

    @property
    def nodes(self) -> int:
        """Number of nodes that it connects."""
        raise NotImplementedError

    @property
    def routings(self) -> Sequence[Network]:
        """The network with each way to choose routes; a network that adapts uses the better one."""
        return (self,)

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kinds of its links, those of nodes first: to the network, then from it."""
        return (Kind("link from node", self.nodes, self.link), Kind("link to node", self.nodes, self.link))

    def between(self, sources: Array, targets: Array) -> Iterator[tuple[int, Stage]]:
        """The links between the nodes' own ones: number of the kind, and which messages take which."""
        yield from ()

    def routes(self, sources: Array, targets: Array) -> Iterator[Stage]:
        """Yield the links of messages between different nodes, stage by stage, as numbers of links of all kinds."""
        every = np.arange(len(sources))
        yield every, sources
        yield every, targets + self._first[1]
        for kind, (which, links) in self.between(sources, targets):
            yield which, links + self._first[kind]

    @cached_property
    def _first(self) -> Array:
        return np.cumsum([0, *(kind.count for kind in self.kinds)])

    @cached_property
    def rates(self) -> npt.NDArray[np.float64]:
        """Rate of each link, in bytes per second."""
        return np.repeat([kind.rate for kind in self.kinds], [kind.count for kind in self.kinds])

    def link_name(self, link: int) -> str:
        """Return the kind and number of a link, as in ``link from node 3``."""
        kind = int(np.searchsorted(self._first, link, side="right")) - 1
        return f"{self.kinds[kind].name} {link - int(self._first[kind])}"


def _number(what: str, least: int = 1) -> Any:
    return Field(ge=least, description=f"the number of {what}, at least {least}")


class Switch(Network):
    """One switch between all nodes."""

    kind: str = "switch"
    ports: Whole = _number("nodes at the switch", 2)

    @property
    def nodes(self) -> int:  # noqa: D102
        return self.ports


class FatTree(Network):
    """
    Switches in levels; the route goes up to the first switch above both nodes, by ports that the target decides.

    Source: Zahavi, D-Mod-K Routing Providing Non-Blocking Traffic for Shift Permutations on Real Life Fat Trees, 2010.
    """

    kind: str = "fat-tree"
    down: Wholes = Field(description="a list of up to 32 such as [16, 32]: per level what is below each switch")
    up: Wholes = Field(description="a list as long as down, {down}, the first 1: per level how many switches are above")
    trunk: FurtherRate

    @pydantic.field_validator("up")
    @classmethod
    def _as_long_as_down(cls, up: tuple[int, ...], info: pydantic.ValidationInfo) -> tuple[int, ...]:
        if len(up) != len(info.data.get("down", up)) or up[0] != 1:
            raise ValueError
        return up

    @property
    def nodes(self) -> int:  # noqa: D102
        return math.prod(self.down)

    def _links(self, level: int) -> int:
        return self.nodes // math.prod(self.down[:level]) * math.prod(self.up[: level + 1])

    @property
    def kinds(self) -> Sequence[Kind]:  # noqa: D102
        levels = range(1, len(self.down))
        ways = [
            Kind(f"level-{level} {way}", self._links(level), self.trunk)
            for level in levels
            for way in ("uplink", "downlink")
        ]
        return (*super().kinds, *ways)

    def between(self, sources: Array, targets: Array) -> Iterator[tuple[int, Stage]]:  # noqa: D102
        for level in range(1, len(self.down)):
            below, above = math.prod(self.down[:level]), math.prod(self.up[:level])
            which = np.flatnonzero(sources // below != targets // below)
            if not len(which):
                return
            switch, port = targets[which] % above, targets[which] // above % self.up[level]
            for way, nodes in enumerate((sources[which], targets[which])):
                yield 2 * level + way, (which, (nodes // below * above + switch) * self.up[level] + port)


class Dragonfly(Network):
    """
    Groups of routers, as Cray's Aries: routers of a chassis, and those in the same slot of the chassis of a group, are
    connected all to all, as are the groups, by several cables each.

    The shortest route: to a router that has a cable, along it, and to the router of the target. Cables, and with them
    routers, are taken in turn by the sum of both nodes' numbers. Aries adapts: here all messages of an exchange
    may make a detour within groups, by slots that are taken in turn, too.
    """

    kind: str = "dragonfly"
    groups: Whole = _number("groups")
    chassis: Whole = _number("chassis of a group")
    routers: Whole = _number("routers of a chassis")
    nodes_per_router: Whole = _number("nodes at a router")
    cables: Whole = _number("cables between two groups")
    chassis_link: FurtherRate  # between two routers of a chassis
    group_link: FurtherRate  # between two in the same slot of the chassis of a group
    cable: FurtherRate
    _detour: bool = pydantic.PrivateAttr(False)  # messages within a group go by a third slot

    @property
    def routings(self) -> Sequence[Network]:  # noqa: D102
        other = self.model_copy()
        other._detour = True
        return (self, other)

    @property
    def nodes(self) -> int:  # noqa: D102
        return self.groups * self._of_group * self.nodes_per_router

    @property
    def _of_group(self) -> int:
        return self.chassis * self.routers

    @property
    def kinds(self) -> Sequence[Kind]:  # noqa: D102
        return (
            *super().kinds,
            Kind("chassis link", self.groups * self.chassis * self.routers**2, self.chassis_link),
            Kind("group link", self.groups * self.routers * self.chassis**2, self.group_link),
            Kind("cable", self.groups**2 * self.cables, self.cable),
        )

    def between(self, sources: Array, targets: Array) -> Iterator[tuple[int, Stage]]:  # noqa: D102
        start, end = sources // self.nodes_per_router, targets // self.nodes_per_router
        here, there = start // self._of_group, end // self._of_group
        turn = sources + targets
        far, near = np.flatnonzero(here != there), np.flatnonzero(here == there)
        yield from self._in_group(near, start[near], end[near], turn[near])
        if not len(far):
            return
        cable = turn[far] % self.cables
        here, there = here[far], there[far]
        leaves, arrives = ((other * self.cables + cable) % self._of_group for other in (there, here))
        yield 4, (far, (here * self.groups + there) * self.cables + cable)
        yield from self._in_group(far, start[far], here * self._of_group + leaves, turn[far])
        yield from self._in_group(far, there * self._of_group + arrives, end[far], turn[far])

    def _in_group(self, which: Array, start: Array, end: Array, turn: Array) -> Iterator[tuple[int, Stage]]:
        """Within the chassis to a slot, from there to the other chassis, and within it to the router."""
        (box, slot), (box_end, slot_end) = (divmod(router, self.routers) for router in (start, end))
        third = np.where(start == end, slot, turn % self.routers) if self._detour else slot_end
        yield from self._in_chassis(which, box, slot, third)
        some = box != box_end
        group, first = divmod(box, self.chassis)
        last = box_end % self.chassis
        yield 3, (which[some], (((group * self.routers + third) * self.chassis + first) * self.chassis + last)[some])
        yield from self._in_chassis(which, box_end, third, slot_end)

    def _in_chassis(self, which: Array, box: Array, slot: Array, slot_end: Array) -> Iterator[tuple[int, Stage]]:
        some = slot != slot_end
        yield 2, (which[some], ((box * self.routers + slot) * self.routers + slot_end)[some])


class Torus(Network):
    """Nodes in a grid whose ends are connected; a message goes along one dimension after another, the shorter way."""

    kind: str = "torus"
    dims: Wholes = Field(description="a list of up to 32 such as [8, 8, 8]: nodes along each dimension")
    trunk: FurtherRate

    @property
    def nodes(self) -> int:  # noqa: D102
        return math.prod(self.dims)

    @property
    def kinds(self) -> Sequence[Kind]:  # noqa: D102
        ways = [
            Kind(f"link {sign}1 along dimension {dim} from node", self.nodes, self.trunk)
            for dim in range(len(self.dims))
            for sign in "+-"
        ]
        return (*super().kinds, *ways)

    def between(self, sources: Array, targets: Array) -> Iterator[tuple[int, Stage]]:  # noqa: D102
        at = list(np.unravel_index(sources, self.dims))
        for dim, wanted in enumerate(np.unravel_index(targets, self.dims)):
            extent = self.dims[dim]
            forward = (wanted - at[dim]) % extent
            back = forward > extent // 2
            steps = np.where(back, extent - forward, forward)
            for step in range(steps.max(initial=0)):
                nodes = np.ravel_multi_index(at, self.dims)
                for way, turned in enumerate((~back, back)):
                    which = np.flatnonzero((steps > step) & turned)
                    yield 2 + 2 * dim + way, (which, nodes[which])
                at[dim] = np.where(steps > step, at[dim] + np.where(back, -1, 1), at[dim]) % extent


#: Networks by their kinds in machine files.
KINDS: dict[str, type[Network]] = {
    "switch": Switch,
    "fat-tree": FatTree,
    "dragonfly": Dragonfly,
    "torus": Torus,
}
