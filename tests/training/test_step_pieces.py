"""Large draws: one record more moves the sum by at most L, because it changes the rounding of its own piece only.

Draws and records are seeded. The bounds are about float32 rounding: what is asserted leaves a factor of about two to
what was measured, and the controls exceed the slack several times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rpdp.errors import InputError
from rpdp.sampling import Seeded
from rpdp.training import CLIP_SLACK, FlatModel, NoisyStep, Records, StepSettings, make_kernel
from rpdp.training import noisy_step as step_module
from rpdp.training.micro_batches import LARGEST_PIECE, pieces

Positions = NDArray[np.int64]
Cut = Callable[[Positions, int], Iterator[Positions]]
CLIP_NORM = 0.5


def by_place_in_the_draw(drawn: Positions, most: int) -> Iterator[Positions]:
    """The control: what one record more shifts."""
    for start in range(0, len(drawn), most):
        yield drawn[start : start + most]


def neighbours(count: int, q: float, chance: np.random.Generator) -> tuple[Positions, Positions, int]:
    """A draw, the same draw with one record more, and that record."""
    record = int(chance.integers(count))
    without = np.flatnonzero((chance.random(count) < q) & (np.arange(count) != record))
    return without, np.sort(np.append(without, record)), record


def changed(cut: Cut, without: Positions, together: Positions, most: int) -> tuple[list[bytes], list[bytes]]:
    """The pieces that only one of two draws has."""
    one, two = ({piece.tobytes() for piece in cut(drawn, most)} for drawn in (without, together))
    return sorted(one - two), sorted(two - one)


@pytest.mark.parametrize(("count", "q"), [(50, 0.9), (1000, 0.5), (5000, 0.02), (3000, 1.0), (1, 1.0)])
@pytest.mark.parametrize("most", [1, 3, 64])
def test_a_record_changes_the_piece_it_is_in_and_no_other(count: int, q: float, most: int) -> None:
    chance = np.random.default_rng(1)
    for _ in range(50):
        without, together, record = neighbours(count, q, chance)
        found = list(pieces(together, most))
        assert np.concatenate(found).tolist() == together.tolist()
        assert all(1 <= len(piece) <= most for piece in found)
        gone, new = changed(pieces, without, together, most)
        assert len(gone) <= 1
        before, after = (set(np.frombuffer(b"".join(some), dtype=np.int64).tolist()) for some in (gone, new))
        assert after - before == {record}
        assert before <= after


def test_pieces_by_place_in_the_draw_shift() -> None:
    chance = np.random.default_rng(2)
    shifted = [len(changed(by_place_in_the_draw, *neighbours(5000, 0.5, chance)[:2], 64)[0]) for _ in range(50)]
    assert np.mean(shifted) > 10


def test_draws_have_few_pieces() -> None:
    """One where the draw fits, however sparse; else at most about twice as many as are needed."""
    sparse, _, _ = neighbours(600_000, 0.0005, np.random.default_rng(3))
    assert len(list(pieces(sparse, LARGEST_PIECE))) == 1
    assert len(np.unique(sparse // LARGEST_PIECE)) > 200  # the control: pieces by fixed ranges
    for count in (5_000, 60_000, 600_000):
        large, _, _ = neighbours(count, 0.7, np.random.default_rng(4))
        assert len(list(pieces(large, LARGEST_PIECE))) <= 2 * len(large) / LARGEST_PIECE + 1


def test_nothing_drawn_has_no_piece() -> None:
    assert list(pieces(np.zeros(0, dtype=np.int64), 3)) == []


# The sum itself


def cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


def one_way(count: int, features: int) -> Records:
    """Records whose gradients are long and all point the same way: the sum is as large, and as badly rounded, as can
    be."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(1, features, generator=generator) + 0.01 * torch.randn(count, features, generator=generator)
    return Records.of(10 * inputs, torch.ones(count, dtype=torch.int64))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5))


def make_step(module: Callable[[], nn.Module], records: Records, micro_batch: int = LARGEST_PIECE) -> NoisyStep:
    torch.manual_seed(6)
    model = FlatModel(module())
    settings = StepSettings(CLIP_NORM, 1.0, 1.0, micro_batch)
    kernel = make_kernel(model, cross_entropy, records)
    return NoisyStep(kernel, torch.optim.SGD([model.values], lr=0.1), settings, Seeded(1))


def influence(step: NoisyStep, records: Records, repeats: int, seed: int) -> tuple[float, float]:
    """Over draws of nearly everybody: by how much of L a record moves the sum, and by how much that of the others."""
    chance = np.random.default_rng(seed)
    most_moved = most_others = 0.0
    for _ in range(repeats):
        without, together, record = neighbours(len(records), 0.9, chance)
        moved = step._sum_in_pieces(records, together)[0] - step._sum_in_pieces(records, without)[0]
        alone = step.kernel.clipped_sum(records.select([record]), CLIP_NORM).total.double()
        most_moved = max(most_moved, float(moved.norm()) / CLIP_NORM)
        most_others = max(most_others, float((moved - alone).norm()) / CLIP_NORM)
    return most_moved, most_others


MODELS = [
    pytest.param(lambda: nn.Linear(20, 2), id="linear"),
    pytest.param(perceptron, id="perceptron"),
]


@pytest.mark.parametrize("module", MODELS)
@pytest.mark.parametrize("micro_batch", [50, LARGEST_PIECE, 8 * LARGEST_PIECE])
def test_one_record_moves_the_sum_by_at_most_the_clip_norm(module: Callable[[], nn.Module], micro_batch: int) -> None:
    """Measured: others move by 3e-6 L in pieces of 50 and 5e-5 L in pieces of 512, whatever the number of pieces."""
    records = one_way(10 * micro_batch if micro_batch < LARGEST_PIECE else 20_000, 20)
    moved, others = influence(make_step(module, records, micro_batch), records, 20, seed=7)
    assert 0.99 < moved <= 1.0
    assert others < CLIP_SLACK


@pytest.mark.parametrize("module", MODELS)
def test_pieces_that_shift_are_caught(module: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "pieces", by_place_in_the_draw)
    records = one_way(40_000, 20)
    _, others = influence(make_step(module, records), records, 12, seed=7)
    assert others > 1.5 * CLIP_SLACK


@pytest.mark.parametrize("module", MODELS)
def test_pieces_that_are_too_large_are_caught(module: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "LARGEST_PIECE", 16 * LARGEST_PIECE)
    records = one_way(20_000, 20)
    _, others = influence(make_step(module, records, 16 * LARGEST_PIECE), records, 12, seed=7)
    assert others > 1.5 * CLIP_SLACK


def test_a_kernel_never_gets_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    records = one_way(5_000, 20)
    step = make_step(perceptron, records, micro_batch=100_000)
    sizes: list[int] = []
    add = step.kernel._add

    def watched(chosen: Records, *more: object) -> Tensor:
        sizes.append(len(chosen))
        return add(chosen, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(step.kernel, "_add", watched)
    diagnostics = step.release(records, np.arange(5_000))
    assert diagnostics.count == sum(sizes) == len(diagnostics.norms) == 5_000
    assert max(sizes) <= LARGEST_PIECE


@pytest.mark.parametrize("drawn", [[3, 3], [4, 2], [*range(2000), 1999]])
def test_a_record_counts_once(drawn: list[int]) -> None:
    records = one_way(2_000, 20)
    step = make_step(perceptron, records)
    with pytest.raises(InputError, match="do not rise"):
        step.release(records, np.asarray(drawn))
    assert step.kernel.model.values.grad is None
