"""The noisy step: what is released has the stated distribution, lies on the grid and is divided by a public
constant.

Statistical tests use seeded noise, so they pass or fail for good; the thresholds are for a false-alarm rate
of 1e-6.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.sampling import Secure, Seeded
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import BadRecordWarning, FlatModel, NoisyStep, Records, StepSettings, grid_spacing, make_kernel
from rpdp.training.noise_addition import BLOCK, release_

if TYPE_CHECKING:
    from numpy.typing import NDArray

FALSE_ALARM = 1e-6
SETTINGS = StepSettings(clip_norm=0.5, noise_multiplier=2.0, normaliser=16.0)


def loss(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


def some_records(count: int = 40) -> Records:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(count, 5, generator=generator)
    return Records.of(inputs, torch.randint(3, (count,), generator=generator))


def perceptron(hidden: int = 400) -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, 3))


def make_step(module: nn.Module, settings: StepSettings = SETTINGS, seed: int = 1) -> NoisyStep:
    model = FlatModel(module)
    kernel = make_kernel(model, loss, some_records())
    return NoisyStep(kernel, torch.optim.SGD([model.values], lr=0.1), settings, Seeded(seed))


def released(step: NoisyStep, drawn: NDArray[np.int64]) -> Tensor:
    step.release(some_records(), drawn)
    return gradient_of(step)


def gradient_of(step: NoisyStep) -> Tensor:
    """What was released last."""
    gradient = step.kernel.model.values.grad
    assert gradient is not None
    return gradient.clone()


def p_value(values: Tensor, std: float) -> float:
    """That the values are N(0, std²): the smaller of a Kolmogorov–Smirnov and a variance test."""
    scaled = values.double().numpy() / std
    count = len(scaled)
    shape = float(stats.kstest(scaled, "norm").pvalue)
    chi = float(stats.chi2.cdf((scaled**2).sum(), count))
    return min(shape, 2 * min(chi, 1 - chi))


@pytest.mark.parametrize("count", [0, 1, 30])
def test_release_is_the_clipped_sum_plus_noise_over_the_normaliser(count: int) -> None:
    step, drawn = make_step(perceptron()), np.arange(count)
    exact = step.kernel.clipped_sum(some_records().select(drawn), SETTINGS.clip_norm).total
    noise = released(step, drawn) - exact / SETTINGS.normaliser
    std = SETTINGS.noise_std / SETTINGS.normaliser
    assert p_value(noise, std) > FALSE_ALARM
    assert p_value(noise, 0.9 * std) < FALSE_ALARM
    assert p_value(noise, 1.1 * std) < FALSE_ALARM
    # A normaliser that follows the batch size would show as another deviation.
    assert p_value(noise, SETTINGS.noise_std / (count + 1)) < FALSE_ALARM


def test_noise_is_fresh_in_every_step_and_repeats_with_the_seed() -> None:
    nothing = np.arange(0)
    step = make_step(perceptron())
    first, second = released(step, nothing), released(step, nothing)
    assert not torch.equal(first, second)
    assert torch.equal(first, released(make_step(perceptron()), nothing))
    assert not torch.equal(first, released(make_step(perceptron(), seed=2), nothing))


@pytest.mark.parametrize("std", [1.0, 0.37, 1e-5, 3e4])
def test_the_noisy_sum_lies_on_a_public_power_of_two_grid(std: float) -> None:
    spacing = grid_spacing(std)
    assert math.log2(spacing).is_integer()
    assert std * 2.0**-21 < spacing <= std * 2.0**-20
    total = torch.linspace(-std, std, 1000, dtype=torch.float64)
    release_(total, std, 1.0, Seeded(5))
    assert torch.equal(total, (total / spacing).round() * spacing)
    off_grid = total + spacing / 3
    assert not torch.equal(off_grid, (off_grid / spacing).round() * spacing)


def test_blocks_have_independent_noise() -> None:
    total = torch.zeros(2 * BLOCK + 5)
    release_(total, 1.0, 1.0, Seeded(6))
    one, two = total[:BLOCK], total[BLOCK : 2 * BLOCK]
    assert p_value(total, 1.0) > FALSE_ALARM
    assert abs(float((one * two).mean())) < 5 / math.sqrt(BLOCK)  # false alarm 6e-7


@pytest.mark.parametrize("size", [1, 7, 30])
def test_micro_batches_give_the_same_release(size: int) -> None:
    small = StepSettings(SETTINGS.clip_norm, SETTINGS.noise_multiplier, SETTINGS.normaliser, micro_batch=size)
    drawn = np.arange(30)
    whole = released(make_step(perceptron()), drawn)
    pieces = released(make_step(perceptron(), small), drawn)
    assert torch.allclose(pieces, whole, rtol=0, atol=4 * grid_spacing(SETTINGS.noise_std))


def test_the_optimiser_moves_the_model_by_the_release() -> None:
    step = make_step(perceptron())
    before = step.kernel.model.values.detach().clone()
    diagnostics = step(some_records(), np.arange(9))
    release = step.kernel.model.values.grad
    assert release is not None
    assert torch.allclose(step.kernel.model.values.detach(), before - 0.1 * release, rtol=1e-6, atol=1e-7)
    first = next(step.kernel.model.module.parameters()).detach().reshape(-1)
    assert torch.equal(first, step.kernel.model.values.detach()[: len(first)])
    assert diagnostics.count == 9
    assert diagnostics.norms.shape == (9,)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_any_optimiser_learns(kind: type[torch.optim.Optimizer]) -> None:
    records = some_records()
    records = Records(records.inputs, (records.inputs[0][:, 0] > 0).long())
    model = FlatModel(perceptron(hidden=10))
    kernel = make_kernel(model, loss, records)
    optimiser = kind([model.values], lr=0.05)  # type: ignore[call-arg]
    step = NoisyStep(kernel, optimiser, StepSettings(1.0, 0.2, 20.0), Seeded(0))
    before = float(kernel.record_losses(records).detach().mean())
    for _ in range(30):
        step(records, np.arange(len(records)))
    assert float(kernel.record_losses(records).detach().mean()) < 0.8 * before


def test_a_damaged_record_contributes_zero_and_nothing_else_changes() -> None:
    step = make_step(perceptron())
    records = some_records()
    damaged = records.inputs[0].clone()
    damaged[4] = float("nan")
    step.release(Records.of(damaged, records.targets), np.arange(8))
    found = gradient_of(step)
    expected = released(make_step(perceptron()), np.array([0, 1, 2, 3, 5, 6, 7]))
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_non_finite_model_releases_nothing() -> None:
    step = make_step(perceptron())
    step.kernel.model.values.data[3] = float("inf")
    with pytest.raises(PrivacyRefusal, match="NaN or infinite parameter"):
        step(some_records(), np.arange(3))
    assert step.kernel.model.values.grad is None


def test_secure_randomness_is_no_simulation() -> None:
    model = FlatModel(perceptron())
    kernel = make_kernel(model, loss, some_records())
    step = NoisyStep(kernel, torch.optim.SGD([model.values], lr=0.1), SETTINGS, Secure())
    assert not step.is_simulation
    assert make_step(perceptron()).is_simulation
    assert p_value(released(step, np.arange(0)), SETTINGS.noise_std / SETTINGS.normaliser) > FALSE_ALARM


@pytest.mark.parametrize(
    ("name", "value"),
    [("noise_multiplier", 0.0), ("noise_multiplier", math.nan), ("normaliser", -1.0), ("clip_norm", 0.0)],
)
def test_wrong_settings_are_named(name: str, value: float) -> None:
    good: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 1.0, "normaliser": 1.0}
    with pytest.raises(InputError, match=f"{name}={value} must be positive"):
        StepSettings(**{**good, name: value})
    with pytest.raises(InputError, match="micro_batch=0"):
        StepSettings(1.0, 1.0, 1.0, micro_batch=0)


def test_an_optimiser_of_other_tensors_is_refused() -> None:
    step = make_step(perceptron())
    other = torch.optim.SGD(step.kernel.model.module.parameters(), lr=0.1)
    with pytest.raises(InputError, match=r"exactly \[model.values\]"):
        NoisyStep(step.kernel, other, SETTINGS, Seeded(0))


# Records that model or loss cannot take


class Failing:
    """A loss that raises when a label is out of range, as cross entropy does."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        if (targets > 1).any():
            raise self.error
        return binary_loss(output, targets)


