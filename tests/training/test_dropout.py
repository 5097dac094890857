"""Dropout: a record has masks of its own, whoever else is drawn and however a draw is cut, and L bounds it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.accounting import Schedule
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.planning import PublicPlan
from rpdp.sampling import Secure, Seeded
from rpdp.sampling.record_bits import RecordBits
from rpdp.training import (
    CLIP_SLACK,
    BadRecordWarning,
    FlatModel,
    GhostKernel,
    Kernel,
    LoopKernel,
    NoisyStep,
    Records,
    StepSettings,
    VmapKernel,
    make_kernel,
    train_central,
    uniform_plan,
)

if TYPE_CHECKING:
    from collections.abc import Callable

KERNELS: list[type[Kernel]] = [GhostKernel, VmapKernel, LoopKernel]


def loss(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


class Modern(nn.Module):
    """Attention as modern code writes it, with dropout inside, and stochastic depth."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 12)
        self.head = nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        query, key, value = self.project(values).unflatten(2, (2, 6)).transpose(1, 2).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=0.3 if self.training else 0.0)
        depth = values.new_empty(len(values), 1, 1).bernoulli_(0.7)
        logits: Tensor = self.head((values + depth * mixed.transpose(1, 2).flatten(2)).mean(1))
        return logits


class BetweenLayers(nn.Module):
    """Inside torch, this dropout sees time first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, 2, dropout=0.5, bidirectional=True)

    def forward(self, values: Tensor) -> Tensor:
        output: Tensor = self.layer(values.transpose(0, 1))[0]
        return output.mean(0)[:, :3]


class Odd(nn.Module):
    """A layer without a closed form, with dropout inside and around it: it runs once more with the same masks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5))
        self.scale = nn.Parameter(torch.ones(6))
        self.last = nn.Linear(6, 3)

    def forward(self, values: Tensor) -> Tensor:
        logits: Tensor = self.last(F.dropout(self.first(F.dropout(values, 0.2)) * self.scale, 0.5))
        return logits


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)), (4,)),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.Dropout2d(0.4), nn.ReLU(), nn.Flatten(), nn.AlphaDropout(0.2), nn.Linear(24, 3)
        ),
        (1, 4, 4),
    ),
    "transformer": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True), nn.Flatten(), nn.Linear(20, 3)
        ),
        (5, 4),
    ),
    "modern attention": (Modern, (5, 4)),
    "odd layer": (Odd, (4,)),
    "between recurrent layers": (BetweenLayers, (5, 4)),
}


def some_records(count: int, *shape: int, scale: float = 1.0) -> Records:
    generator = torch.Generator().manual_seed(3)
    inputs = scale * torch.randn(count, *shape, generator=generator)
    return Records.of(inputs, torch.randint(3, (count,), generator=generator))


