"""Models for tables: linear, or with hidden layers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from torch import nn

from rpdp.errors import InputError
from rpdp.tasks.models.initialisation import initialised_from

if TYPE_CHECKING:
    from collections.abc import Sequence


def zero_linear(features: int, outputs: int) -> nn.Linear:
    """A linear model with bias that starts at zero.

    >>> zero_linear(13, 3)
    Linear(in_features=13, out_features=3, bias=True)
    """
    if features < 1 or outputs < 1:
        raise InputError(f"features={features} and outputs={outputs} must be at least 1")
    model = nn.Linear(features, outputs)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def perceptron(features: int, hidden: Sequence[int], outputs: int, *, seed: int = 0) -> nn.Sequential:
    """Layers of tanh units, whose bounded values suit clipping, and a linear layer that starts at zero."""
    layers: list[nn.Module] = []
    with initialised_from(seed):
        for before, width in itertools.pairwise((features, *hidden)):
            layers += [nn.Linear(before, width), nn.Tanh()]
    return nn.Sequential(*layers, zero_linear((features, *hidden)[-1], outputs))
