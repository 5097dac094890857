"""The error of a mean with personal budgets, against other ways to ask for it: RMSE on the same data and budgets.

| way | what it does |
|---|---|
| everyone | `rpdp.statistics`, a floor that every record is above; the sum divided by a known number of records |
| everyone, unknown number | the same as a ratio of two noisy sums |
| representative | `rpdp.statistics`, personal weights |
| OpenDP, Gaussian or Laplace | noise by OpenDP for everybody at the smallest ε; the sum divided by the known number |
| Poisson | every record is drawn with its own probability and weighted by the inverse (Horvitz–Thompson) |
| threshold | the records above the best level alone, at that level's noise, number unknown |

Values do not depend on budgets: every repetition draws anew who has which. One release, (ε, δ) with δ = 1e-5, and whole
budgets. Without OpenDP (`pip install opendp`) its place is taken by the analytic Gaussian at the smallest ε.
`--markdown` prints the table of docs/explanation/statistics.md, `--figure FILE` draws it as SVG.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp import PrivacyCurve, Schedule
from rpdp.budgets.distributions import PAPER
from rpdp.statistics import (
    Columns,
    ColumnSource,
    DeclaredRecords,
    Inquiry,
    Mean,
    NumberRange,
    RequestTerms,
    choose_noise,
)
from rpdp.statistics.inquiry import noise_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks._harness import Benchmark
else:
    from _harness import Benchmark

DELTA = 1e-5
RANGE = NumberRange(-1.0, 1.0)
TERMS = RequestTerms(DELTA)
MEAN = Mean("x", RANGE)
SIZES = (300, 10_000)
_POISSON_NOISE = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_CHUNK = 100
_OURS = ("everyone", "everyone, unknown number", "representative")
_TICKS = (0.001, 0.0015, 0.002, 0.003, 0.004, 0.05, 0.07, 0.1, 0.15)


def values_of(count: int) -> NDArray[np.float64]:
    """Values like ages in their range: a mean off the middle, a deviation of a third."""
    return np.clip(np.random.default_rng(5).normal(0.2, 0.33, count), -1.0, 1.0)


def rmse(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def permuted(rng: np.random.Generator, one: NDArray[np.float64], repetitions: int) -> list[NDArray[np.float64]]:
    """Chunks of rows, each of which gives the records another order."""
    sizes = [min(_CHUNK, repetitions - start) for start in range(0, repetitions, _CHUNK)]
    return [rng.permuted(np.tile(one, (size, 1)), axis=1) for size in sizes]


def by_rpdp(
    estimator: str, values: NDArray[np.float64], budgets: NDArray[np.float64], repetitions: int
) -> NDArray[np.float64]:
    """Errors of the mean as `rpdp.statistics` estimates it, as a ratio."""
    rng = np.random.default_rng(11)
    inquiry = Inquiry((MEAN,), estimator)  # type: ignore[arg-type]
    choice = choose_noise(inquiry, DeclaredRecords(budgets, len(values)), TERMS)
    levels, places = np.unique(budgets, return_inverse=True)
    weights = TERMS.weights(inquiry.request, choice.noise_multiplier, levels)[places]
    columns = Columns.of_arrays({"x": values}, ranges={"x": (-1.0, 1.0)})
    matrix = ColumnSource(columns).cells(inquiry.request, None, np.arange(len(values))).value
    exact = np.concatenate([each @ matrix for each in permuted(rng, weights, repetitions)])
    deviation = choice.noise_multiplier * inquiry.request.norm
    cells = exact + deviation * rng.standard_normal(exact.shape)
    noise = noise_of(deviation, 0.95, inquiry.estimator)
    return np.asarray(inquiry.intervals(cells, noise)[0].value[:, 0] - values.mean())


def by_everyone(values: NDArray[np.float64], budgets: NDArray[np.float64], repetitions: int) -> NDArray[np.float64]:
    """Errors of the noisy sum over all records, divided by their number."""
    noise = float(TERMS.noise_for_weight_1(np.array([budgets.min()]))[0])
    return np.asarray(noise * np.random.default_rng(12).standard_normal(repetitions) / len(values))


def by_opendp(epsilon: float, repetitions: int, kind: str) -> tuple[NDArray[np.float64], str]:
    """Noise of a sum of sensitivity 1 at this ε, and who made it."""
    try:
        dp: Any = import_module("opendp.prelude")
    except ImportError:
        noise = float(TERMS.noise_for_weight_1(np.array([epsilon]))[0])
        return noise * np.random.default_rng(13).standard_normal(repetitions), "analytic Gaussian (no OpenDP here)"
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    if kind == "Laplace":
        made = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=1.0 / epsilon)
        assert float(made.map(1.0)) <= epsilon * (1.0 + 1e-9)
    else:

        def gaussian(scale: float):  # type: ignore[no-untyped-def]
            return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)

        def spent(scale: float) -> float:
            priced: Any = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(gaussian(scale)), DELTA)
            return float(priced.map(1.0)[0])

        made = gaussian(dp.binary_search(lambda scale: spent(scale) <= epsilon, bounds=(0.1, 1e5)))
    return np.asarray(made([0.0] * repetitions)), f"OpenDP, {kind}"


def by_poisson(values: NDArray[np.float64], budgets: NDArray[np.float64]) -> float:
    """The RMSE of the best noise: x/q of those drawn. The record that is drawn least decides the sensitivity."""
    levels, places = np.unique(np.quantile(budgets, np.linspace(0, 1, 101)), return_inverse=True)
    found = []
    for noise in _POISSON_NOISE:
        curve = PrivacyCurve(Schedule(1, 1, participation=1.0), noise_multiplier=noise, delta=DELTA)
        q = np.asarray(curve.sampling_probability(levels))
        if q.min() <= 0.0:
            continue
        spread = np.mean(1.0 / q[places] - 1.0) * np.mean(values**2) * len(values)
        found.append(float(np.sqrt(spread + (noise / q.min()) ** 2)) / len(values))
    return min(found)


def by_threshold(values: NDArray[np.float64], budgets: NDArray[np.float64], repetitions: int) -> float:
    """The RMSE of the best level: a ratio of noisy sums over the records above it."""
    rng, found = np.random.default_rng(15), []
    for level in np.unique(np.quantile(budgets, np.linspace(0.0, 0.95, 20))):
        inquiry = Inquiry((MEAN,), "everyone")
        noise = float(TERMS.noise_for_weight_1(np.array([level]))[0])
        columns = Columns.of_arrays({"x": values}, ranges={"x": (-1.0, 1.0)})
        matrix = ColumnSource(columns).cells(inquiry.request, None, np.arange(len(values))).value
        taken = (budgets >= level).astype(float)
        exact = np.concatenate([each @ matrix for each in permuted(rng, taken, min(repetitions, 500))])
        cells = exact + noise * rng.standard_normal(exact.shape)
        found.append(rmse(inquiry.intervals(cells, noise_of(noise, 0.95, "everyone"))[0].value[:, 0] - values.mean()))
    return min(found)


def errors_of(name: str, count: int, repetitions: int) -> dict[str, float]:
    """The RMSE of every way for a distribution and a number of records."""
    values, budgets = values_of(count), PAPER[name].sample(count, 1)
    least = float(budgets.min())
    found = {
        "everyone": rmse(by_everyone(values, budgets, repetitions)),
        "everyone, unknown number": rmse(by_rpdp("everyone", values, budgets, repetitions)),
        "representative": rmse(by_rpdp("representative", values, budgets, repetitions)),
    }
    for kind in ("Gaussian", "Laplace"):
        noise, made_by = by_opendp(least, repetitions, kind)
        found[made_by] = rmse(noise / count)
    found["Poisson, Horvitz–Thompson"] = by_poisson(values, budgets)
    found["threshold, best level"] = by_threshold(values, budgets, repetitions)
    return found


def main() -> None:
    arguments, figure = sys.argv[1:], None
    if "--figure" in arguments:
        place = arguments.index("--figure")
        figure = Path(arguments[place + 1])
        del arguments[place : place + 2]
    is_shown = "--markdown" in arguments
    arguments = [each for each in arguments if each != "--markdown"]
    bench = Benchmark("RMSE of a mean in [−1, 1] with personal budgets", arguments)
    repetitions = 1000 if bench.quick else 10_000
    tables: dict[tuple[str, int], dict[str, float]] = {}
    for name in PAPER:
        for count in SIZES:
            found = tables[name, count] = errors_of(name, count, repetitions if count < 1000 else repetitions * 2 // 5)
            laplace = found.get("OpenDP, Laplace")
            unbiased = [error for way, error in found.items() if way.startswith(("OpenDP, G", "analytic", "Poisson"))]
            context = ", ".join(f"{way} {error:.4f}" for way, error in found.items())
            bench.record(f"everyone_{name}_{count}", found["everyone"] / min(unbiased), goal=1.02, context=context)
            if laplace is not None:
                bench.record(f"laplace_{name}_{count}", found["everyone"] / laplace, context="everyone against Laplace")
            both = found["representative"] / found["everyone, unknown number"]
            goal = 1 / 1.5 if (name, count) == ("ThreeLevels", 300) else 1.02
            bench.record(f"representative_{name}_{count}", both, goal=goal, context="against everyone, both as ratios")
    if is_shown:
        show(tables)
    if figure is not None:
        figure.write_text(drawn(tables), encoding="utf-8")
    bench.finish()


def show(tables: dict[tuple[str, int], dict[str, float]]) -> None:
    """The table as Markdown."""
    ways = list(next(iter(tables.values())))
    print("| budgets | records | " + " | ".join(ways) + " |")
    print("|---|---|" + "---|" * len(ways))
    for (name, count), found in tables.items():
        print(f"| {name} | {count:,} | " + " | ".join(f"{found[way]:.4f}" for way in ways) + " |")


def drawn(tables: dict[tuple[str, int], dict[str, float]]) -> str:
    """Dots on a logarithmic scale: one row for each distribution and way, one panel for each number of records."""
    names = list(dict.fromkeys(name for name, _ in tables))
    ways = list(next(iter(tables.values())))
    row, left, wide, panels = 15, 190, 330, []
    for panel, count in enumerate(SIZES):
        x, y = left + panel * (wide + 20), 40
        errors = [error for (_, size), found in tables.items() if size == count for error in found.values()]
        low, high = np.log10(min(errors)) - 0.05, np.log10(max(errors)) + 0.05
        panels.append(f'<text x="{x + wide / 2}" y="16" text-anchor="middle">{count:,} records: RMSE of a mean</text>')
        for tick in _TICKS:
            at = x + wide * (np.log10(tick) - low) / (high - low)
            if x <= at <= x + wide:
                end = y + len(names) * (len(ways) + 1) * row
                panels.append(f'<path d="M{at:.1f} {y - 10}V{end}" stroke="#e4e9f0"/>')
                panels.append(f'<text x="{at:.1f}" y="{y - 12}" text-anchor="middle" fill="#5b6b83">{tick:g}</text>')
        for number, name in enumerate(names):
            top = y + number * (len(ways) + 1) * row
            if not panel:
                panels.append(f'<text x="8" y="{top + 4}" font-weight="600">{name}</text>')
            for place, way in enumerate(ways, start=1):
                at = x + wide * (np.log10(tables[name, count][way]) - low) / (high - low)
                colour = "#c2410c" if way in _OURS else "#64748b"
                if not panel:
                    panels.append(f'<text x="{left - 8}" y="{top + place * row + 4}" text-anchor="end">{way}</text>')
                panels.append(f'<circle cx="{at:.1f}" cy="{top + place * row}" r="4" fill="{colour}"/>')
    width, height = left + 2 * (wide + 20), 50 + len(names) * (len(ways) + 1) * row
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif"'
    )
    return "\n".join(
        [
            f'{start} font-size="11" fill="#2a3f5f">',
            '<rect width="100%" height="100%" fill="#fff"/>',
            *panels,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    main()
