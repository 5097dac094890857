"""Federated optimisers once more, in plain numpy and from the papers: what the backbones are compared with.

Each takes the gradients that silos released and nothing else, so agreement also shows that nothing else is used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Reference:
    """FedAvg: local SGD on released gradients, weighted mean of the silos' models."""

    def __init__(self, size: int, weights: dict[str, float], learning_rate: float) -> None:
        self.model: Vector = np.zeros(size)
        self.weights = weights
        self.rate = learning_rate

    def local(self, silo: str, releases: list[Vector]) -> Vector:
        """The silo's model after the round."""
        own = self.model.copy()
        for release in releases:
            own = own - self.rate * self.gradient(silo, release, own)
        return own

    def gradient(self, silo: str, release: Vector, own: Vector) -> Vector:
        return release

    def mean(self, models: dict[str, Vector]) -> Vector:
        total = sum(self.weights[silo] for silo in models)
        return np.asarray(sum(self.weights[silo] * model for silo, model in models.items()) / total)

    def round(self, releases: dict[str, list[Vector]]) -> None:
        models = {silo: self.local(silo, each) for silo, each in releases.items()}
        self.after(models, {silo: len(each) for silo, each in releases.items()})

    def after(self, models: dict[str, Vector], steps: dict[str, int]) -> None:
        self.model = self.mean(models)


class ProximalReference(Reference):
    """FedProx (Li et al. 2020, equation 2): each silo minimises F(w) + μ/2 |w − w_t|²."""

    strength = 0.3

    def gradient(self, silo: str, release: Vector, own: Vector) -> Vector:
        return release + self.strength * (own - self.model)


class ScaffoldReference(Reference):
    """SCAFFOLD (Karimireddy et al. 2020, Algorithm 1 with option II and global step size 1)."""

    def __init__(self, size: int, weights: dict[str, float], learning_rate: float) -> None:
        super().__init__(size, weights, learning_rate)
        self.common: Vector = np.zeros(size)
        self.own: dict[str, Vector] = {silo: np.zeros(size) for silo in weights}

    def gradient(self, silo: str, release: Vector, own: Vector) -> Vector:
        return release - self.own[silo] + self.common

    def after(self, models: dict[str, Vector], steps: dict[str, int]) -> None:
        renewed = {
            silo: self.own[silo] - self.common + (self.model - model) / (steps[silo] * self.rate)
            for silo, model in models.items()
        }
        change = sum(renewed[silo] - self.own[silo] for silo in renewed)
        self.common = self.common + change / len(self.own)
        self.own |= renewed
        self.model = self.mean(models)


class MomentumReference(Reference):
    """FedAvgM (Hsu et al. 2019): v ← βv + Δ, w ← w − γv, with Δ = w − mean of the silos' models."""

    rate_of_server, momentum = 0.7, 0.8
    velocity: Vector | float = 0.0

    def after(self, models: dict[str, Vector], steps: dict[str, int]) -> None:
        self.velocity = self.momentum * self.velocity + (self.model - self.mean(models))
        self.model = self.model - self.rate_of_server * self.velocity


class AdamReference(Reference):
    """FedAdam (Reddi et al. 2021, Algorithm 2): without bias correction, τ added to the root."""

    rate_of_server, first_decay, second_decay, adaptivity = 0.2, 0.6, 0.9, 1e-2
    first: Vector | float = 0.0
    second: Vector | float = 0.0

    def after(self, models: dict[str, Vector], steps: dict[str, int]) -> None:
        change = self.mean(models) - self.model
        self.first = self.first_decay * self.first + (1 - self.first_decay) * change
        self.second = self.second_decay * self.second + (1 - self.second_decay) * change**2
        self.model = self.model + self.rate_of_server * self.first / (np.sqrt(self.second) + self.adaptivity)


REFERENCES: dict[str, type[Reference]] = {
    "fedavg": Reference,
    "fedprox": ProximalReference,
    "scaffold": ScaffoldReference,
    "fedavgm": MomentumReference,
    "fedadam": AdamReference,
}

SETTINGS: dict[str, dict[str, float]] = {
    "fedavg": {},
    "fedprox": {"proximal": ProximalReference.strength},
    "scaffold": {},
    "fedavgm": {
        "server_learning_rate": MomentumReference.rate_of_server,
        "server_momentum": MomentumReference.momentum,
    },
    "fedadam": {
        "server_learning_rate": AdamReference.rate_of_server,
        "server_momentum": AdamReference.first_decay,
        "server_decay": AdamReference.second_decay,
        "adaptivity": AdamReference.adaptivity,
    },
}
