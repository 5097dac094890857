"""What is refused before anything runs, and which kernel is chosen."""

from __future__ import annotations

import copy
import warnings
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.training import (
    AffineKernel,
    FlatModel,
    GhostKernel,
    LoopKernel,
    OneRecordAtATimeWarning,
    Records,
    SlowKernelWarning,
    VmapKernel,
    accept_one_record_at_a_time,
    check_model,
    make_kernel,
    to_groupnorm,
)
from rpdp.training import model_probe as probe
from rpdp.training.ghost import ghost_kernel

if TYPE_CHECKING:
    from collections.abc import Callable


def loss(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


def some_records(count: int = 6, *shape: int) -> Records:
    generator = torch.Generator().manual_seed(3)
    return Records.of(
        torch.randn(count, *(shape or (4,)), generator=generator),
        torch.randint(3, (count,), generator=generator),
    )


def perceptron(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), *between, nn.Linear(8, 3))


def test_batchnorm_is_refused_and_its_conversion_accepted() -> None:
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(24, 3))
    records = some_records(6, 1, 4, 4)
    with pytest.raises(PrivacyRefusal, match=r"1: BatchNorm2d.*to_groupnorm\(model\)"):
        make_kernel(FlatModel(model), loss, records)
    converted = to_groupnorm(model, groups=4)
    assert isinstance(make_kernel(FlatModel(converted), loss, records), GhostKernel)
    assert [finding.level for finding in check_model(model)] == ["refuse"]
    assert check_model(converted) == []
    assert isinstance(to_groupnorm(nn.BatchNorm1d(4)), nn.GroupNorm)


@pytest.mark.parametrize(
    ("module", "level"),
    [
        (nn.InstanceNorm1d(3, track_running_stats=True), "refuse"),
        (nn.Embedding(3, 3, max_norm=1.0), "refuse"),
        (nn.Linear(3, 3).requires_grad_(False), "note"),
    ],
)
def test_findings(module: nn.Module, level: str) -> None:
    assert [finding.level for finding in check_model(nn.Sequential(module))] == [level]


class MixesRecords(nn.Module):
    def __init__(self, amount: float) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.amount = amount

    def forward(self, values: Tensor) -> Tensor:
        logits: Tensor = self.layer(values - self.amount * values.mean(0))
        return logits


def contrast(output: Tensor, targets: Tensor) -> Tensor:
    return loss(output - output.mean(0), targets)


def in_batch_weights(output: Tensor, targets: Tensor) -> Tensor:
    return loss(output, targets) / len(targets)


@pytest.mark.parametrize("function", [contrast, in_batch_weights])
def test_a_loss_that_mixes_records_is_refused(function: Any) -> None:
    with pytest.raises(PrivacyRefusal, match="the loss of one record depends on another record"):
        make_kernel(FlatModel(perceptron(nn.Tanh())), function, some_records())


@pytest.mark.parametrize("amount", [1.0, 1e-5])
def test_a_model_that_mixes_records_is_refused_however_little(amount: float) -> None:
    with pytest.raises(PrivacyRefusal, match="depends on another record: its derivative"):
        make_kernel(FlatModel(MixesRecords(amount)), loss, some_records())


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, values: Tensor) -> Tensor:
        self.seen: Tensor
        self.seen += values.mean().detach()
        logits: Tensor = self.layer(values)
        return logits


def test_a_buffer_that_changes_is_refused() -> None:
    with pytest.raises(PrivacyRefusal, match=r"changes its buffers \['seen'\]"):
        make_kernel(FlatModel(Counts()), loss, some_records())


