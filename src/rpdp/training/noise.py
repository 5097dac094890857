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
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from rpdp.sampling import Randomness

GRID_BITS = 20
"""The grid is this many bits below the noise: rounding adds 2⁻⁴² / 12 of the noise's variance, nothing."""

BLOCK = 2**18
"""Noise is made for this many coordinates at a time (2 MB of float64), so a large model needs no second
buffer."""


def grid_spacing(std: float) -> float:
    """The public grid for noise of this standard deviation: a power of two, about std · 2⁻²⁰.

    >>> grid_spacing(1.0) == 2.0**-20
    True
    """
    return 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)


def release_(total: Tensor, std: float, normaliser: float, randomness: Randomness) -> Tensor:
    """Turn a sum into its release, in place: (sum + N(0, std²) rounded to the grid) / normaliser.

    One fill of fresh noise for up to `BLOCK` coordinates, one for each further block.
    """
    spacing = grid_spacing(std)
    buffer = np.empty(min(len(total), BLOCK), dtype=np.float64)
    for start in range(0, len(total), BLOCK):
        part = total[start : start + BLOCK]
        block = buffer[: len(part)]
        randomness.fill_gaussian(block, std)
        noisy = torch.from_numpy(block).to(part.device)
        noisy.add_(part).mul_(1 / spacing).round_().mul_(spacing / normaliser)
        part.copy_(noisy)
    return total