def sgd(values: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(values, lr=0.1)


def flat(name: str) -> FlatModel:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        return FlatModel(MODELS[name][0]())


def released(kernel: Kernel, records: Records, drawn: Any, micro_batch: int = 512, seed: int = 3) -> Tensor:
    """What a step releases with hardly any noise."""
    settings = StepSettings(1.0, 1e-9, 1.0, micro_batch)
    step = NoisyStep(kernel, torch.optim.SGD([kernel.model.values]), settings, Seeded(seed))
    step.release(records, np.asarray(drawn))
    assert kernel.model.values.grad is not None
    return kernel.model.values.grad.clone()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:there is no closed form")
def test_every_kernel_gives_a_record_the_same_masks(name: str) -> None:
    """Alone, in pairs, in one piece: one function of the records. Without masks it would be another every time."""
    model, records = flat(name), some_records(9, *MODELS[name][1])
    chosen = make_kernel(model, loss, records)
    assert (type(chosen), chosen.draws_masks) == (GhostKernel, True)
    expected = released(chosen, records, range(9))
    for kind in KERNELS[1:] if name != "between recurrent layers" else [LoopKernel]:
        kernel = kind(model, loss)
        kernel.draws_masks = True
        for micro_batch in (512, 2, 1):
            found = released(kernel, records, range(9), micro_batch)
            assert float((found - expected).norm() / expected.norm()) < 1e-5
    assert float((released(chosen, records, range(9), seed=4) - expected).norm() / expected.norm()) > 1e-2


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:there is no closed form")
def test_one_more_record_moves_the_sum_by_at_most_the_clip_norm(name: str, own: bool) -> None:
    """Also when it comes before all others. Control: with masks from a generator in order it moves it by more."""
    model, records = flat(name), some_records(9, *MODELS[name][1], scale=50.0)
    kernel = make_kernel(model, loss, records)
    clip_norm = 1e-6 * float(kernel.clipped_sum(records.masked(bytes(32), np.arange(9)), 1.0).norms.min())
    clip_norm = max(clip_norm, 1e-8)
    kernel.draws_masks = own

    def total(*drawn: int) -> Tensor:
        positions = np.array(drawn)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            chosen = records.select(positions).masked(bytes(32) if own else None, positions)
            return kernel.clipped_sum(chosen, clip_norm).total.double()

    moved = float((total(*range(9)) - total(*range(1, 9))).norm()) / clip_norm
    if own:
        assert moved <= 1.0
    else:
        assert moved > 1.0 + CLIP_SLACK


def test_a_record_that_fails_leaves_the_masks_of_all_others() -> None:
    """The batch is halved until the record is found; every record keeps the masks of the first attempt."""
    model, records = flat("perceptron"), some_records(9, 4)

    def fails(output: Tensor, targets: Tensor) -> Tensor:
        if bool((targets == 7).any()):
            raise ValueError("no such class")
        return loss(output, targets)

    kernel = make_kernel(model, fails, records)
    without = released(kernel, records, [0, 1, 2, 4, 5, 6, 7, 8])
    records.targets[3] = 7
    with pytest.warns(BadRecordWarning):
        found = released(kernel, records, range(9))
    assert float((found - without).norm() / without.norm()) < 1e-5


def test_masks_are_those_of_the_position_and_the_place() -> None:
    """And of nothing else: not of the neighbours, not of the order."""
    bits = RecordBits(bytes(32), np.array([2, 5, 11]))
    found = bits.words(0, 100)
    assert np.array_equal(RecordBits(bytes(32), np.array([11, 2])).words(0, 100), found[[2, 0]])
    assert np.array_equal(bits.words(0, 37), found[:, :37])
    others = [bits.words(1, 100), RecordBits(b"k" * 32, np.array([2, 5, 11])).words(0, 100), found[[1, 2, 0]]]
    assert all(np.mean(found == other) < 0.01 for other in others)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_elements_are_dropped_as_often_as_stated(probability: float) -> None:
    """10⁶ elements, key of zeros: |z| < 4.5 has a false-alarm rate below 1e-5; 0.02 more or less is refused."""
    records = Records.of(torch.ones(1000, 1000), torch.zeros(1000)).masked(bytes(32), np.arange(1000))
    kernel = LoopKernel(FlatModel(nn.Linear(1, 1)), loss)
    with kernel.masked_run(records):
        kept = F.dropout(records.inputs[0], probability) > 0
    share, spread = 1.0 - float(kept.double().mean()), (probability * (1 - probability) / 1e6) ** 0.5
    assert abs(share - probability) / spread < 4.5
    for wrong in (probability - 0.02, probability + 0.02):
        assert abs(share - wrong) / spread > 4.5
    by_record = 1.0 - kept.double().mean(1)
    assert float(by_record.std()) == pytest.approx(1000**0.5 * spread, rel=0.1)  # records are independent


def test_every_step_has_new_masks_and_a_seed_repeats_them() -> None:
    model, records = flat("transformer"), some_records(9, 5, 4)  # about 200 elements a record: no mask comes twice
    kernel = make_kernel(model, loss, records)

    def two(randomness: Any) -> list[Tensor]:
        optimiser = torch.optim.SGD([model.values])
        step = NoisyStep(kernel, optimiser, StepSettings(1.0, 1e-9, 1.0), randomness)
        return [step.release(records, np.arange(9)).norms for _ in range(2)]

    first, second = two(Seeded(1))
    again = two(Seeded(1))
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    assert not torch.isclose(first, second).any()
    third, fourth = two(Secure())
    assert not torch.isclose(third, fourth).any()


@pytest.mark.parametrize("micro_batch", [512, 3])
def test_a_run_repeats_bit_for_bit(micro_batch: int) -> None:
    """Same seed and micro-batch: the same bits. Another micro-batch: the same masks, so the same up to rounding."""

    def trained(pieces: int) -> Tensor:
        public = PublicPlan(
            Schedule(1, 4, participation=1.0),
            noise_multiplier=1.0,
            delta=1e-3,
            clip_norm=1.0,
            normaliser=8.0,
            weights=1.0,
        )
        model, records = flat("transformer").module, some_records(20, 5, 4)
        plan = uniform_plan(public, 20, 5.0)
        torch.rand(pieces)  # torch's generator has no part in it
        done = train_central(model, loss, records, plan, Seeded(2), optimiser=sgd, micro_batch=pieces)
        return done.values

    assert torch.equal(trained(micro_batch), trained(micro_batch))
    assert torch.allclose(trained(micro_batch), trained(512), atol=1e-5)


class TimeFirst(nn.Module):
    """Dropout on a tensor in which positions come first: row t is not record t."""

    def __init__(self, probability: float = 0.5) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.probability = probability

    def forward(self, values: Tensor) -> Tensor:
        logits: Tensor = self.layer(F.dropout(values.transpose(0, 1), self.probability).transpose(0, 1)).mean(1)
        return logits


class DroppedWeights(nn.Module):
    """A mask for all records: that of the first record of a piece, whoever that is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, values: Tensor) -> Tensor:
        logits: Tensor = self.layer(values.mean(1)) * F.dropout(self.scale, 0.5)[:3]
        return logits


@pytest.mark.parametrize(("positions", "said"), [(5, "records must come first"), (4, "depends on another record")])
def test_dropout_where_records_do_not_come_first_is_refused(positions: int, said: str) -> None:
    with pytest.raises(PrivacyRefusal, match=said):
        make_kernel(FlatModel(TimeFirst()), loss, some_records(6, positions, 4))


@pytest.mark.parametrize("model", [TimeFirst(0.01), TimeFirst(1e-4), DroppedWeights()])
def test_rare_and_shared_masks_of_others_are_noticed(model: nn.Module) -> None:
    """With random masks the probe saw only what happened to be dropped, and looked at the first record alone."""
    with pytest.raises(PrivacyRefusal, match="depends on another record"):
        make_kernel(FlatModel(model), loss, some_records(6, 4, 4))


@pytest.mark.parametrize("how", ["train", "one layer", "probability", "recurrent"])
def test_dropout_that_is_switched_on_later_is_refused(how: str) -> None:
    """The kernel was chosen, and checked, without it: its masks would come from torch, for all records together."""
    lstm, dropout = nn.LSTM(4, 4, 2, batch_first=True, dropout=0.0), nn.Dropout(0.0 if how == "probability" else 0.5)
    module = nn.ModuleDict({"lstm": lstm, "dropout": dropout, "layer": nn.Linear(4, 3)})
    module.forward = lambda values: module["layer"](module["dropout"](module["lstm"](values)[0].mean(1)))
    module.train(how == "probability")
    model, records = FlatModel(module), some_records(6, 4, 4)
    kernel = make_kernel(model, loss, records)
    assert not kernel.draws_masks
    step = NoisyStep(kernel, None, StepSettings(1.0, 1.0, 1.0, 512), Seeded(1))
    step.release(records, np.arange(6))
    if how == "train":
        module.train()
    elif how == "one layer":
        dropout.train()
    elif how == "probability":
        dropout.p = 0.5
    else:
        lstm.dropout = 0.5
    with pytest.raises(PrivacyRefusal, match="switched on"):
        step.release(records, np.arange(6))
    module.eval()
    if how != "probability":
        lstm.dropout = 0.0
        step.release(records, np.arange(6))


class Functional(nn.Module):
    """Dropout as a function, with a probability in an attribute that no layer of torch has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.share = nn.Linear(4, 3), 0.0

    def forward(self, values: Tensor) -> Tensor:
        found: Tensor = self.layer(F.dropout(values, self.share))
        return found


def test_dropout_in_a_function_that_is_switched_on_later_is_refused() -> None:
    """Nobody sees the switch, but the masks come from torch's generator."""
    module = Functional()
    model, records = FlatModel(module), some_records(6, 4)
    step = NoisyStep(make_kernel(model, loss, records), None, StepSettings(1.0, 1.0, 1.0, 512), Seeded(1))
    step.release(records, np.arange(6))
    module.share = 0.5
    for drawn in (np.arange(6), np.arange(1)):
        with pytest.raises(PrivacyRefusal, match="drew random numbers from torch's generator"):
            step.release(records, drawn)
        assert model.values.grad is None
    module.share = 0.0
    step.release(records, np.arange(6))


@pytest.mark.parametrize("kind", KERNELS)
def test_a_sum_without_masks_is_refused(kind: type[Kernel]) -> None:
    kernel = kind(flat("perceptron"), loss)
    for kernel.draws_masks in (True, False):
        with pytest.raises(InputError, match="no masks") if kernel.draws_masks else nullcontext():
            kernel.clipped_sum(some_records(3, 4), 1.0)
    with pytest.raises(InputError, match="2 positions for 3 records"):
        some_records(3, 4).masked(bytes(32), np.arange(2))
