"""What a private evaluation would find out, from public numbers alone, before anything is spent.

Everything comes from declarations: how strict people are, how many records silos hold out, how common class 1 is. With
these a test set is made up, its sums get the noise that the run would add, and the same code as afterwards makes the
intervals. So what is foreseen is what will come, as far as the declarations are true.

The noise s is chosen for the narrowest interval of the first metric. More noise lets more records pay (`everyone`) or
gives each of them more weight (`representative`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.noise_limits import LARGEST_NOISE
from rpdp.checks import require_count, require_fraction
from rpdp.errors import InputError
from rpdp.planning import noise_for_weight_1
from rpdp.planning.public_plan import PublicPlan
from rpdp.planning.request import Request
from rpdp.statistics.estimate import LEVEL
from rpdp.statistics.evaluation_measures import CLASSES, ERRORS, EvaluationMeasure
from rpdp.statistics.evaluation_results import evaluate
from rpdp.statistics.noisy_sums import NoisySums
from rpdp.statistics.score_counts import contribution

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from rpdp.planning.request import RequestEstimator
    from rpdp.statistics.estimate import NoisyEstimate

_RELEASES = 5
"""So many made-up releases; the middle width counts. Their seeds are fixed."""

_CANDIDATES = 8
"""So many noises are compared."""

QUALITY = 0.8
"""The accuracy, recall of both classes and AUC of the made-up model; nothing is known of the real one."""


@dataclass(frozen=True)
class DeclaredTest:
    """What is declared of held-out records.

    Args:
        records: How many a silo has.
        silos: How many silos there are. Each adds its own noise.
        positives: The share of class 1. An evaluation of two classes is as good as its smaller class.
    """

    records: int
    silos: int = 1
    positives: float = 0.5

    def __post_init__(self) -> None:
        require_count("records", self.records)
        require_count("silos", self.silos)
        if require_fraction("positives", self.positives) >= 1.0:
            raise InputError(f"positives={self.positives} must be below 1: there are two classes")


@dataclass(frozen=True)
class EvaluationOutlook:
    """A plan for an evaluation, and how wide its intervals will be.

    Attributes:
        public: The plan.
        mean_weight: The mean weight of a record; by `everyone` the share of records that take part.
        metrics: Estimates with intervals as wide as are to be expected. Their values mean nothing.
    """

    public: PublicPlan
    mean_weight: float
    metrics: tuple[NoisyEstimate, ...]

    @property
    def half_width(self) -> float:
        """Of the first metric."""
        return self.metrics[0].half_width

    def lines(self) -> list[str]:
        """In words, for people who decide whether to spend that."""
        assert self.public.request is not None
        widths = ", ".join(f"{one.name} ± {one.half_width:.2g}" for one in self.metrics)
        models = self.public.schedule.rounds
        together = f" for all {models:,} models together" if models > 1 else ""
        who = "of the held-out records take part" if self.public.request.estimator == "everyone" else "mean weight"
        return [
            f"private evaluation ({self.public.request.estimator}, s = {self.public.noise_multiplier:.3g}): "
            f"{100 * self.mean_weight:.0f} % {who}",
            f"to be expected, at {100 * LEVEL:g} %{together}: {widths}",
        ]


def plan_evaluation(
    measure: EvaluationMeasure,
    test: DeclaredTest,
    budgets: NDArray[np.float64],
    *,
    delta: float,
    estimator: RequestEstimator = "everyone",
    rounds: int = 1,
    level: float = LEVEL,
    **settings: Any,
) -> EvaluationOutlook:
    """The plan with the narrowest interval for the first metric, from declarations alone.

    Args:
        measure: What to measure.
        test: What is declared of the held-out records.
        budgets: Declared budgets ε, as `Distribution.sample` draws them; never the real ones.
        delta: δ of the run.
        estimator: "everyone" or "representative".
        rounds: How many models are evaluated.
        level: The level of the intervals of each.
        **settings: Other settings of the plan, such as share, study, or fingerprints.

    >>> outlook = plan_evaluation(EvaluationMeasure.for_metrics(["accuracy"], classes=2), DeclaredTest(2000),
    ...                           np.array([1.0, 5.0]), delta=1e-4, share=0.5)
    >>> outlook.mean_weight, round(outlook.half_width, 3)
    (0.5, 0.003)
    """
    request = Request(estimator, (measure.spec(),))
    plan = PublicPlan.of_request(
        request, noise_multiplier=1.0, delta=delta, purpose="evaluation", rounds=rounds, **settings
    )
    needed = noise_for_weight_1(plan, budgets)
    payable = needed[needed <= LARGEST_NOISE]
    if payable.size == 0:
        raise InputError("no declared budget pays for any evaluation; give it a larger share")
    candidates = np.unique(np.quantile(payable, np.linspace(0.0, 1.0, _CANDIDATES), method="higher"))
    plans = [replace(plan, noise_multiplier=float(one)) for one in candidates]
    outlooks = [_outlook(one, needed, measure, test, level) for one in plans]
    # Where no interval says anything, the one that is nearest to saying something: the least noise for a mean weight.
    return min(outlooks, key=lambda one: (one.half_width, one.public.noise_multiplier / max(one.mean_weight, 1e-12)))


def _outlook(
    public: PublicPlan, needed: NDArray[np.float64], measure: EvaluationMeasure, test: DeclaredTest, level: float
) -> EvaluationOutlook:
    assert public.request is not None
    noise = public.noise_multiplier
    everyone = public.request.estimator == "everyone"
    weights = (needed <= noise).astype(float) if everyone else np.minimum(noise / needed, 1.0)
    mean = float(weights.mean())
    expected = _expected_cells(measure, mean * test.records * test.silos, test.positives)
    deviation = noise * public.request.norm * float(np.sqrt(test.silos))
    return EvaluationOutlook(public, mean, _middle(public.request, expected, deviation, level))


def _middle(
    request: Request, expected: NDArray[np.float64], deviation: float, level: float
) -> tuple[NoisyEstimate, ...]:
    """Of each metric the estimate of middle width, over made-up releases."""
    found = []
    for seed in range(_RELEASES):
        cells = expected + deviation * np.random.default_rng(seed).standard_normal(expected.size)
        found.append(
            evaluate(NoisySums(request, cells, deviation, ("made up",)), level=level, details=False)[0].metrics
        )
    ordered = [sorted(each, key=lambda one: one.half_width) for each in zip(*found, strict=True)]
    return tuple(each[_RELEASES // 2] for each in ordered)


def _expected_cells(measure: EvaluationMeasure, records: float, positives: float) -> NDArray[np.float64]:
    """The sums of a made-up test set, divided evenly among groups."""
    groups = max(1, len(measure.levels))
    if measure.kind == ERRORS:
        one = np.array([1.0, *(0.25 if name == "mae" else 0.125 for name in measure.metrics)]) / np.sqrt(measure.size)
        return np.tile(one * records / groups, groups)
    if measure.kind == CLASSES:
        classes = measure.classes
        shares = np.array([1.0 - positives, positives]) if classes == 2 else np.full(classes, 1.0 / classes)
        wrong = (1.0 - QUALITY) / (classes - 1)
        table = np.outer(shares, np.full(classes, wrong)) + np.diag(shares * (QUALITY - wrong))
        return np.tile(table.ravel() * records / groups, groups)
    counts = np.stack([_normal(measure, -1.0)[::-1] * (1.0 - positives), _normal(measure, 1.0) * positives])
    part = contribution(measure.bins)
    running = np.stack([np.convolve(each, part)[: measure.bins] for each in counts])
    return np.tile(running.ravel() * records / groups, groups)


def _normal(measure: EvaluationMeasure, sign: float) -> NDArray[np.float64]:
    """The shares of bins for logits that are normal with deviation 1, with the AUC of the made-up model."""
    law = NormalDist(sign * NormalDist().inv_cdf(QUALITY) / np.sqrt(2.0))
    below = np.array([0.0, *(law.cdf(float(edge)) for edge in measure.edges), 1.0])
    return np.diff(below)
