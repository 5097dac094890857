"""`soundness` (ours): what each method really spends per record, by both accountants and from below.

Analytical, the same in every profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.accounting import PrivacyCurve, Schedule, calibrate_noise, paper_type_1
from rpdp.budgets import distribution
from rpdp.planning import AUTHORS_CANDIDATES, ESTIMATORS, fit_curve
from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.markdown import finished, grouped, provenance, table
from rpdp_lab.reproduction.suite import PageSection, Suite, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rpdp.accounting import Accountant
    from rpdp_lab.reproduction.cell import CellResult, Numbers, Settings

    Array = NDArray[np.float64]
    Curves = dict[Accountant, PrivacyCurve]
    Method = Callable[[Curves, Array], tuple[Array, Array]]
    """From curves and budgets to probabilities, and the number of rounds in which each record is active."""

DISTRIBUTIONS = ("ThreeLevels", "BoundedPareto", "BoundedMixGauss")
RECORDS = 1000
SLOW = "binary search, RDP"
"""One search per different budget takes minutes for 1,000 of them; table 3 has its time."""

SETTINGS: dict[str, dict[str, Any]] = {
    "heart": {"rounds": 15, "local_steps": 10, "participation": 1.0, "delta": 1e-3, "max_epsilon": 10.0},
    "mnist": {"rounds": 15, "local_steps": 50, "participation": 0.5, "delta": 1e-4, "max_epsilon": 10.0},
    "figure-5": {"rounds": 20, "local_steps": 5, "participation": 0.5, "delta": 1e-3, "noise_multiplier": 1.0},
}

OVER = 1.0 + 1e-9
"""A ratio of spent to allowed above this is an overdraft, not rounding."""

OURS, PUBLISHED = "certified, PLD (ours)", "SCF as published"
COLUMNS = [
    "method",
    "spent/allowed, mean (PLD)",
    "largest (PLD)",
    "largest (RDP)",
    "over budget (RDP)",
    "surely over",
    "Σq",
]


def cells(profile: Profile) -> list[Cell]:
    """Every method at every setting, on 1,000 budgets of each distribution (ThreeLevels only at that of figure 5)."""
    return [
        Cell(
            "soundness",
            setting,
            f"{setting}.{drawn}.{number}",
            spent,
            {
                "noise_multiplier": None,
                **values,
                "setting": setting,
                "distribution": drawn,
                "method": method,
                "records": RECORDS,
                "seed": 0,
            },
            profile,
        )
        for setting, values in SETTINGS.items()
        for drawn in (DISTRIBUTIONS if setting != "figure-5" else DISTRIBUTIONS[:1])
        for number, method in enumerate(METHODS)
        if drawn == "ThreeLevels" or method != SLOW
    ]


def spent(settings: Settings, device: str) -> Numbers:
    """One method at one setting on the budgets of one distribution.

    `pld` and `rdp` are upper bounds, the latter what the paper would compute; where `lower`, a lower bound on the true
    cost, exceeds a budget, the promise is broken beyond dispute.
    """
    schedule = Schedule(settings["rounds"], settings["local_steps"], participation=settings["participation"])
    delta = settings["delta"]
    sigma = settings["noise_multiplier"] or calibrate_noise(
        schedule, epsilon=settings["max_epsilon"], delta=delta, accountant="rdp"
    )
    budgets = distribution(settings["distribution"], overrides=settings.get("overrides")).sample(
        settings["records"], settings["seed"]
    )
    curves: Curves = {
        name: PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant=name) for name in ("pld", "rdp")
    }
    q, rounds = METHODS[settings["method"]](curves, budgets)
    drawn = q > 0.0
    found: Numbers = {
        "noise_multiplier": sigma,
        "expected_batch": float(q.sum()),
        "left_out": int((~drawn).sum()),
    }
    costs: dict[str, Array] = {name: _cost(curve, q, rounds) for name, curve in curves.items()}
    costs["lower"] = _cost(curves["pld"], q, rounds, lower=True)
    for name, cost in costs.items():
        ratio = cost / budgets
        found[name] = {
            "mean": float(ratio.mean()),
            "largest": float(ratio.max()),
            "over": float((ratio > OVER).mean()),
        }
    return found


def _cost(curve: PrivacyCurve, q: Array, rounds: Array, *, lower: bool = False) -> Array:
    """The cost of each record for the rounds in which it is active: an upper bound, or a lower one."""
    cost = np.zeros(q.shape)
    for announced in np.unique(rounds[rounds > 0]):
        rows = np.flatnonzero((rounds == announced) & (q > 0.0))
        part = curve if announced == curve.schedule.rounds else curve.after(int(announced))
        levels, where = np.unique(q[rows], return_inverse=True)
        cost[rows] = (part.bounds(levels).lower if lower else part.epsilon(levels))[where]
    return cost


def _estimated(estimator: str, accountant: Accountant) -> Method:
    def chosen(curves: Curves, budgets: Array) -> tuple[Array, Array]:
        found = ESTIMATORS[estimator](curves[accountant], budgets)
        return found.q, found.active_rounds.astype(np.float64)

    return chosen


def _published(curves: Curves, budgets: Array) -> tuple[Array, Array]:
    """SCF as published: nobody checks what F gives."""
    return _all_rounds(curves, fit_curve(curves["rdp"]).probabilities(budgets))


def _type_1(curves: Curves, budgets: Array) -> tuple[Array, Array]:
    """The largest q whose cost by the paper's Type I formula, which is not a bound, is within the budget."""
    curve = curves["rdp"]
    grid = np.unique(np.concatenate([AUTHORS_CANDIDATES, np.geomspace(1e-4, 1.0, 400)]))
    claimed = paper_type_1(curve.schedule, grid, noise_multiplier=curve.noise_multiplier, delta=curve.target_delta)
    place = np.searchsorted(np.maximum.accumulate(claimed), budgets, side="right")
    return _all_rounds(curves, np.where(place > 0, grid[np.maximum(place - 1, 0)], 0.0))


