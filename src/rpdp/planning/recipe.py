"""The training recipe: how silos train and how the server averages. It has no effect on any record's cost.

All these settings act on what the mechanism has already released (clipped, noised, rounded), which is post-processing.
They belong to the public plan all the same: server and silos must agree on them, and repeating a run needs all of them.
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
        learning_rate: Learning rate of the local optimiser.
        decay: Factor applied to the learning rate after every round; 1 keeps it constant.
        optimiser: "sgd" or "adam". It starts afresh in every round, so silos keep no state between rounds.
        momentum: Momentum of local SGD.
        micro_batch: Larger draws are processed in pieces of at most this size, and never of more than 512. It is fixed
            so that runs repeat bit for bit.
        averaged_rounds: The result is the mean of the models after the last so many rounds, which averages out noise
            and the chance of who took part last.
        backbone: How updates become the next model: "fedavg", "fedprox", "scaffold", "fedavgm" or "fedadam".
        backbone_settings: Settings of the backbone by name; see `rpdp.federation.backbones`.
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
        # Store plain, checked Python numbers, so that equal recipes have equal fingerprints.
        assign = object.__setattr__
        assign(self, "learning_rate", require_positive("learning_rate", self.learning_rate))
        assign(self, "decay", require_fraction("decay", self.decay))
        require_choice("optimiser", self.optimiser, OPTIMISERS)
        require_choice("backbone", self.backbone, BACKBONES)
        momentum = require_number("momentum", self.momentum)
        if not 0.0 <= momentum < 1.0:
            raise InputError(f"momentum={momentum} must be at least 0 and below 1")
        if momentum and self.optimiser != "sgd":
            raise InputError(f"momentum={momentum} needs optimiser='sgd'; {self.optimiser} has its own momentum")
        assign(self, "momentum", momentum)
        for name in ("micro_batch", "averaged_rounds"):
            assign(self, name, require_count(name, getattr(self, name)))
        if not isinstance(self.backbone_settings, Mapping):
            raise InputError(f"backbone_settings={self.backbone_settings!r} must map names to numbers")
        numbers = {key: require_number(key, value) for key, value in sorted(self.backbone_settings.items())}
        assign(self, "backbone_settings", MappingProxyType(numbers))

    def rate(self, number: int) -> float:
        """The local learning rate in round `number`, counted from 1."""
        return self.learning_rate * self.decay ** (number - 1)

    def settings(self) -> dict[str, Any]:
        """All settings as plain values for JSON."""
        return {**vars(self), "backbone_settings": dict(self.backbone_settings)}
