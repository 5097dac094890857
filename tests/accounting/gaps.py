"""How far apart the curve's upper and lower bounds lie over random settings: `python -m tests.accounting.gaps`.

The gap is what the accountant may waste: a plan books the upper bound, and the truth may be as low as the lower one.
Costs above 200 say nothing about privacy and are left out, as are costs up to 0.05.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.accounting.settings import Setting, random_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LEAST_COST, LARGEST_COST = 0.05, 200.0
ALLOWED = 0.01
"""The largest gap, as a fraction of the upper bound."""


@dataclass(frozen=True)
class Gap:
    """The two bounds on the cost of one setting, and how long they took."""

    setting: Setting
    lower: float
    upper: float
    seconds: float

    @property
    def counts(self) -> bool:
        """Whether the cost is in the range in which the bounds must be close."""
        return LEAST_COST < self.upper < LARGEST_COST

    @property
    def size(self) -> float:
        """The distance of the bounds as a fraction of the upper one."""
        return 1.0 - self.lower / self.upper


def measure(settings: Iterable[Setting]) -> Iterator[Gap]:
    """The gap of each setting."""
    for setting in settings:
        started = time.perf_counter()
        bounds = setting.curve().bounds([setting.q])
        yield Gap(setting, float(bounds.lower[0]), float(bounds.upper[0]), time.perf_counter() - started)


def summary(gaps: list[Gap]) -> str:
    """How many settings count, the share of them with too large a gap, and the worst."""
    sizes = [gap.size for gap in gaps if gap.counts]
    above = sum(size > ALLOWED for size in sizes)
    return (
        f"{len(gaps)} settings, {len(sizes)} with {LEAST_COST} < ε < {LARGEST_COST:g}: {above} "
        f"({above / max(len(sizes), 1):.1%}) have a gap above {ALLOWED:.0%}, the worst {max(sizes, default=0.0):.1%}; "
        f"{sum(gap.seconds for gap in gaps):.0f} s"
    )


def main() -> None:
    """Print every setting with too large a gap, then the summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.accounting.gaps", description=__doc__)
    parser.add_argument("--settings", type=int, default=500, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="leave out those before this one")
    options = parser.parse_args()
    gaps = []
    for index, gap in enumerate(measure(list(random_settings(options.seed, options.settings))[options.first :])):
        gaps.append(gap)
        if gap.counts and gap.size > ALLOWED:
            place = options.first + index
            sys.stdout.write(
                f"{place}: {gap.size:.1%} [{gap.lower:.6g}, {gap.upper:.6g}] {gap.seconds:.2f} s {gap.setting}\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"{summary(gaps)}\n")


if __name__ == "__main__":
    main()
