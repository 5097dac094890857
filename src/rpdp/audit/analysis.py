"""From observations to findings: ε_L of every budget group, and whether the build does what its plan says.

Everything is conditional on the rounds that the silo joined. With exactly k rounds that changes nothing. Where the
promise averages over a coin (participation λ), a run that happened to join many rounds has, given that, spent more than
the promise, and validly so (privacy.md, section 4): ε_L is then compared with the cost given the joined rounds of the
largest q that the budget can buy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.audit.audit_result import AuditResult, GroupFinding
from rpdp.audit.conformance import conformance
from rpdp.audit.lower_bound import bound, choose_cut
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.audit.tally import Tally
    from rpdp.planning import PublicPlan
    from rpdp.sampling import Randomness


def require_confidence(confidence: float) -> None:
    """Refuse a confidence outside (0, 1)."""
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence={confidence} must lie strictly between 0 and 1")


def analyse(tally: Tally, public: PublicPlan, joined: int, confidence: float, randomness: Randomness) -> AuditResult:
    """ε_L of every group and all conformance tests, from observations, however they were obtained.

    Args:
        tally: The observations.
        public: The plan that was run.
        joined: Rounds that the silo joined.
        confidence: With which all lower bounds hold together.
        randomness: For choosing where to guess; independent of the run's.
    """
    if tally.observations == 0:
        raise InputError(
            "the silo joined no round, so there is nothing to audit; try again (a simulation with another "
            "seed), or with more rounds"
        )
    canaries, error = tally.canaries, (1.0 - confidence) / len(tally.laws)
    given = public.curve.given(joined)
    largest = public.curve.sampling_probability(canaries.groups)
    findings = []
    for number, (epsilon, law) in enumerate(zip(canaries.groups, tally.laws, strict=True)):
        rows = canaries.rows(number)
        stream = randomness.child(number)
        cut = choose_cut(law, tally.observations, canaries.per_group, public.delta, error, stream)
        findings.append(
            GroupFinding(
                epsilon,
                law.probability,
                max(epsilon, given.epsilon(float(largest[number]))),
                float(given.bounds(law.probability).lower[0]),
                int(canaries.taken[rows].sum()),
                canaries.per_group,
                bound(tally.scores[rows], canaries.taken[rows], cut, public.delta, error),
            )
        )
    return AuditResult(
        view="steps" if tally.laws[0].releases == 1 else "rounds",
        groups=tuple(findings),
        tests=tuple(conformance(tally, public.schedule, joined)),
        confidence=confidence,
        delta=public.delta,
        noise_multiplier=public.noise_multiplier,
        rounds=public.schedule.rounds,
        joined=joined,
        observations=tally.observations,
        records=0,
        kernel="",
        plan=public.fingerprint,
        seed=None,
        seconds=0.0,
    )
