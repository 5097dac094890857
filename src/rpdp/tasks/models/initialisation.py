"""Reproducible initial parameters that leave torch's global generator untouched."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def initialised_from(seed: int) -> Iterator[None]:
    """Initialise the modules created inside the block from `seed`, and restore the global generator afterwards.

    Initial parameters are public: they depend on no record, and nothing on the release path uses this generator.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
