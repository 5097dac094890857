"""How silos train and how the server averages: public settings that a record pays nothing for.

Everything here acts on what the mechanism has already released (clipped, noised, rounded), so no choice changes a cost.
It is part of the public plan all the same: server and silos must agree on it, and a run repeats only with all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rpdp.checks import require_choice, require_count, require_fraction, require_number, require_positive
from rpdp.errors import InputError

OPTIMISERS = ("sgd", "adam")
BACKBONES = ("fedavg", "fedprox", "scaffold", "fedavgm", "fedadam")


@dataclass(frozen=True)
class Recipe:
    """The training part of a public plan.

    Args:
        learning_rate: Of the local optimiser.
        decay: Factor on the learning rate from round to round; 1 keeps it.
        optimiser: "sgd" or "adam"; it starts anew in every round, so silos keep nothing between rounds.
        momentum: Of local SGD.
        micro_batch: A larger draw is processed in pieces of at most this size, never above 512; fixed, so that runs
            repeat bit for bit.
        averaged_rounds: The result is the mean of the models after the last so many rounds: noise and the luck of who
            took part last average out.
        backbone: How updates become the next model: "fedavg", "fedprox", "scaffold", "fedavgm" or "fedadam".
        backbone_settings: Numbers of the backbone, by name; see `rpdp.federation.backbones`.
    """

    learning_rate: float = 0.1
    decay: float = 1.0
    optimiser: str = "sgd"
    momentum: float = 0.0
    micro_batch: int = 1024
    averaged_rounds: int = 1
    backbone: str = "fedavg"
    backbone_settings: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keep = object.__setattr__
        keep(self, "learning_rate", require_positive("learning_rate", self.learning_rate))
        keep(self, "decay", require_fraction("decay", self.decay))
        require_choice("optimiser", self.optimiser, OPTIMISERS)
        require_choice("backbone", self.backbone, BACKBONES)
        momentum = require_number("momentum", self.momentum)
        if not 0.0 <= momentum < 1.0:
            raise InputError(f"momentum={momentum} must be at least 0 and below 1")
        if momentum and self.optimiser != "sgd":
            raise InputError(f"momentum={momentum} goes with optimiser='sgd'; {self.optimiser} has its own")
        keep(self, "momentum", momentum)
        for name in ("micro_batch", "averaged_rounds"):
            keep(self, name, require_count(name, getattr(self, name)))
        if not isinstance(self.backbone_settings, Mapping):
            raise InputError(f"backbone_settings={self.backbone_settings!r} must be numbers by name")
        numbers = {key: require_number(key, value) for key, value in sorted(self.backbone_settings.items())}
        keep(self, "backbone_settings", MappingProxyType(numbers))

    def rate(self, number: int) -> float:
        """The local learning rate of a round, counted from 1."""
        return self.learning_rate * self.decay ** (number - 1)

    def settings(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**vars(self), "backbone_settings": dict(self.backbone_settings)}
