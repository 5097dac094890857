"""Noise addition: Gaussian noise on a flat sum, rounded to a public grid, so that the sum may be released.

The noisy sum s + N(0, (σL)²) is formed in float64. Before anything uses it, each coordinate is rounded to a multiple of
the public grid spacing 2^(⌊log2 σL⌋ − 20) (privacy.md, rule 15). The reason is that floating-point noise is not
continuous: which doubles s + n can take depends on the last bits of s (Mironov 2012), far below the noise but exactly.
After rounding, the possible outputs are the same evenly spaced values whatever s is. The probability of each differs
from that of the rounded true Gaussian only through the spacing of float64 noise, at most 2⁻⁵² σL·|n/σL|, while the grid
spacing is at least 2⁻²¹ σL. This is a relative change of about 2⁻³⁰ per coordinate and release, which is not part of ε.

Limits: this is an argument about one kind of deviation, not a proof in exact arithmetic (a discrete Gaussian would give
that). The sum s itself is in float32, whose rounding is covered by the clipping slack. Timing is not hidden. Everything
after the rounding, including the division by the normaliser and the cast to float32, is post-processing.

Large sums get their noise in blocks with independent streams (`rpdp.sampling.noise_blocks`). Noise does not depend on
the data, so a thread can add it to a block as soon as the sum is final there, while the rest is still being computed.
Which thread makes which block has no effect on the result.
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
"""The grid is this many bits below the noise. Rounding adds at most 2⁻⁴⁰ / 12 of the noise's variance: negligible."""

BLOCK = 2**17
"""Coordinates in a block of noise (1 MB of float64), so that a large model needs no second buffer of its own size."""

MOST_THREADS = 4
"""More threads than this would only wait for the interpreter's lock."""


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
    """A sum that is turned into its release, in place, by the end of the `with` block; parts of it earlier.

    | case | what happens |
    |---|---|
    | `final_from(p)` is called inside the block | another thread may add noise to `total[p:]` from now on |
    | the block ends | the rest gets its noise; `total` is the release |
    | the block ends with an exception | no further noise is made; `total` is unusable; the exception propagates |
    | up to `BLOCK` coordinates | all noise is added at the end of the block, without threads |

    Threads run only where they pay off. Before the end of the block, a thread runs only if this process may use more
    cores than torch has threads; otherwise it would slow down torch's own threads by more than it gains. At the end of
    the block, up to `MOST_THREADS` threads run, as many as torch uses.

    Args:
        total: The flat sum.
        std: Standard deviation of the noise.
        normaliser: The public constant to divide by.
        randomness: The source of the noise.
        ahead: Whether `final_from` will be called.
    """

    def __init__(
        self, total: Tensor, std: float, normaliser: float, randomness: Randomness, *, ahead: bool = True
    ) -> None:
        if total.device.type != "cpu" and not randomness.is_simulation:
            raise PrivacyRefusal(
                f"device {total.device} is for simulations: a real release must be summed and noised on the CPU, whose "
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
        # On other devices, another thread's work might go to another queue of the device and run out of order.
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
        except BaseException as own_error:
            self._errors.insert(0, own_error)
        finally:
            with self._change:
                self._stopped = True
                self._change.notify_all()
            for helper in self._helpers:
                helper.join()
        if kind is None and self._errors:
            raise self._errors[0]

    def final_from(self, position: int) -> None:
        """Declare that `total[position:]` will not change any more."""
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
        """Turn blocks into their release, the last block first, until none is left."""
        assert self._blocks is not None
        noise = torch.empty(BLOCK, dtype=torch.float64).numpy()
        while (number := self._take()) is not None:
            part = self._total[number * BLOCK : (number + 1) * BLOCK]
            block = noise[: len(part)]
            self._blocks.fill(number, block, self._std)
            self._add(part, block)

    def _take(self) -> int | None:
        """Wait for the next block that is final, and return its number; None when there is nothing left to do."""
        with self._change:
            while not self._stopped and self._left and (self._left - 1) * BLOCK < self._final:
                self._change.wait()
            if self._stopped or not self._left:
                return None
            self._left -= 1
            return self._left

    def _add(self, part: Tensor, noise: NDArray[np.float64]) -> None:
        """Add noise to a part of the sum, round to the grid, and divide by the normaliser."""
        # The spacing is a power of two, so scaling to the grid does not round. All after `rint` is post-processing.
        to_grid, from_grid = self._scales
        if part.device.type == "cpu":  # use numpy: torch would start threads of its own in each of these threads
            values = part.numpy()
            np.add(noise, values, out=noise)
            np.multiply(noise, to_grid, out=noise)
            np.rint(noise, out=noise)
            np.multiply(noise, from_grid, out=values, casting="same_kind")
        else:
            noisy = torch.from_numpy(noise).to(part.device)
            part.copy_(noisy.add_(part).mul_(to_grid).round_().mul_(from_grid))


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