def _uniform(level: Callable[[Array], float]) -> Method:
    def chosen(curves: Curves, budgets: Array) -> tuple[Array, Array]:
        common = level(budgets)
        q = curves["pld"].sampling_probability(common)
        return _all_rounds(curves, np.where(budgets >= common, q, 0.0))

    return chosen


def _everybody_at_mean(curves: Curves, budgets: Array) -> tuple[Array, Array]:
    q = curves["pld"].sampling_probability(float(budgets.mean()))
    return _all_rounds(curves, np.full(budgets.shape, q))


def _all_rounds(curves: Curves, q: Array) -> tuple[Array, Array]:
    return q, np.full(q.shape, float(curves["rdp"].schedule.rounds))


METHODS: dict[str, Method] = {
    "certified, PLD (ours)": _estimated("certified", "pld"),
    "certified, RDP": _estimated("certified", "rdp"),
    "binary search, RDP": _estimated("binary_search", "rdp"),
    "SCF as published": _published,
    "SCF under the accountant": _estimated("scf", "rdp"),
    "largest q by the paper's Type I": _type_1,
    "Minimum": _uniform(lambda budgets: float(budgets.min())),
    "Dropout": _uniform(lambda budgets: float(budgets.mean())),
    "uniform at the mean": _everybody_at_mean,
}


def section(results: Sequence[CellResult]) -> PageSection:
    """A table for each setting and distribution."""
    lines = [
        "Each method's probabilities for 1,000 budgets, priced afterwards. *PLD* and *RDP* are upper bounds of the two "
        "accountants, RDP being the paper's own. *Surely over* counts records whose cost exceeds the budget by a lower "
        "bound as well: for them the promise is broken beyond dispute. A method planned with PLD may be above 1 by "
        "RDP: RDP is the looser bound, so that is no overdraft. Σq is the expected batch of a step in which everybody "
        "is active; under the accountant some records of SCF end early. *SCF as published* is the pseudocode, which "
        "has no stop; the text speaks of one.",
        "",
    ]
    for (setting, drawn), group in grouped(finished(results), "setting", "distribution").items():
        values = group[0].settings
        sigma = group[0].numbers["noise_multiplier"]
        described = (
            f"T = {values['rounds']}, τ = {values['local_steps']}, λ = {values['participation']:g}, "
            f"δ = {values['delta']:g}, σ = {sigma:.4g}"
        )
        lines += [f"**{setting}, {drawn}** ({described})", ""]
        lines += table(COLUMNS, [_row(result) for result in group])
    return PageSection([*lines, *provenance(results)], verdicts=_verdicts(finished(results)))


def _row(result: CellResult) -> list[str]:
    found = result.numbers
    method = result.settings["method"]
    return [
        f"**{method}**" if method == OURS else method,
        f"{found['pld']['mean']:.3f}",
        f"{found['pld']['largest']:.3f}",
        f"{found['rdp']['largest']:.3f}",
        f"{found['rdp']['over']:.0%}",
        f"{found['lower']['over']:.0%}",
        f"{found['expected_batch']:.1f}",
    ]


def _verdicts(results: Sequence[CellResult]) -> list[Verdict]:
    ours = [result.numbers for result in results if result.settings["method"] == OURS]
    theirs = [result.numbers for result in results if result.settings["method"] == PUBLISHED]
    if not ours or not theirs:
        return []
    worst = max(theirs, key=_surely)
    largest = max(found["pld"]["largest"] for found in ours)
    return [
        Verdict(
            "soundness: records over budget, all settings",
            f"SCF without an early stop: up to {_surely(worst):.0%} of the records, by up to "
            f"{max(found['lower']['largest'] for found in theirs) - 1.0:.1%}, proven",
            f"none; largest share of a budget spent {largest:.4f}",
            largest <= 1.0,
        )
    ]


def _surely(found: Mapping[str, Any]) -> float:
    return float(found["lower"]["over"])


SUITE = Suite(
    "soundness",
    "Soundness: what each method really spends (ours)",
    cells,
    section,
    {"quick": 0.5, "cpu": 0.5, "full": 0.5},
)