class Noise(nn.Module):
    """Adds numbers of its own: from torch's generator, or from elsewhere."""

    def __init__(self, numbers: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.numbers = numbers

    def forward(self, values: Tensor) -> Tensor:
        return values + self.numbers(values)


def from_numpy(values: Tensor) -> Tensor:
    return torch.from_numpy(np.random.default_rng().random(values.shape[1])).to(values)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (torch.rand_like, r"draw random numbers with aten.rand_like.* \(forward, test_model_checks.py line \d+\)"),
        (lambda values: F.gumbel_softmax(values, dim=1), "draw random numbers with aten.exponential_"),
        (from_numpy, "a generator of their own"),
    ],
)
def test_random_numbers_from_elsewhere_than_the_run_are_refused(numbers: Callable[[Tensor], Tensor], said: str) -> None:
    model, before = FlatModel(perceptron(Noise(numbers))), torch.get_rng_state()
    with pytest.raises(PrivacyRefusal, match=said):
        make_kernel(model, loss, some_records())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("draws", [True, False])
def test_the_generator_of_a_gpu_is_watched_too(monkeypatch: pytest.MonkeyPatch, draws: bool) -> None:
    """A GPU has a generator of its own; here is one that looks like it, and a model that draws from no other."""
    state, module = torch.zeros(2), nn.Linear(4, 3)

    def put_back(kept: Tensor, device: torch.device) -> None:
        state.copy_(kept)

    def losses(kernel: object, records: Records) -> Tensor:
        state.add_(float(draws))
        outputs: Tensor = module(torch.zeros(len(records), 4))
        return outputs.sum(1)

    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: state.clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", put_back)
    monkeypatch.setattr(probe, "_losses", losses)
    flat = SimpleNamespace(module=module, parameters=list(module.parameters()), device=torch.device("cuda"))
    kernel: Any = SimpleNamespace(model=flat)
    with pytest.raises(PrivacyRefusal, match="a generator of their own") if draws else nullcontext():
        probe.require_repeatable(kernel, some_records())
    assert not state.any()


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Linear(4, 3), AffineKernel),
        (perceptron(nn.ReLU(inplace=True)), GhostKernel),
        (perceptron(nn.Dropout(0.5).eval()), GhostKernel),
        (perceptron(nn.Dropout(0.0)), GhostKernel),
    ],
)
def test_fast_kernels_are_chosen_without_a_word(module: nn.Module, expected: type) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(make_kernel(FlatModel(module), loss, some_records()), expected)


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        return values * 2

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2


class UsesFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        output: Tensor = Doubles.apply(self.layer(values))  # type: ignore[no-untyped-call]
        return output


class Last(nn.Module):
    def forward(self, found: tuple[Tensor, Tensor]) -> Tensor:
        return found[0][:, -1]


class Functional(nn.Linear):
    """A subclass may do anything: no closed form."""

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values) * 2


class Stubborn(nn.Linear):
    """Python asks for a number, which vmap does not allow."""

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values) * (2.0 if values.sum().item() > 1e9 else 1.0)


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 3, batch_first=True)

    def forward(self, values: Tensor) -> Tensor:
        lengths = torch.full((len(values),), 2)
        packed = nn.utils.rnn.pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
        last: Tensor = self.layer(packed)[1][0]
        return last


