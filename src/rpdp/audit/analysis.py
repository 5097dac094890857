"""From observations to findings: ε_L of every budget group, and whether the build does what its plan says.

Everything is conditional on the rounds that the silo joined. With exactly k rounds that changes nothing. Where the
promise averages over a coin (participation λ), a run that happened to join many rounds has, given that, spent more than
the promise, and validly so (privacy.md, section 4): ε_L is then compared with the cost given the joined rounds of the
largest q that the budget can buy.

Persons with several records, or in several silos, are judged by the ε that they state. With a coin nobody has computed
what such a person may spend given the joined rounds, so their audit needs a fixed number of rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.audit.audit_result import AuditResult, GroupFinding
from rpdp.audit.conformance import conformance
from rpdp.audit.lower_bound import bound, choose_cut
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.audit.canary_law import CanaryLaw
    from rpdp.audit.tally import Tally
    from rpdp.planning import PublicPlan
    from rpdp.sampling import Randomness


_THRESHOLDS = 2_001
_LEAST_CHANCE = 1e-9
"""Smaller probabilities lose digits as differences from 1."""


def require_confidence(confidence: float) -> None:
    """Refuse a confidence outside (0, 1)."""
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence={confidence} must lie strictly between 0 and 1")


def promised_delta(public: PublicPlan) -> float:
    """The δ at which the promise of a run that may take everything holds."""
    return public.delta if public.lifetime_delta is None else public.lifetime_delta


def require_fixed_rounds(public: PublicPlan) -> None:
    """Refuse a coin for persons with several records, or in several silos."""
    if public.schedule.count().probabilities().max() < 1.0 - 1e-12:
        raise InputError(
            f"{public.schedule.describe()}: the audit of persons with several records or silos needs a fixed number of "
            "rounds, because what a person may spend given the joined rounds is not known; audit the same run with "
            "participations = K, or participation = 1.0"
        )


def analyse(
    tally: Tally, public: PublicPlan, joined: Sequence[int], confidence: float, randomness: Randomness
) -> AuditResult:
    """ε_L of every group and all conformance tests, from observations, however they were obtained.

    Args:
        tally: The observations.
        public: The plan that was run.
        joined: Rounds that each silo joined; every canary that is in has records in all of them.
        confidence: With which all lower bounds hold together.
        randomness: For choosing where to guess; independent of the run's.
    """
    if tally.observations == 0:
        raise InputError(
            "the silo joined no round, so there is nothing to audit; try again (a simulation with another "
            "seed), or with more rounds"
        )
    canaries, error = tally.canaries, (1.0 - confidence) / len(tally.laws)
    delta = promised_delta(public)
    is_person = len(joined) > 1 or canaries.records > 1
    if is_person:
        require_fixed_rounds(public)
    given = public.curve_at(delta).given(max(joined))
    largest = public.curve_at(delta).sampling_probability(canaries.groups)
    findings = []
    for number, (epsilon, law) in enumerate(zip(canaries.groups, tally.laws, strict=True)):
        rows = canaries.rows(number)
        stream = randomness.child(number)
        cut = choose_cut(law, tally.observations, canaries.per_group, delta, error, stream)
        findings.append(
            GroupFinding(
                epsilon,
                law.planned,
                epsilon if is_person else max(epsilon, given.epsilon(float(largest[number]))),
                max(float(given.bounds(law.planned).lower[0]), _proven_by_sums(law.total(tally.observations), delta)),
                int(canaries.taken[rows].sum()),
                canaries.per_group,
                bound(tally.scores[rows], canaries.taken[rows], cut, delta, error),
            )
        )
    return AuditResult(
        view="steps" if tally.laws[0].releases == 1 else "rounds",
        groups=tuple(findings),
        tests=tuple(conformance(tally, public.schedule, joined)),
        confidence=confidence,
        delta=delta,
        noise_multiplier=public.noise_multiplier,
        rounds=public.schedule.rounds * len(joined),
        joined=sum(joined),
        observations=tally.observations,
        records=0,
        kernel="",
        plan=public.fingerprint,
        seed=None,
        seconds=0.0,
        records_per_person=canaries.records,
        silos=len(joined),
    )


def _proven_by_sums(law: CanaryLaw, delta: float) -> float:
    """ε that somebody proves who looks at the sum of all observations alone: a lower bound, by computation.

    From the probabilities that the sum is above, or below, a threshold: log((a − δ) / b) at the best of many.
    """
    if law.probability == 0.0:
        return 0.0
    where = np.linspace(*law.range, _THRESHOLDS)
    below = law.below(where, taken=True), law.below(where, taken=False)
    best = 0.0
    for right, wrong in ((1.0 - below[0], 1.0 - below[1]), (below[1], below[0])):
        seen = (wrong > _LEAST_CHANCE) & (right > delta)
        best = max(best, float(np.log((right[seen] - delta) / wrong[seen]).max(initial=0.0)))
    return best
