"""The operations of each rank, one after another, for simulators of messages. Start reading at: exchange_operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dace_redist.simulation.exchange import Exchange
from dace_redist.strategies import STRATEGIES


class Operation(NamedTuple):
    """
    One operation of a rank.

    :param kind: ``"compute"``; ``"send"`` and ``"receive"``, which start a message; ``"wait"`` for one from ``peer``.
    :param amount: Seconds of work, or bytes of the message; 1 for messages on a node, whose copies count as work.
    """

    kind: str
    amount: float = 0
    peer: int = -1


#: Ranks with their operations.
RankOperations = Iterator[tuple[int, list[Operation]]]


def exchange_operations(exchange: Exchange, strategy: str) -> RankOperations:
    """
    Return the operations of each rank in a redistribution, node by node.

    A rank starts all receives, packs and sends one message after another, copies within its node, and unpacks messages
    in ascending order of the senders. Packing, unpacking and latency are spread evenly over the messages.

    :param strategy: One that can move it.
    :raises ValueError: If it joins messages of several ranks.
    """
    if STRATEGIES[strategy].joins_messages:
        raise ValueError(
            f"strategy {strategy} joins messages of several ranks, but traces hold those from rank to rank: "
            "name another strategy"
        )
    return _operations(exchange, strategy)


def _operations(exchange: Exchange, strategy: str) -> RankOperations:
    model = exchange.model
    schedule, node_of = model.problem.schedule, model.node_of
    sizes = dict[tuple[int, int], int]()
    senders: list[list[int]] = [[] for _ in range(schedule.ranks)]
    targets: list[list[int]] = [[] for _ in range(schedule.ranks)]
    for rank in range(schedule.ranks):
        for peer, nbytes in np.column_stack(schedule.sent_to(rank)).tolist():
            if peer != rank:
                sizes[rank, peer] = nbytes if node_of[rank] != node_of[peer] else 1
                senders[peer].append(rank)
                targets[rank].append(peer)
    for rank, terms in model.terms_of_ranks(strategy):
        done = [Operation("receive", sizes[peer, rank], peer) for peer in senders[rank]]
        before = (terms.latency + terms.pack) / max(1, len(targets[rank]))
        for peer in targets[rank]:
            done += [Operation("compute", before), Operation("send", sizes[rank, peer], peer)]
        done.append(Operation("compute", terms.transfer + (0.0 if targets[rank] else before)))
        for peer in senders[rank]:
            done += [Operation("wait", peer=peer), Operation("compute", terms.unpack / len(senders[rank]))]
        if not senders[rank]:
            done.append(Operation("compute", terms.unpack))
        yield rank, [one for one in done if one.kind != "compute" or one.amount > 0]
