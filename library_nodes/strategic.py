"""Base of library nodes that move tensors by a strategy."""

from __future__ import annotations

from typing import Any

from dace import properties
from dace.sdfg import SDFG, SDFGState

from dace_redist.library_nodes.node import RedistNode, plain_number
from dace_redist.strategies import DEFAULT_STRATEGY, OPTIONS, Strategy, check_options, find_strategy


def option_properties() -> dict[str, properties.Property]:
    """Return properties for the options of strategies, which each class of nodes needs for itself."""
    return {
        name: properties.SymbolicProperty(default=option.default, category="Parameters", desc=option.description)
        for name, option in OPTIONS.items()
    }


class StrategicNode(RedistNode):
    """Node that moves tensors by its implementation, a strategy of ``STRATEGIES``; has :func:`option_properties`."""

    default_implementation = DEFAULT_STRATEGY

    def set_strategy(self, name: str, **options: Any) -> None:
        """
        Set the strategy; options that are not given are reset to their defaults.

        :param name: Name of a strategy, or ``"Auto"``.
        :raises ValueError: If the strategy or an option is unknown or out of range.
        :raises TypeError: If an option is of another type.
        """
        strategy, checked = self.check_strategy(name, options)
        self.implementation = None if name == "Auto" else strategy.name
        for option, entry in OPTIONS.items():
            setattr(self, option, checked.get(option, entry.default))

    def check_strategy(self, name: str, options: dict[str, Any]) -> tuple[Strategy, dict[str, Any]]:
        """Return the strategy of a name and its options, checked; raise as :meth:`set_strategy` does."""
        with self.naming():
            strategy = find_strategy(name)
            return strategy, check_options(strategy, options)

    @property
    def strategy(self) -> str:
        """Name of the strategy in force."""
        return self.implementation or self.default_implementation

    @property
    def options(self) -> dict[str, Any]:
        """Options of the strategy in force, with their values: numbers, or symbols of the program."""
        return {name: plain_number(getattr(self, name)) for name in find_strategy(self.strategy).options}

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check strategy and options, too: see :meth:`RedistNode.validate`."""
        self.check_strategy(self.strategy, self.options)
        super().validate(sdfg, state)
