"""Waiting that leaves the processor to those who work."""

from __future__ import annotations

import time
from typing import Any


def wait_politely(comm: Any, seconds: float = 0.01) -> None:
    """
    A barrier in which ranks sleep instead of asking without a pause. Collective.

    :param comm: mpi4py communicator.
    :param seconds: How long to sleep before looking again.
    """
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(seconds)
