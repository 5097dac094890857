"""One suite that every kernel passes: the clipped sum is that of one record at a time, and bounded by L per
record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.errors import InputError
from rpdp.training import (
    CLIP_SLACK,
    FlatModel,
    GhostKernel,
    Records,
    UnsupportedModelError,
)
from tests.training.conftest import EXAMPLES

if TYPE_CHECKING:
    from tests.training.conftest import Case, Example

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


def gradients(model: FlatModel, records: Records) -> Tensor:
    """Per-record gradients by definition: (records, parameters)."""
    rows = [torch.zeros(0, len(model), dtype=model.values.dtype)]
    for row in range(len(records)):
        record = records.rows(row, row + 1)
        loss = cross_entropy(model.module(*record.inputs), record.targets).sum()
        parts = torch.autograd.grad(loss, model.parameters, materialize_grads=True, allow_unused=True)
        rows.append(torch.cat([part.reshape(-1) for part in parts]).unsqueeze(0))
    return torch.cat(rows)


def clipped_sum(rows: Tensor, clip_norm: float) -> Tensor:
    bound = clip_norm * (1 - CLIP_SLACK)
    factors: Tensor = (bound / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)
    return (rows * factors).sum(0)


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp(min=1e-30))


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_sum_is_that_of_one_record_at_a_time(dtype: torch.dtype, case: Case) -> None:
    example = case.example
    model = example.model(dtype)
    for count, seed in ((7, 1), (1, 2), (2, 3)):
        records = example.records(count, dtype, seed)
        rows = gradients(model, records)
        middle = float(rows.norm(dim=1).median())  # some records are clipped, some are not
        for clip_norm in (middle, middle / 100, middle * 100):
            found = case.kernel(model).clipped_sum(records, clip_norm)
            assert distance(found.total, clipped_sum(rows, clip_norm)) < TOLERANCES[dtype]
            assert distance(found.norms, rows.norm(dim=1)) < TOLERANCES[dtype]
            assert found.count == count


WITHOUT_CLOSED_FORM = {"odd layers": 3, "positions for all records": 1, "positions for all records, one row": 1}
"""How many layers run a second time; all other examples have closed forms only."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_closed_forms_are_used_where_there_are_some(name: str) -> None:
    example = EXAMPLES[name]
    kernel = GhostKernel.fitted(example.model(), cross_entropy, example.records(2, torch.float64))
    assert len(kernel.odd_layers) == WITHOUT_CLOSED_FORM.get(name, 0)


def test_no_records_add_nothing(case: Case) -> None:
    model, records = case.example.model(), case.example.records(0, torch.float64)
    found = case.kernel(model).clipped_sum(records, 1.0)
    assert found.count == 0
    assert found.norms.shape == (0,)
    assert torch.equal(found.total, torch.zeros(len(model), dtype=torch.float64))


def test_adding_a_record_with_a_huge_gradient_moves_the_sum_by_at_most_the_clip_norm(
    small_case: Case,
) -> None:
    example = small_case.example
    model, records = example.model(torch.float32), example.records(6, torch.float32)
    clip_norm = float(gradients(model, records).norm(dim=1).min()) * 1e-6
    kernel = small_case.kernel(model)
    base = kernel.clipped_sum(records.rows(0, 5), clip_norm).total.double()
    moved = float((kernel.clipped_sum(records, clip_norm).total.double() - base).norm())
    assert clip_norm * (1 - 1.5 * CLIP_SLACK) < moved <= clip_norm


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "cells"])
def test_one_more_sequence_moves_the_sum_by_at_most_the_clip_norm(name: str) -> None:
    """Saturated gates give gradients that cancel or vanish; no record adds more than L, and none is NaN."""
    example = EXAMPLES[name]
    model, records = example.model(torch.float32), example.records(6, torch.float32)
    kernel = GhostKernel(model, cross_entropy)
    for size in (1.0, 30.0, 1e30):
        grown = Records((records.inputs[0] * size,), records.targets)
        clip_norm = max(1e-6 * float(kernel.clipped_sum(grown, 1.0).norms.nan_to_num().max()), 1e-9)
        moved = kernel.clipped_sum(grown, clip_norm).total.double()
        moved -= kernel.clipped_sum(grown.rows(0, 5), clip_norm).total.double()
        assert float(moved.norm()) <= clip_norm


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_a_record_without_finite_gradient_contributes_exactly_zero(bad: float, small_case: Case) -> None:
    example = small_case.example
    records, model = example.records(5, torch.float32), example.model(torch.float32)
    if not records.inputs[0].is_floating_point():
        return  # token numbers are always finite
    damaged = records.inputs[0].clone()
    damaged[2] = bad
    kernel = small_case.kernel(model)
    with_bad = kernel.clipped_sum(Records((damaged, *records.inputs[1:]), records.targets), 0.5)
    assert not torch.isfinite(with_bad.norms[2])
    without = kernel.clipped_sum(records.select([0, 1, 3, 4]), 0.5)
    assert torch.isfinite(with_bad.total).all()
    assert distance(with_bad.total, without.total) < 1e-5
    assert with_bad.count == 5