TARGETS = torch.arange(12) % 2
BAD = 9
"""The position of the record that the loss fails on."""
DAMAGED = torch.where(torch.arange(12) == BAD, 7, TARGETS)

ERRORS = [
    IndexError("Target 7 is out of bounds."),
    ValueError("memory of this patient: not enough memory"),
    ValueError("DefaultCPUAllocator: not enough memory"),
    RuntimeError("out of memory: the memory score of this patient is missing"),
    RuntimeError("can't allocate memory clinic to patient 7"),
    RuntimeError("CUDA error in the notes of this patient; defaultcpuallocator: not enough memory"),
    OSError(12, "Cannot allocate memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    MemoryError(),
    RecursionError(),
    torch.OutOfMemoryError("CUDA out of memory"),
    PrivacyRefusal("not this one"),
]
in_one_go_and_in_pieces = pytest.mark.parametrize("micro_batch", [100, 4])


def step_on(labels: Tensor, error: Exception, micro_batch: int) -> tuple[NoisyStep, Records]:
    """A step with hardly any noise, always from the same model."""
    records = Records.of(torch.randn(12, 3, generator=torch.Generator().manual_seed(1)), labels)
    model = FlatModel(nn.Linear(3, 1))
    with torch.no_grad():
        model.values.zero_()
    kernel = make_kernel(model, Failing(error), records)
    settings = StepSettings(1.0, 1e-3, 1.0, micro_batch)
    return NoisyStep(kernel, torch.optim.SGD([model.values], lr=1.0), settings, Seeded(3)), records


def released_without_damage(drawn: NDArray[np.int64], micro_batch: int) -> Tensor:
    step, records = step_on(TARGETS, ValueError(), micro_batch)
    step.release(records, drawn)
    return gradient_of(step)


def farthest(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


@in_one_go_and_in_pieces
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_record_that_makes_the_loss_fail_contributes_zero(error: Exception, micro_batch: int) -> None:
    """The release is that of the other records, with the same noise; stopping would tell that it was drawn.

    So it must be whatever the error is and says: a record may cause any of them, a lack of memory included.
    """
    step, records = step_on(DAMAGED, error, micro_batch)
    with pytest.warns(BadRecordWarning):
        seen = step.release(records, np.arange(12))
    assert (seen.count, seen.norms.isnan().nonzero().flatten().tolist()) == (12, [BAD])
    expected = released_without_damage(np.delete(np.arange(12), BAD), micro_batch)
    assert farthest(gradient_of(step), expected) < 0.01  # ten standard deviations of the noise, a hundredth of L
    counted = released_without_damage(np.arange(12), micro_batch)
    assert farthest(counted, expected) > 0.1  # the control: a record that counts is seen


class Counting(Failing):
    """Fails on labels above 1, and counts its calls by the number of records."""

    def __init__(self) -> None:
        super().__init__(MemoryError())
        self.calls: list[int] = []

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        self.calls.append(len(targets))
        return super().__call__(output, targets)


def counted_step(labels: Tensor, failed: set[int] | None = None) -> tuple[NoisyStep, Counting, Records]:
    records = Records.of(torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(1)), labels)
    model, loss = FlatModel(nn.Linear(3, 1)), Counting()
    kernel = make_kernel(model, loss, records)
    loss.calls.clear()
    step = NoisyStep(kernel, torch.optim.SGD([model.values], lr=1.0), SETTINGS, Seeded(3), failed)
    return step, loss, records


@pytest.mark.parametrize(
    ("bad", "most_calls", "most_rows"),
    [([], 1, 64), ([17], 13, 3 * 64), (list(range(64)), 127, 7 * 64)],
    ids=["nobody", "one", "everybody"],
)
def test_what_failing_records_cost_a_step_is_bounded(bad: list[int], most_calls: int, most_rows: int) -> None:
    """Halving finds one record of 64 in 12 more calls, where trying them one by one takes 64; all of them in 126."""
    labels = torch.zeros(64, dtype=torch.int64)
    labels[bad] = 7
    step, loss, records = counted_step(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadRecordWarning)
        step.release(records, np.arange(64))
    assert len(loss.calls) <= most_calls
    assert sum(loss.calls) <= most_rows


def test_a_record_that_failed_is_not_tried_again_in_the_round() -> None:
    """Else a record could cost as much in each local step, and a round more than `release_after` allows for."""
    labels = torch.zeros(64, dtype=torch.int64)
    labels[[3, 17]] = 7
    failed: set[int] = set()
    step, loss, records = counted_step(labels, failed)
    with pytest.warns(BadRecordWarning):
        first = step.release(records, np.arange(64))
    assert failed == {3, 17}
    loss.calls.clear()
    again = NoisyStep(step.kernel, torch.optim.SGD([step.kernel.model.values], lr=1.0), SETTINGS, Seeded(4), failed)
    seen = again.release(records, np.arange(64))
    assert loss.calls == [62]
    assert seen.count == 64
    assert seen.norms.isnan().nonzero().flatten().tolist() == [3, 17]
    assert torch.allclose(seen.norms, first.norms, equal_nan=True)


def test_a_batch_that_is_too_large_for_the_memory_loses_no_record() -> None:
    """A lack of memory with everybody in it, and none with fewer: all contribute."""

    def greedy(output: Tensor, targets: Tensor) -> Tensor:
        if len(targets) > 4:
            raise MemoryError
        return binary_loss(output, targets)

    step, records = step_on(TARGETS, ValueError(), 100)
    step.kernel.loss = greedy
    seen = step.release(records, np.arange(12))  # and no warning
    assert not seen.norms.isnan().any()
    assert farthest(gradient_of(step), released_without_damage(np.arange(12), 100)) < 0.01
