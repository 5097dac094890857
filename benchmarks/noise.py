"""Secure Gaussian noise against `torch.normal_`, which is fast and neither secure nor exact in the tails.

Sizes: ResNet-18 with GroupNorm (11,181,642 parameters; goal of issue 3: 2.5×), the two-layer CNN (26,010) and
logistic regression (14).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.sampling import Secure

if TYPE_CHECKING:
    from benchmarks._harness import Benchmark
else:
    from _harness import Benchmark

RESNET_18 = 11_181_642
CNN = 26_010
LOGISTIC_REGRESSION = 14


def main() -> None:
    bench = Benchmark("Secure noise against torch.normal_, float32")
    secure = Secure()
    sizes = [
        ("noise_11m", RESNET_18, 2.5, 1),
        ("noise_26k", CNN, None, 50),
        ("noise_14", LOGISTIC_REGRESSION, None, 1000),
    ]
    for name, size, goal, inner in sizes:
        ours, theirs = np.empty(size, dtype=np.float32), torch.empty(size)
        bench.compare(
            name,
            partial(secure.fill_gaussian, ours, 1.0),
            partial(theirs.normal_, 0.0, 1.0),
            goal=goal,
            inner=inner,
        )
    bench.finish()


if __name__ == "__main__":
    main()
