"""Planting canaries: what each one adds to a clipped sum, in every kind of model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from rpdp.audit import Canaries, plant
from rpdp.errors import InputError
from rpdp.sampling import Seeded
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import CLIP_SLACK, FlatModel, Kernel, Records, SlowKernelWarning, make_kernel
from tests.federation.world import make_model, make_records

if TYPE_CHECKING:
    from collections.abc import Callable

CLIP_NORM = 0.7
ADDED = CLIP_NORM * (1 - CLIP_SLACK)


def base_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))


def odd_model() -> nn.Module:
    """With a layer that has no closed form."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.PReLU(), nn.Linear(6, 1))


def flipped(per_group: int = 100) -> Canaries:
    return Canaries.flip((1.0, 5.0), per_group, Seeded(1))


class Garden:
    """Canaries in a model beside twelve ordinary records, and the kernel that trains it."""

    def __init__(self, model: nn.Module | None, records: Records | None = None) -> None:
        self.canaries = flipped()
        ordinary = make_records(12) if records is None else records
        given = (None, None, None) if model is None else (model, binary_loss, ordinary)
        self.planted = plant(self.canaries, CLIP_NORM, *given)
        self.model = FlatModel(self.planted.model)
        self.kernel: Kernel = make_kernel(self.model, self.planted.loss, self.planted.records)

    def sums(self, rows: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The clipped sum of some records on the canaries' coordinates, and on all others."""
        total = self.kernel.clipped_sum(self.planted.records.select(rows), CLIP_NORM).total
        rest = total.clone()
        rest[self.planted.where] = 0.0
        return self.planted.observed(total), rest.numpy()


@pytest.mark.parametrize(
    ("make", "kernel"),
    [(make_model, "affine"), (base_model, "ghost"), pytest.param(odd_model, "ghost")],
)
@pytest.mark.filterwarnings("ignore::rpdp.training.SlowKernelWarning")
def test_a_canary_adds_the_clip_norm_to_its_own_coordinate_alone(make: Callable[[], nn.Module], kernel: str) -> None:
    garden = Garden(make())
    assert garden.kernel.name == kernel
    ordinary = make_kernel(FlatModel(make()), binary_loss, make_records(12)).clipped_sum(
        make_records(12).select([0, 5]), CLIP_NORM
    )
    own, rest = garden.sums([0, 5])
    assert not own.any()
    assert np.allclose(np.sort(rest[rest != 0.0]), np.sort(ordinary.total[ordinary.total != 0.0].numpy()), atol=1e-6)
    found, others = garden.sums([0, 5, 12, 15, 20])
    wanted = np.zeros(len(garden.canaries))
    wanted[garden.canaries.members[[0, 3, 8]]] = ADDED
    assert np.abs(found - wanted).max() < 2e-6
    assert np.abs(others - rest).max() <= 3.1e-3 * CLIP_NORM  # the bias of a linear model, a thousandth each


def test_canaries_alone() -> None:
    garden = Garden(None)
    assert garden.kernel.name == "ghost"
    found, rest = garden.sums(list(range(len(garden.planted.records))))
    assert np.abs(found - garden.canaries.taken * ADDED).max() < 1e-6
    assert not rest.any()


@pytest.mark.parametrize("make", [make_model, base_model])
def test_what_a_canary_adds_does_not_depend_on_the_model(make: Callable[[], nn.Module]) -> None:
    garden = Garden(make())
    before, _ = garden.sums(list(range(12, 20)))
    garden.model.values.data.add_(torch.linspace(-3, 3, len(garden.model)))
    after, _ = garden.sums(list(range(12, 20)))
    assert np.array_equal(before, after)


@pytest.mark.parametrize("make", [make_model, base_model])
def test_the_model_starts_where_the_run_starts(make: Callable[[], nn.Module]) -> None:
    """Ordinary records have the loss that they have without canaries."""
    garden, records = Garden(make()), make_records(12)
    model = garden.planted.model
    with torch.no_grad():
        found = garden.planted.loss(
            model(*garden.planted.records.rows(0, 12).inputs), garden.planted.records.targets[:12]
        )
        assert torch.allclose(found, binary_loss(make()(records.inputs[0]), records.targets))


def test_a_damaged_record_does_not_damage_canaries() -> None:
    records = make_records(12)
    records.inputs[0][0, 1] = float("nan")
    found, _ = Garden(base_model(), records).sums([0, 12])
    assert found[found > 0].tolist() == pytest.approx([ADDED])


def test_number_types_and_labels() -> None:
    """A float64 model stays one. Labels that are no classes leave a linear model to the ghost kernel."""
    doubled = Records.of(make_records(12).inputs[0].double(), make_records(12).targets)
    assert Garden(base_model().double(), doubled).model.values.dtype == torch.float64
    real = Records.of(make_records(12).inputs[0], make_records(12).targets.float())
    assert Garden(make_model(), real).kernel.name == "ghost"


def test_all_or_nothing() -> None:
    with pytest.raises(InputError, match="or none of them"):
        plant(flipped(), 1.0, base_model())


def test_a_slow_kernel_is_told() -> None:
    with pytest.warns(SlowKernelWarning, match="PReLU"):
        Garden(odd_model())
