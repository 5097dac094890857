"""What every benchmark shares: interleaved repeats, medians, the ratio first, `--quick` and `--json`.

Two ways of doing the same thing are timed in turn (A, B, A, B, …), so a slow moment of a shared machine
hits both, and the ratio of their medians is the result; absolute times are only context.

    if TYPE_CHECKING:  # mypy sees a package, `python benchmarks/name.py` sees a neighbour
        from benchmarks._harness import Benchmark
    else:
        from _harness import Benchmark

    bench = Benchmark("Secure noise against torch.normal_")
    bench.compare("noise_11m", secure_fill, torch_fill, goal=2.5, repeats=9)
    bench.finish()

prints one line for each comparison, ratio first, and with `--json` ends with one JSON object of ratios by
name.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence

Work = Callable[[], object]


def interleaved_medians(works: Sequence[Work], repeats: int, inner: int = 1) -> list[float]:
    """Median seconds of one call of each work, timed in turn `repeats` times after one unmeasured call each.

    `inner` calls are made within one timing: use it for work of a few microseconds.
    """
    for work in works:
        work()
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, collected in zip(works, seconds, strict=True):
            start = time.perf_counter()
            for _ in range(inner):
                work()
            collected.append((time.perf_counter() - start) / inner)
    return [statistics.median(collected) for collected in seconds]


class Benchmark:
    """One benchmark program: reads `--quick` and `--json`, prints comparisons, ends with the JSON line.

    `quick` is for the caller: choose smaller sizes. It also divides the repeats by three.
    """

    def __init__(self, title: str, arguments: Sequence[str] | None = None) -> None:
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer repeats")
        parser.add_argument("--json", action="store_true", help="end with one JSON object of ratios by name")
        options = parser.parse_args(arguments)
        self.quick: bool = options.quick
        self._print_json: bool = options.json
        self.ratios: dict[str, float] = {}
        print(f"{title}{' (quick)' if self.quick else ''}")

    def compare(
        self,
        name: str,
        subject: Work,
        reference: Work,
        *,
        goal: float | None = None,
        repeats: int = 15,
        inner: int = 1,
    ) -> float:
        """Time subject and reference in turn; print and return the ratio of their medians."""
        repeats = max(3, repeats // 3) if self.quick else repeats
        ours, theirs = interleaved_medians([subject, reference], repeats, inner)
        context = f"{_readable(ours)} against {_readable(theirs)}, medians of {repeats}"
        return self.record(name, ours / theirs, goal=goal, context=context)

    def record(self, name: str, ratio: float, *, goal: float | None = None, context: str = "") -> float:
        """Print and keep a ratio that was measured elsewhere (peak memory, for example)."""
        verdict = "" if goal is None else f"  goal {goal:g}: {'met' if ratio <= goal else 'MISSED'}"
        print(f"{ratio:8.3f}x  {name}{verdict}  [{context}]")
        self.ratios[name] = ratio
        return ratio

    def finish(self) -> None:
        """Print the JSON line if it was asked for. Call it last."""
        if self._print_json:
            print(json.dumps({name: round(ratio, 4) for name, ratio in self.ratios.items()}))


def _readable(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
