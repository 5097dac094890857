"""Noise on other threads, ahead of the end: the same bits, never on a sum that can still change, never twice."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.sampling import Secure, Seeded
from rpdp.sampling.noise_blocks import GaussianBlocks
from rpdp.training import FlatModel, GhostKernel, NoisyStep, Records, StepSettings, make_kernel
from rpdp.training import noise_addition as noise_module
from rpdp.training.noise_addition import BLOCK, PendingRelease, grid_spacing, release_

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.training.conftest import Example

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

SIZE = 5 * BLOCK + 17
STD, NORMALISER = 0.7, 3.0
PATIENCE = 20.0


def cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


def test_a_real_release_is_not_made_on_another_device_than_the_cpu() -> None:
    elsewhere = torch.zeros(4, device="meta")
    with pytest.raises(PrivacyRefusal, match="device meta is for simulations"):
        PendingRelease(elsewhere, STD, NORMALISER, Secure())
    PendingRelease(elsewhere, STD, NORMALISER, Seeded(1))  # a simulation may
    PendingRelease(torch.zeros(4), STD, NORMALISER, Secure())


def some_sum(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linspace(-2, 2, SIZE, dtype=dtype)


def one_after_the_other(total: Tensor, seed: int) -> Tensor:
    """The release by its definition."""
    blocks, spacing = Seeded(seed).gaussian_blocks(), grid_spacing(STD)
    for number, part in enumerate(torch.split(total, BLOCK)):
        noise = np.empty(len(part))
        blocks.fill(number, noise, STD)
        part.copy_(((part.double() + torch.from_numpy(noise)) / spacing).round() * (spacing / NORMALISER))
    return total


def noise_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rpdp-noise"]


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


@pytest.fixture(params=[(1, 1), (1, 8), (3, 3), (3, 8)], ids=lambda pair: f"{pair[0]} threads, {pair[1]} cores")
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Threads of torch and cores, as the module sees them."""
    threads, cores = request.param
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(noise_module, "_cores", lambda: cores)
    return threads, cores


@pytest.fixture
def spare_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_module, "_cores", lambda: torch.get_num_threads() + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_do_not_change_a_bit(machine: tuple[int, int], dtype: torch.dtype) -> None:
    total = some_sum(dtype)
    with PendingRelease(total, STD, NORMALISER, Seeded(2)) as pending:
        assert len(noise_threads()) == (machine[1] > machine[0])
        for position in (4 * BLOCK + 3, 2 * BLOCK, 17):
            pending.final_from(position)
    assert torch.equal(total, one_after_the_other(some_sum(dtype), 2))
    assert torch.equal(total, release_(some_sum(dtype), STD, NORMALISER, Seeded(2)))
    assert noise_threads() == []


@pytest.mark.usefixtures("spare_core")
def test_only_what_is_final_gets_noise_early() -> None:
    total = some_sum()
    with PendingRelease(total, STD, NORMALISER, Seeded(2)) as pending:
        position = 3 * BLOCK - 1  # the third block is not final, not even its end
        pending.final_from(position)
        assert until(lambda: not torch.equal(total[3 * BLOCK : 3 * BLOCK + 50], some_sum()[3 * BLOCK : 3 * BLOCK + 50]))
        assert torch.equal(total[: 3 * BLOCK], some_sum()[: 3 * BLOCK])
        total[: 3 * BLOCK] += 1.0
    expected = some_sum()
    expected[: 3 * BLOCK] += 1.0
    assert torch.equal(total, one_after_the_other(expected, 2))


@pytest.mark.usefixtures("spare_core")
def test_an_exception_ends_the_release_and_its_noise() -> None:
    randomness, total = Seeded(2), some_sum()

    def fail() -> None:
        with PendingRelease(total, STD, NORMALISER, randomness) as pending:
            pending.final_from(4 * BLOCK)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert noise_threads() == []
    assert torch.equal(total[: 4 * BLOCK], some_sum()[: 4 * BLOCK])
    again = release_(torch.zeros(SIZE), STD, NORMALISER, randomness)
    first = release_(torch.zeros(SIZE), STD, NORMALISER, Seeded(2))
    assert not (again == first).all()
    assert float((again == first).double().mean()) < 1e-4  # chance: values meet on the grid once in some 10⁶