class TimeFirst(nn.Module):
    """Positions before records: the second dimension counts records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        return torch.tanh(self.layer(values.transpose(0, 1))).mean(0)


class TimeMajor(TimeFirst):
    """Positions and records in one dimension, positions first: the number of rows is right, their order is not."""

    def forward(self, values: Tensor) -> Tensor:
        rows = torch.tanh(self.layer(values.transpose(0, 1).flatten(0, 1)))
        logits: Tensor = rows.reshape(values.shape[1], len(values), -1).mean(0)
        return logits


class OwnParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.layer = nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        output: Tensor = self.layer(values * self.scale)
        return output


@pytest.mark.parametrize(
    ("module", "shape", "expected", "reason"),
    [
        (OwnParameter(), (4,), GhostKernel, r"for the model \(OwnParameter: scale\)"),
        (perceptron(Functional(8, 8)), (4,), GhostKernel, r"for 1 \(Functional: weight, bias\)"),
        (nn.Sequential(nn.LSTM(4, 5, proj_size=3, batch_first=True), Last()), (3, 4), None, "for 0 "),
        (Packed(), (3, 4), LoopKernel, "pad sequences instead of packing"),
        (UsesFunction(), (4,), LoopKernel, "custom autograd function"),
        (TimeFirst(), (2, 4), VmapKernel, "records must come first"),
        (TimeMajor(), (2, 4), VmapKernel, "does not keep records apart"),
        (TimeFirst(), (3, 4), VmapKernel, "records must come first"),
    ],
)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_other_models_fall_back_say_so_and_are_right(
    module: nn.Module, shape: tuple[int, ...], expected: type | None, reason: str
) -> None:
    records, model = some_records(5, *shape), FlatModel(module)
    with pytest.warns(SlowKernelWarning, match=reason):
        kernel = make_kernel(model, loss, records)
    assert expected is None or type(kernel) is expected
    reference = LoopKernel(model, loss).clipped_sum(records, 0.3)
    assert torch.allclose(kernel.clipped_sum(records, 0.3).total, reference.total, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("module", [UsesFunction(), perceptron(Stubborn(8, 8))])
def test_one_record_at_a_time_is_never_silent_and_can_be_accepted(module: nn.Module) -> None:
    with pytest.warns(OneRecordAtATimeWarning, match="one record at a time: very slow.*accept_one_record_at_a_time"):
        make_kernel(FlatModel(copy.deepcopy(module)), loss, some_records())
    for layer in module.modules():
        accept_one_record_at_a_time(layer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = make_kernel(FlatModel(copy.deepcopy(module)), loss, some_records())
    model, records = kernel.model, some_records()
    reference = LoopKernel(model, loss).clipped_sum(records, 0.3)
    assert torch.allclose(kernel.clipped_sum(records, 0.3).total, reference.total, rtol=1e-4, atol=1e-6)


def test_a_large_batch_is_cut_where_an_odd_layer_needs_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ghost_kernel, "GRADIENT_BYTES", 3 * 4 * 72)  # three records of an odd layer of 72 numbers
    model, records = FlatModel(perceptron(Functional(8, 8))), some_records(8)
    with pytest.warns(SlowKernelWarning):
        kernel = make_kernel(model, loss, records)
    seen: list[int] = []
    original = GhostKernel.uses

    def counted(kernel: GhostKernel, some: Records) -> Any:
        seen.append(len(some))
        return original(kernel, some)

    monkeypatch.setattr(GhostKernel, "uses", counted)
    found = kernel.clipped_sum(records, 0.3).total
    assert seen == [3, 3, 2]
    assert torch.allclose(found, LoopKernel(model, loss).clipped_sum(records, 0.3).total, rtol=1e-4, atol=1e-6)


def test_a_damaged_record_does_not_stop_the_probe() -> None:
    records = some_records()
    records.inputs[0][0] = float("nan")
    assert isinstance(make_kernel(FlatModel(perceptron(nn.Tanh())), loss, records), GhostKernel)
    assert make_kernel(FlatModel(perceptron(nn.Tanh())), loss, some_records(1)).name == "ghost"


def test_bad_input_in_clear_words() -> None:
    with pytest.raises(InputError, match="data set is empty"):
        make_kernel(FlatModel(perceptron()), loss, some_records(0))
    with pytest.raises(InputError, match="no trainable parameter"):
        FlatModel(perceptron().requires_grad_(False))
    mixed = perceptron()
    mixed[1].double()  # type: ignore[index]
    with pytest.raises(InputError, match=r"0\.bias torch.float32 on cpu, 1\.bias torch.float64 on cpu"):
        FlatModel(mixed)
    with pytest.raises(InputError, match="float16"):
        FlatModel(perceptron().half())
    with pytest.raises(InputError, match="scalar"):
        make_kernel(FlatModel(perceptron()), lambda output, targets: loss(output, targets).mean(), some_records())
    with pytest.raises(InputError, match="inputs=\\(\\)"):
        Records((), torch.zeros(3))
    model = FlatModel(perceptron())
    model.values.data[0] = float("nan")
    with pytest.raises(PrivacyRefusal, match="NaN or infinite parameter"):
        make_kernel(model, loss, some_records())
