"""Time of one Poisson draw: how it grows with the number of records, and against one comparison for each.

The expected batch is 500 throughout; probabilities spread over two orders of magnitude, as with budgets from
0.1 to 10. Goals (issue 3): from 10⁴ to 10⁷ records the time grows less than 3×, and skipping beats the plain
draw where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.sampling import PoissonSampler, Secure, Seeded
from rpdp.sampling.bernoulli_draws import BernoulliDraws

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks._harness import Benchmark
else:
    from _harness import Benchmark

EXPECTED_BATCH = 500
SMALLEST = 10_000


def probabilities(records: int) -> NDArray[np.float64]:
    spread: NDArray[np.float64] = np.exp(np.log(100.0) * Seeded(1).uniforms(records))
    spread *= EXPECTED_BATCH / spread.sum()
    return spread


def main() -> None:
    bench = Benchmark("One Poisson draw, expected batch 500")
    secure = Secure()
    small = PoissonSampler(probabilities(SMALLEST))
    for records in (10**5, 10**6) if bench.quick else (10**5, 10**6, 10**7):
        q = probabilities(records)
        sampler, plain = PoissonSampler(q), BernoulliDraws(q, np.arange(records))
        bench.compare(f"growth_1e4_to_{_short(records)}", *_works(sampler, small, secure), goal=3.0, inner=20)
        repeats, inner = (15, 20) if records < 10**6 else (9, 1)
        bench.compare(
            f"against_plain_{_short(records)}",
            *_works(sampler, plain, secure),
            goal=1.0,
            repeats=repeats,
            inner=inner,
        )
    bench.finish()


def _works(
    subject: PoissonSampler, reference: PoissonSampler | BernoulliDraws, secure: Secure
) -> tuple[Callable[[], object], Callable[[], object]]:
    return lambda: subject.draw(secure), lambda: reference.draw(secure)


def _short(records: int) -> str:
    return f"1e{len(str(records)) - 1}"


if __name__ == "__main__":
    main()
