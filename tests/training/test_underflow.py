"""Gradients made of tiny and huge factors, whose squares vanish in float32 although the gradient is long: finite
weights can be crafted like that. No record may then add more than the clip norm."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from rpdp.errors import InputError
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import SMALLEST_CLIP_NORM, FlatModel, Records, make_kernel
from rpdp.training import affine_kernel as affine
from rpdp.training.ghost import parameter_uses as uses

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = 4
CLIP_NORMS = (1.0, 0.1, 1e-2, 1e-4, 1e-7, SMALLEST_CLIP_NORM)


class Averaged(nn.Module):
    """A linear layer at several positions: its norms come from Gram matrices."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, units)
        self.second = nn.Linear(units, units)
        self.last = nn.Linear(units, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.second(self.first(inputs).relu()).relu()
        output: Tensor = self.last(hidden.mean(1))
        return output


def linear(sure: float, huge: float) -> nn.Module:
    layer = nn.Linear(FEATURES, 1)
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, sure)
    return layer


def deep(sure: float, huge: float, units: int = 64) -> nn.Module:
    model = nn.Sequential(
        nn.Linear(FEATURES, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 1)
    )
    _craft(model[0], model[2], model[4], sure, huge)  # type: ignore[arg-type]
    return model


def positions(sure: float, huge: float, units: int = 128) -> nn.Module:
    model = Averaged(units)
    _craft(model.first, model.second, model.last, sure, huge)
    return model


def _craft(first: nn.Linear, second: nn.Linear, last: nn.Linear, sure: float, huge: float) -> None:
    """Huge activations, and a model so sure of the record that the gradient of its output is tiny."""
    for value in (*first.parameters(), *second.parameters(), *last.parameters()):
        nn.init.zeros_(value)
    nn.init.constant_(first.weight, huge / FEATURES / len(first.bias) ** 0.5)
    nn.init.constant_(second.bias, 1e-6)
    nn.init.constant_(last.weight, 1e-3)
    nn.init.constant_(last.bias, sure)


MODELS = {
    "one linear layer": (linear, (1, FEATURES)),
    "deep": (deep, (1, FEATURES)),
    "Gram": (positions, (1, 3, FEATURES)),
}


def largest_share(model: Callable[[float, float], nn.Module], shape: tuple[int, ...]) -> float:
    """The most that a record adds, in clip norms, over crafted models."""
    record = Records.of(torch.ones(shape), torch.zeros(1, dtype=torch.int64))
    worst = 0.0
    for sure, huge in itertools.product(range(-100, -40, 6), (1e16, 1e17, 1e18, 3e18)):
        kernel = make_kernel(FlatModel(model(sure, huge)), binary_loss, record)
        for clip_norm in CLIP_NORMS:
            total = kernel.clipped_sum(record, clip_norm).total
            worst = max(worst, float(total.double().norm()) / clip_norm)
    return worst


@pytest.mark.parametrize("name", list(MODELS))
def test_no_record_adds_more_than_the_clip_norm(name: str) -> None:
    assert largest_share(*MODELS[name]) <= 1.0


def test_without_making_up_for_lost_squares_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    for module in (affine, uses):
        monkeypatch.setattr(module, "lost_squares", lambda values, terms: 0.0)
    assert largest_share(*MODELS["deep"]) > 10.0
    assert largest_share(*MODELS["Gram"]) > 10.0


def test_smaller_clip_norms_are_refused() -> None:
    record = Records.of(torch.ones(1, FEATURES), torch.zeros(1, dtype=torch.int64))
    kernel = make_kernel(FlatModel(linear(0.0, 0.0)), binary_loss, record)
    with pytest.raises(InputError, match="clip_norm=1e-11 must be at least 1e-10"):
        kernel.clipped_sum(record, 1e-11)