def test_wrong_losses_are_refused_with_advice(small_case: Case) -> None:
    records, model = small_case.example.records(4, torch.float64), small_case.example.model()
    kind = small_case.kind
    with pytest.raises(InputError, match=r"scalar.*reduction='none'"):
        kind(model, lambda output, targets: F.cross_entropy(output, targets)).clipped_sum(records, 1.0)
    with pytest.raises(InputError, match=r"one value per\s+record"):
        kind(model, lambda output, targets: output).clipped_sum(records, 1.0)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), float("inf")])
def test_wrong_clip_norms_are_named(clip_norm: float, small_case: Case) -> None:
    kernel = small_case.kernel(small_case.example.model())
    with pytest.raises(InputError, match=f"clip_norm={clip_norm}"):
        kernel.clipped_sum(small_case.example.records(1, torch.float64), clip_norm)


def test_inputs_and_targets_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match=r"\[3\] rows of input, 4 targets"):
        Records.of(torch.zeros(3, 2), torch.zeros(4))


def test_hooks_and_replaced_forwards_are_gone_after_a_step(example: Example) -> None:
    model, records = example.model(), example.records(3, torch.float64)
    GhostKernel.fitted(model, cross_entropy, example.records(2, torch.float64)).clipped_sum(records, 1.0)
    for module in model.module.modules():
        assert not module._forward_hooks
        assert "forward" not in module.__dict__


class Functional(nn.Linear):
    """A subclass may do anything: no closed form."""

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values) * 2


class Reused(nn.Module):
    """A weight that is also used outside its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, values: Tensor) -> Tensor:
        return F.linear(self.layer(values), self.layer.weight)


def test_weights_used_behind_the_layers_back_are_noticed() -> None:
    records = Records.of(torch.randn(4, 3), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(UnsupportedModelError, match=r"layer\.weight is used 2 times in the graph and 1 times"):
        GhostKernel(FlatModel(Reused()), cross_entropy).clipped_sum(records, 1.0)
    with pytest.raises(UnsupportedModelError, match="no layer has a closed form"):
        GhostKernel(FlatModel(Functional(3, 3)), cross_entropy)


def test_an_input_changed_in_place_is_noticed() -> None:
    class Overwrites(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.layer.weight.requires_grad_(False)

        def forward(self, values: Tensor) -> Tensor:
            copy = values.clone()
            output: Tensor = self.layer(copy)
            copy.mul_(2)
            return output

    records = Records.of(torch.randn(4, 3), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(InputError, match="changed in place"):
        GhostKernel(FlatModel(Overwrites()), cross_entropy).clipped_sum(records, 1.0)


def test_replaced_parameters_are_noticed(small_case: Case) -> None:
    model = small_case.example.model()
    FlatModel(model.module)
    with pytest.raises(InputError, match="second FlatModel"):
        small_case.kernel(model).clipped_sum(small_case.example.records(1, torch.float64), 1.0)
