"""The library node that moves a distributed tensor from one distribution to another."""

from __future__ import annotations

from typing import Any

from dace import dtypes, library, properties
from dace.sdfg import SDFG, SDFGState

from dace_redist.distribution import AnyDistribution
from dace_redist.library_nodes.distributed_node import DistributedNode
from dace_redist.library_nodes.node import plain_number
from dace_redist.strategies import DEFAULT_STRATEGY, OPTIONS, Option, Strategy, check_options, find_strategy

#: Connectors through which a program may hand over, as ``int64`` arrays, what the properties hold otherwise: both
#: distributions, encoded, and extents and strides of the local arrays.
RUN_TIME_CONNECTORS = ("_source", "_source_local", "_target", "_target_local")


def _option(option: Option) -> properties.Property:
    return properties.SymbolicProperty(default=option.default, category="Parameters", desc=option.description)


@library.node
class Redistribute(DistributedNode):
    """
    Moves a distributed tensor: ``_inp_buffer``, this rank's part under ``source``, to ``_out_buffer``, its part under
    ``target``. What a rank does not own of the output is left as it is.

    Communicator and local arrays: see :class:`DistributedNode`. The implementation is the strategy, see ``STRATEGIES``.

    :param name: Label, for error messages and :func:`dace_redist.set_strategy`.
    :param source: Distribution of the input; None if given at run time (``RUN_TIME_CONNECTORS``).
    :param target: Distribution of the output, of the same global shape.
    :param strategy: Name of the strategy.
    :param options: Options of the strategy.
    :raises ValueError: If the strategy or an option is unknown or out of range.
    """

    implementations: dict[str, Any] = {}
    default_implementation = DEFAULT_STRATEGY

    vars().update({name: _option(option) for name, option in OPTIONS.items()})

    def __init__(
        self,
        name: str,
        source: AnyDistribution | None = None,
        target: AnyDistribution | None = None,
        strategy: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, source, target, RUN_TIME_CONNECTORS if source is None else ())
        self.set_strategy(strategy or "Auto", **options)

    def set_strategy(self, name: str, **options: Any) -> None:
        """
        Chooses how the tensor is moved; options not given go back to their defaults.

        :param name: Name of a strategy, or ``"Auto"``.
        :param options: Its options.
        :raises ValueError: If the strategy or an option is unknown or out of range.
        :raises TypeError: If an option is of another type.
        """
        strategy, checked = self._checked(name, options)
        self.implementation = None if name == "Auto" else strategy.name
        for option, entry in OPTIONS.items():
            setattr(self, option, checked.get(option, entry.default))

    def _checked(self, name: str, options: dict[str, Any]) -> tuple[Strategy, dict[str, Any]]:
        try:
            strategy = find_strategy(name)
            return strategy, check_options(strategy, options)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{self.title}: {error}") from error

    @property
    def strategy(self) -> str:
        """Name of the strategy in force."""
        return self.implementation or self.default_implementation

    @property
    def options(self) -> dict[str, Any]:
        """The options that the strategy in force takes, with their values: numbers, or symbols of the program."""
        return {name: plain_number(getattr(self, name)) for name in find_strategy(self.strategy).options}

    @property
    def given_at_run_time(self) -> bool:
        """Whether the distributions come through connectors instead of the properties."""
        return "_source" in self.in_connectors

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Checks what can be known before the program runs.

        :raises ValueError: If something does not fit; names the node, what was expected and what was given.
        """
        self._checked(self.strategy, self.options)
        super().validate(sdfg, state)
        for connector in RUN_TIME_CONNECTORS if self.given_at_run_time else ():
            name = self.memlet(connector, state).data
            if sdfg.arrays[name].dtype != dtypes.int64:
                raise ValueError(
                    f"{self.title}: {connector} must hold 64-bit integers, got {name} of {sdfg.arrays[name].dtype}"
                )