@pytest.mark.usefixtures("spare_core")
def test_a_failure_on_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = GaussianBlocks.fill

    def failing(
        self: GaussianBlocks, number: int, out: np.ndarray[tuple[int], np.dtype[np.float64]], std: float
    ) -> None:
        if threading.current_thread().name == "rpdp-noise":
            raise MemoryError(f"block {number}")
        fill(self, number, out, std)

    monkeypatch.setattr(GaussianBlocks, "fill", failing)

    def release() -> None:
        with PendingRelease(some_sum(), STD, NORMALISER, Seeded(2)) as pending:
            pending.final_from(5 * BLOCK)
            assert until(lambda: noise_threads() == [])

    with pytest.raises(MemoryError, match="block 5"):
        release()
    assert noise_threads() == []


def test_small_sums_use_no_thread_and_no_block(machine: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("a thread was started"))
    monkeypatch.setattr(Seeded, "gaussian_blocks", lambda _: pytest.fail("blocks were asked for"))
    total = torch.zeros(BLOCK)
    noise = np.empty(BLOCK)
    Seeded(4).fill_gaussian(noise, STD)
    release_(total, STD, 1.0, Seeded(4))
    assert np.abs(total.numpy() - noise).max() <= grid_spacing(STD)


def large_step(seed: int = 1) -> tuple[NoisyStep, Records]:
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(5, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 3))
    model = FlatModel(module)
    assert len(model) > BLOCK
    records = Records.of(torch.randn(20, 5), torch.randint(3, (20,)))
    kernel = make_kernel(model, cross_entropy, records)
    optimiser = torch.optim.SGD([model.values], lr=0.1)
    return NoisyStep(kernel, optimiser, StepSettings(1.0, 1.0, 20.0), Seeded(seed)), records


def test_a_step_is_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for cores in (1, 8):
        monkeypatch.setattr(noise_module, "_cores", lambda cores=cores: cores)
        step, records = large_step()
        for _ in range(3):
            step(records, np.arange(12))
        found.append(step.kernel.model.values.detach().clone())
    assert torch.equal(found[0], found[1])


@pytest.mark.usefixtures("spare_core")
def test_a_step_that_fails_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    step, records = large_step()
    before = step.kernel.model.values.detach().clone()

    def failing(*_: object) -> Tensor:
        raise InputError("no noise today")

    monkeypatch.setattr(PendingRelease, "_add", failing)
    with pytest.raises(InputError, match="no noise today"):
        step(records, np.arange(5))
    assert step.kernel.model.values.grad is None
    assert torch.equal(step.kernel.model.values.detach(), before)
    assert noise_threads() == []


@pytest.mark.usefixtures("spare_core")
def test_an_interrupt_during_the_sum_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No error of a record's own: nothing else but the sum may catch it."""
    step, records = large_step()
    before = step.kernel.model.values.detach().clone()

    def interrupted(*_: object) -> Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(step.kernel, "_add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(records, np.arange(5))
    assert step.kernel.model.values.grad is None
    assert torch.equal(step.kernel.model.values.detach(), before)
    assert noise_threads() == []


def test_the_kernel_says_final_only_of_what_is(example: Example) -> None:
    model = example.model(torch.float64)
    records = example.records(4, torch.float64, 1)
    kernel = GhostKernel.fitted(model, cross_entropy, example.records(2, torch.float64))
    total = torch.zeros_like(model.values.data)
    said: list[tuple[int, Tensor]] = []
    kernel.add_clipped_sum(records, 1.0, total, lambda position: said.append((position, total[position:].clone())))
    positions = [position for position, _ in said]
    assert positions == sorted(positions, reverse=True)
    assert positions[0] > 0
    assert all(torch.equal(values, total[position:]) for position, values in said)
