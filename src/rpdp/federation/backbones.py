"""Backbones: how the updates of a round become the next model. All of them act on released updates only.

The paper says that its scheme carries over to other federated optimisers. It does, because a backbone here sees only
what silos released: the term of FedProx and the correction of SCAFFOLD are added to gradients after clipping and noise,
and the server computes SCAFFOLD's control variates from updates. No backbone touches the data, so none changes a cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch

from rpdp.checks import require_choice, require_number
from rpdp.display import counts_repr
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rpdp.planning import Recipe


@dataclass(frozen=True)
class Weighted:
    """A released change of the model with the public weight of its silo."""

    silo: str
    weight: float
    change: Tensor

    __repr__ = counts_repr


def weighted_mean(changes: list[Weighted]) -> Tensor:
    """Return Σ weight · change / Σ weight, computed in float64 and in the given order."""
    total = torch.zeros_like(changes[0].change, dtype=torch.float64)
    for one in changes:
        total.add_(one.change, alpha=one.weight)
    return total.div_(sum(one.weight for one in changes))


class Backbone(ABC):
    """The server side of a federated optimiser, with its state.

    Subclasses are dataclasses whose fields are the `backbone_settings` of a recipe.
    """

    proximal: float = 0.0
    """The μ of FedProx, which silos apply."""

    def __post_init__(self) -> None:
        self.state: dict[str, Tensor] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = require_number(field.name, getattr(self, field.name))
            if value < 0.0:
                raise InputError(f"{field.name}={value} must not be negative")

    def correction(self, silo: str) -> Tensor | None:
        """Return what a silo adds to each released gradient in the next round."""
        return None

    @abstractmethod
    def step(self, values: Tensor, changes: list[Weighted]) -> Tensor:
        """Return the next model, given at least one change, in the order of the silos' names."""


@dataclass
class FedAvg(Backbone):
    """The weighted mean of the silos' models (McMahan et al. 2017); the paper's backbone."""

    def step(self, values: Tensor, changes: list[Weighted]) -> Tensor:
        """Add the mean change."""
        return values + weighted_mean(changes).to(values.dtype)


@dataclass
class FedProx(FedAvg):
    """FedAvg with a term of strength μ that pulls silos back to the round's model (Li et al. 2020)."""

    proximal: float = 0.01


@dataclass
class Scaffold(FedAvg):
    """FedAvg with control variates (Karimireddy et al. 2020, option II), each computed from released updates.

    c_i ← c_i − c + (x − y_i)/(τη), and c ← the mean over all silos; a silo adds c − c_i to its gradients. The server
    holds all control variates, so silos need no state.
    """

    def prepare(self, silos: list[str], local_steps: int, learning_rate: float) -> None:
        """Set the silos of the federation and the length τη of a round."""
        self._silos = silos
        self._length = local_steps * learning_rate

    def correction(self, silo: str) -> Tensor | None:
        """Return c − c_i, the difference of global and own control variate; None before the first update."""
        if "mean" not in self.state:
            return None
        own = self.state.get(f"silo {silo}")
        return self.state["mean"].clone() if own is None else self.state["mean"] - own

    def step(self, values: Tensor, changes: list[Weighted]) -> Tensor:
        """Update the control variates of the silos that took part, then average."""
        mean = self.state.get("mean", torch.zeros_like(values))
        renewed = mean.clone()
        for one in changes:
            own = self.state.get(f"silo {one.silo}", torch.zeros_like(values))
            fresh = own - mean - one.change / self._length
            renewed.add_((fresh - own) / len(self._silos))
            self.state[f"silo {one.silo}"] = fresh
        self.state["mean"] = renewed
        return super().step(values, changes)


@dataclass
class FedAvgM(Backbone):
    """Server momentum on the mean change (Hsu et al. 2019)."""

    server_learning_rate: float = 1.0
    server_momentum: float = 0.9

    def step(self, values: Tensor, changes: list[Weighted]) -> Tensor:
        """Move along the running sum of mean changes."""
        velocity = self.state.get("velocity", torch.zeros_like(values))
        self.state["velocity"] = velocity * self.server_momentum + weighted_mean(changes).to(values.dtype)
        return values + self.server_learning_rate * self.state["velocity"]


@dataclass
class FedAdam(Backbone):
    """Adam at the server on the mean change (Reddi et al. 2021)."""

    server_learning_rate: float = 0.01
    server_momentum: float = 0.9
    server_decay: float = 0.99
    adaptivity: float = 1e-3

    def step(self, values: Tensor, changes: list[Weighted]) -> Tensor:
        """Move along the first moment, scaled by the second."""
        change = weighted_mean(changes).to(values.dtype)
        first = self.state.get("first", torch.zeros_like(values))
        second = self.state.get("second", torch.zeros_like(values))
        self.state["first"] = self.server_momentum * first + (1 - self.server_momentum) * change
        self.state["second"] = self.server_decay * second + (1 - self.server_decay) * change.square()
        scale = self.state["second"].sqrt() + self.adaptivity
        return values + self.server_learning_rate * self.state["first"] / scale


_BACKBONES: Mapping[str, type[Backbone]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
}


def proximal_strength(recipe: Recipe) -> float:
    """Return the μ of FedProx that silos apply; 0 for the other backbones."""
    default = _BACKBONES[recipe.backbone].proximal
    return recipe.backbone_settings.get("proximal", default)


def make_backbone(recipe: Recipe, silos: list[str], local_steps: int) -> Backbone:
    """Return the backbone that a recipe names, with its settings."""
    chosen = _BACKBONES[recipe.backbone]
    known = [field.name for field in fields(chosen)]  # type: ignore[arg-type]
    for name in recipe.backbone_settings:
        if not known:
            raise InputError(f"backbone_settings: {recipe.backbone} has no settings, so {name!r} must be removed")
        require_choice(f"setting of {recipe.backbone}", name, known)
    made = chosen(**recipe.backbone_settings)
    if isinstance(made, Scaffold):
        if recipe.optimiser != "sgd" or recipe.momentum or recipe.decay != 1.0:
            raise InputError(
                "backbone scaffold needs local SGD without momentum and decay: its control variates assume it"
            )
        made.prepare(silos, local_steps, recipe.learning_rate)
    return made
