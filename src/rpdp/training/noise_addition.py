"""Gaussian noise on a flat sum, rounded to a public grid: what makes a sum releasable.

The noisy sum s + N(0, (σL)²) is formed in float64 and rounded, per coordinate, to multiples of the grid
2^(⌊log2 σL⌋ − 20), which is public, before anything uses it (privacy.md, rule 15). Why: floating-point noise
is not continuous. Which doubles s + n can be depends on s in the last bits (Mironov 2012), far below the
noise but exact. After rounding, an output is one of the same evenly spaced values whatever s is, and the
probability of each differs from that of the rounded true Gaussian only through the spacing of float64 noise,
at most 2⁻⁵² σL·|n/σL|, against a grid of at least 2⁻²¹ σL: a relative change of about 2⁻³⁰ per coordinate and
release, which is not part of ε.

Limits: this is an argument about one deviation, not a proof in exact arithmetic (a discrete Gaussian would
give that); the sum s itself is in float32, whose rounding is covered by the clipping slack; and timing is not
hidden. Everything after the rounding, dividing by the normaliser and casting to float32 included, is
post-processing.

Large sums get their noise in blocks with independent streams (`rpdp.sampling.noise_blocks`). Noise does not depend
on the data, so a block can have it as soon as the sum is final there, on another thread, while the rest of
the sum is still being computed; who makes which block has no effect on the result.
"""

from __future__ import annotations

import math
import os
import threading
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from rpdp.errors import PrivacyRefusal

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.sampling import Randomness

GRID_BITS = 20
"""The grid is this many bits below the noise: rounding adds 2⁻⁴² / 12 of the noise's variance, nothing."""

BLOCK = 2**17
"""Coordinates in a block of noise (1 MB of float64): a large model needs no second buffer."""

MOST_THREADS = 4
"""More threads than this would wait for each other at the interpreter's lock."""


def grid_spacing(std: float) -> float:
    """The public grid for noise of this standard deviation: a power of two, about std · 2⁻²⁰.

    >>> grid_spacing(1.0) == 2.0**-20
    True
    """
    return 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)


def release_(total: Tensor, std: float, normaliser: float, randomness: Randomness) -> Tensor:
    """Turn a sum into its release, in place: (sum + N(0, std²) rounded to the grid) / normaliser."""
    with PendingRelease(total, std, normaliser, randomness, ahead=False):
        return total


class PendingRelease:
    """A sum that becomes its release when the `with` block ends, in place; parts of it earlier.

    | case | what happens |
    |---|---|
    | `final_from(p)` is called inside the block | `total[p:]` may get its noise from now on, on another thread |
    | the block ends | the rest gets its noise; `total` is the release |
    | the block ends with an exception | no further noise is made, `total` is worthless, the exception goes on |
    | up to `BLOCK` coordinates | one fill at the end of the block, no threads |

    Threads run only where they pay: ahead of the end if this process may use more cores than torch has threads (threads
    of torch that wait for each other would suffer more than the noise gains), and as many as torch has at the end.

    Args:
        total: The sum, flat.
        std: Standard deviation of the noise.
        normaliser: The public constant to divide by.
        randomness: Where the noise comes from.
        ahead: Whether `final_from` will be called.
    """

    def __init__(
        self, total: Tensor, std: float, normaliser: float, randomness: Randomness, *, ahead: bool = True
    ) -> None:
        if total.device.type != "cpu" and not randomness.is_simulation:
            raise PrivacyRefusal(
                f"device {total.device} is for simulations: a real release is summed and noised on the CPU, where the "
                "rounding is known; use device='cpu'"
            )
        self._total = total
        self._std = std
        self._scales = (1 / grid_spacing(std), grid_spacing(std) / normaliser)
        self._randomness = randomness
        self._left = -(-len(total) // BLOCK)
        self._final = len(total)
        self._stopped = False
        self._change = threading.Condition()
        self._helpers: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self._blocks = randomness.gaussian_blocks() if self._left > 1 else None
        # Elsewhere than on the CPU, work of other threads might go to another queue of the device.
        self._threads = min(torch.get_num_threads(), MOST_THREADS) if total.device.type == "cpu" else 1
        self._ahead = ahead and self._left > 1 and total.device.type == "cpu" and torch.get_num_threads() < _cores()

    def __enter__(self) -> Self:
        if self._ahead:
            self._help()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except BaseException as found:
            self._errors.insert(0, found)
        finally:
            with self._change:
                self._stopped = True
                self._change.notify_all()
            for helper in self._helpers:
                helper.join()
        if kind is None and self._errors:
            raise self._errors[0]

    def final_from(self, position: int) -> None:
        """Say that `total[position:]` will not change any more."""
        with self._change:
            self._final = position
            self._change.notify_all()

    def _finish(self) -> None:
        if self._blocks is None:
            noise = np.empty(len(self._total))
            self._randomness.fill_gaussian(noise, self._std)
            self._add(self._total, noise)
            return
        self.final_from(0)
        while len(self._helpers) < min(self._threads, self._left) - 1:
            self._help()
        self._work()

    def _help(self) -> None:
        helper = threading.Thread(target=self._work_and_report, name="rpdp-noise", daemon=True)
        self._helpers.append(helper)
        helper.start()

    def _work_and_report(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._errors.append(error)

    def _work(self) -> None:
        """Release blocks, the last first, until none is left."""
        assert self._blocks is not None
        noise = torch.empty(BLOCK, dtype=torch.float64).numpy()
        while (number := self._take()) is not None:
            part = self._total[number * BLOCK : (number + 1) * BLOCK]
            block = noise[: len(part)]
            self._blocks.fill(number, block, self._std)
            self._add(part, block)

    def _take(self) -> int | None:
        """The next block that is final; waits for it."""
        with self._change:
            while not self._stopped and self._left and (self._left - 1) * BLOCK < self._final:
                self._change.wait()
            if self._stopped or not self._left:
                return None
            self._left -= 1
            return self._left

    def _add(self, part: Tensor, noise: NDArray[np.float64]) -> None:
        """Add noise to a part of the sum, round to the grid, divide."""
        to_grid, from_grid = self._scales
        if part.device.type == "cpu":  # numpy, because torch would start its own threads in every thread
            values = part.numpy()
            np.add(noise, values, out=noise)
            np.multiply(noise, to_grid, out=noise)
            np.rint(noise, out=noise)
            np.multiply(noise, from_grid, out=values, casting="same_kind")
        else:
            noisy = torch.from_numpy(noise).to(part.device)
            part.copy_(noisy.add_(part).mul_(to_grid).round_().mul_(from_grid))


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
