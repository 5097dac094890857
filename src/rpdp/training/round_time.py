"""How long a round of local training can take at most, measured on synthetic records.

An answer leaves at a public time, and a round that is not trained by then sits out. If a record could make the
difference, everybody would see it (privacy.md, rule 16). So the public time must be above the slowest round that any
records can cause. A round is slowest if every step draws everybody, numbers are of the slowest kind (denormal, NaN),
and in every step model or loss fail on a record of every piece:

    τ · (s + P · (t(n) + path(n))) + P · tree(n)

with τ steps, P pieces of at most n records, s seconds for noise and optimiser, and t(m) seconds for a piece of m
records. Finding one failing record in a piece takes at most two runs on each smaller half, `path(n)`; finding all of
them takes `tree(n)`, once in a round, since nobody is tried again after failing (`rpdp.training.noisy_step`).
"""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.sampling import Seeded
from rpdp.training.micro_batches import LARGEST_PIECE, pieces
from rpdp.training.noise_addition import release_
from rpdp.training.synthetic_records import synthetic_like

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.sampling import Randomness
    from rpdp.training.kernel import Kernel
    from rpdp.training.records import Records

MARGIN = 1.5
"""Measured times are multiplied by this: a machine is not always equally fast."""

_REPEATS = 3
SLOW_NUMBERS = (1e-42, float("nan"), 1e30)
"""Numbers of the slowest kinds: denormal, not a number, and so large that products overflow."""


def slowest_round(kernel: Kernel, records: Records, local_steps: int, randomness: Randomness) -> float:
    """Return the seconds that a round of so many steps can take here, whatever the records and weights are.

    Only the number, shapes and types of the records are used. The weights of the kernel's model are left as they were.
    """
    largest = min(len(records), LARGEST_PIECE)
    count = sum(1 for _ in pieces(np.arange(len(records)), LARGEST_PIECE))
    weights = kernel.model.values.data.clone()
    try:
        alone, together = (_slowest(kernel, records, size) for size in (1, largest))
        step = median_seconds(lambda: release_(torch.zeros_like(weights), 1.0, 1.0, randomness))
    finally:
        kernel.model.values.data.copy_(weights)
    # Seconds for m records, as a straight line through both measurements: fixed + each · m.
    each = max(together - alone, 0.0) / max(largest - 1, 1)
    fixed = max(alone - each, 0.0)
    levels = math.ceil(math.log2(largest)) if largest > 1 else 0
    path = 2 * levels * fixed + 2 * largest * each
    tree = 2 * largest * fixed + (levels + 1) * largest * each
    return MARGIN * (local_steps * (step + count * (together + path)) + count * tree)


def _slowest(kernel: Kernel, records: Records, size: int) -> float:
    """Seconds for a piece of so many records with the slowest of several kinds of numbers, in inputs and weights."""
    rows, whole = np.arange(size), torch.zeros_like(kernel.model.values.data, dtype=torch.float64)
    key = kernel.mask_key(Seeded(0))
    times = []

    def piece(made: Records) -> None:
        whole.add_(kernel.clipped_sum(made.select(rows).masked(key, rows), 1.0).total)

    for number in (None, *SLOW_NUMBERS):
        if number is None:
            made = synthetic_like(records, size, whole=0)
        else:
            made = synthetic_like(records, size, number, number, whole=0)
            kernel.model.values.data.fill_(number)
        times.append(median_seconds(lambda made=made: piece(made)))  # type: ignore[misc]
    return max(times)


def median_seconds(work: Callable[[], object]) -> float:
    """The median time of a few calls, after one that is not counted."""
    times = []
    for _ in range(_REPEATS + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])
