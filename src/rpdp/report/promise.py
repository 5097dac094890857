"""The box that says what a run promises, to whom, against whom, and what it does not cover.

Everything in it follows from the public plan, the rounds as the server saw them and the given words, so it is the same
in both editions, but for the origin of the budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rpdp.report.page import Column, banner, definitions, table

if TYPE_CHECKING:
    from rpdp.planning import PublicPlan
    from rpdp.report.report_runs import ReportRuns

_REFERENCE_PROBABILITIES = (0.001, 0.01, 0.1, 1.0)
_MOST_WEIGHTS = 12

_ACCOUNTANTS = {
    "pld": "privacy-loss distributions, and the Rényi bound where that is smaller",
    "rdp": "Rényi moments with the tight conversion",
}
_NAMES = {
    "sgd": "SGD",
    "adam": "Adam",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "fedavgm": "FedAvgM",
    "fedadam": "FedAdam",
}

TREATED_AS_PUBLIC = (
    "the schedule, σ, δ, the clip norm, the normaliser, the weights and the recipe",
    "the model's architecture and where its training started",
    "which silos there are, who took part in which round, and whose update was rejected",
    "every update, every global model, and whatever is computed from them",
    "the test records",
)

NOT_COVERED = (
    "A person behind several records: the unit is one record.",
    "Time: how long a silo takes to answer can depend on how many records it drew.",
    "Tuning: settings that were chosen by looking at private data, such as a learning rate, σ or the clip norm.",
    "Preparation of the data with statistics of a silo's own records, such as their mean and deviation.",
    "Test records: accuracy is measured on them without noise; where they belong to people, those are not protected.",
)


def promise_box(comparison: ReportRuns) -> str:
    """The whole box, as HTML."""
    inner = _promising(comparison) if comparison.is_protected else _unprotected(comparison)
    return f'<section class="promise">{inner}</section>'


def randomness_is_open(comparison: ReportRuns) -> bool:
    """Whether the promise depends on a coin that the observer sees, so that a cost given the coins is worth telling."""
    count = comparison.subject.public.schedule.count()
    return comparison.is_protected and float(count.probabilities().max()) < 1.0 - 1e-12


def _unprotected(comparison: ReportRuns) -> str:
    public = comparison.subject.public
    return banner(
        f"Method {comparison.name} promises nothing: the model may reveal any record it was trained on.", "warn"
    ) + definitions(
        [
            ("Schedule", public.schedule.describe()),
            ("Training", _recipe(public)),
            ("Weights of the silos", _weights(public)),
            *_budgets(comparison),
            ("Not covered", ["everything", *public.notes, *comparison.facts.notes]),
        ]
    )


def _promising(comparison: ReportRuns) -> str:
    public = comparison.subject.public
    entries: list[tuple[str, str | list[str]]] = [
        (
            "Promise",
            f"Method {comparison.name}: {comparison.promise(comparison.name)}. For a record that is promised ε, the "
            f"whole run is (ε, δ)-differentially private at δ = {public.delta:g}.",
        ),
        ("Unit", "One record."),
        ("Neighbours", "Two data sets that differ by adding or removing one record."),
        ("Observer", "Sees every update of every silo and who took part in which round, and knows the public plan."),
        ("δ", f"{public.delta:g}, public and the same for all records."),
        *_budgets(comparison),
        ("Schedule", f"{public.schedule.describe()}. {_participation(comparison)}"),
        (
            "Mechanism",
            f"Each local step draws every record independently with its own probability q, clips its gradient to "
            f"L = {public.clip_norm:g}, adds Gaussian noise of deviation σL with σ = {public.noise_multiplier:.6g}, "
            f"and divides by B = {public.normaliser:.6g}, a public constant.",
        ),
        ("Training", _recipe(public)),
        ("Weights of the silos", _weights(public)),
        ("Randomness", _randomness(comparison)),
        ("Treated as public", list(TREATED_AS_PUBLIC)),
        ("Not covered", _not_covered(comparison)),
        ("Plan", f"fingerprint {public.fingerprint}"),
        ("Accountant", f"{public.accountant}: {_ACCOUNTANTS[public.accountant]}. Upper bounds are booked."),
    ]
    return definitions(entries) + _error_of_the_accountant(public)


def _error_of_the_accountant(public: PublicPlan) -> str:
    bounds = public.curve.bounds(_REFERENCE_PROBABILITIES)
    rows = [
        [f"{q:g}", f"{lower:.4g}", f"{upper:.4g}"]
        for q, lower, upper in zip(_REFERENCE_PROBABILITIES, bounds.lower, bounds.upper, strict=True)
    ]
    columns = [Column("q"), Column("ε at least"), Column("ε at most")]
    caption = "The accountant's error: the true cost of a record with sampling probability q lies between these bounds."
    return table(columns, rows, caption=caption, stack=False)


def _participation(comparison: ReportRuns) -> str:
    schedule = comparison.subject.public.schedule
    if schedule.participations is not None:
        return (
            "Each silo drew its rounds itself when it admitted the plan; the promise holds for that number of rounds."
        )
    if not randomness_is_open(comparison):
        return "Every silo takes part in every round."
    cap = ", until it has joined as many as the cap allows" if schedule.max_participations else ""
    return (
        f"Each silo flips its own coin in every round{cap}. The promise averages over these coins, which the observer "
        "sees; the table of the silos also shows the cost given the rounds that were really joined."
    )


def _randomness(comparison: ReportRuns) -> str:
    if comparison.subject.is_simulation:
        return (
            "Seeded: a simulation. Whoever knows or guesses the seed can remove the noise, so the promise above is "
            "what a run with secure randomness would keep."
        )
    return "Cryptographically secure and fresh; every silo draws its own coins, records and noise."


def _not_covered(comparison: ReportRuns) -> list[str]:
    said = [*comparison.subject.public.notes, *comparison.facts.notes, *NOT_COVERED]
    others = sorted(comparison.unprotected)
    if others:
        said.append(f"Models of methods that promise nothing and are shown to compare: {', '.join(others)}.")
    return said


def _budgets(comparison: ReportRuns) -> list[tuple[str, str]]:
    budgets = comparison.facts.budgets
    return [("Budgets", budgets)] if budgets and comparison.for_silo else []


def _recipe(public: PublicPlan) -> str:
    recipe = public.recipe
    momentum = f" with momentum {recipe.momentum:g}" if recipe.momentum else ""
    settings = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in recipe.backbone_settings.items())
    return (
        f"{_NAMES[recipe.optimiser]}{momentum} in the silos, learning rate {recipe.learning_rate:g}; "
        f"{_NAMES[recipe.backbone]} at the server{f' ({settings})' if settings else ''}."
    )


def _weights(public: PublicPlan) -> str:
    if not isinstance(public.weights, Mapping):
        return "The same for all."
    if len(public.weights) > _MOST_WEIGHTS:
        return f"From {min(public.weights.values()):g} to {max(public.weights.values()):g}; see the table of the silos."
    return ", ".join(f"{silo}: {weight:g}" for silo, weight in public.weights.items())
