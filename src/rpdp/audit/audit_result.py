"""The result of an audit, in numbers and in sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from rpdp.audit.conformance import FALSE_ALARM, Test, combined
from rpdp.planning.words import words_for

if TYPE_CHECKING:
    from rpdp.audit.lower_bound import LowerBound
    from rpdp.planning import Purpose

View = Literal["steps", "rounds"]
VIEWS: tuple[View, ...] = ("steps", "rounds")


@dataclass(frozen=True)
class GroupFinding:
    """One budget group.

    Attributes:
        epsilon: What its records allow.
        probability: q that the silo's plan gave them, or their weight w in a run with a request.
        allowed: What may be spent given the rounds that were joined: ε itself where their number is fixed.
        least_cost: A lower bound on what q costs given those rounds, by computation: above `allowed` is a broken plan.
        members: Canaries that were in.
        canaries: Canaries, in and out.
        bound: ε_L and where it comes from.
    """

    epsilon: float
    probability: float
    allowed: float
    least_cost: float
    members: int
    canaries: int
    bound: LowerBound

    @property
    def is_broken(self) -> bool:
        """Whether the promise to this group is proven to be broken."""
        return self.bound.epsilon > self.allowed or self.least_cost > self.allowed


@dataclass(frozen=True)
class AuditResult:
    """An audited run.

    Attributes:
        view: "steps" for an attacker who sees every local step, "rounds" for one who sees released updates.
        groups: In the order of their budgets.
        tests: Of conformance.
        confidence: With which all ε_L hold together.
        delta: δ of the plan.
        noise_multiplier: σ of the plan.
        rounds: Announced, to all silos together.
        joined: Rounds that they joined.
        observations: Per canary.
        records: Ordinary records of the silo beside the canaries.
        kernel: Which kernel computed the clipped sums.
        plan: Fingerprint of the audited public plan.
        seed: Of the simulation; None where randomness was secure.
        seconds: How long it took.
        ledger: What the verification of the silo's ledger found wrong; None in a simulation, which has no ledger.
        records_per_person: How many records a canary person has in each silo.
        silos: In how many silos a canary person has records.
        purpose: What the run is for.
    """

    view: View
    groups: tuple[GroupFinding, ...]
    tests: tuple[Test, ...]
    confidence: float
    delta: float
    noise_multiplier: float
    rounds: int
    joined: int
    observations: int
    records: int
    kernel: str
    plan: str
    seed: int | None
    seconds: float
    ledger: tuple[str, ...] | None = None
    records_per_person: int = 1
    silos: int = 1
    purpose: Purpose = "training"

    @property
    def who(self) -> str:
        """Who allows a budget: records, or the persons whose records were planted together."""
        if self.silos == 1 and self.records_per_person == 1:
            return "records that allow"
        records = "1 record" if self.records_per_person == 1 else f"{self.records_per_person} records"
        where = "" if self.silos == 1 else f" in each of {self.silos} silos"
        return f"persons with {records}{where}, who allow"

    @property
    def planted(self) -> str:
        """The canaries in words."""
        if self.silos == 1 and self.records_per_person == 1:
            return f"{self.canaries:,} canaries"
        return f"{self.canaries:,} canary {self.who.partition(',')[0]}"

    @property
    def canaries(self) -> int:
        """Of all groups, in and out."""
        return sum(group.canaries for group in self.groups)

    @property
    def p_value(self) -> float:
        """Of all conformance tests together."""
        return combined(self.tests)

    @property
    def conforms(self) -> bool:
        """Whether nothing speaks against the build doing what its plan says."""
        return self.p_value >= FALSE_ALARM

    @property
    def broken(self) -> tuple[GroupFinding, ...]:
        """Groups whose promise is proven to be broken."""
        return tuple(group for group in self.groups if group.is_broken)

    @property
    def is_simulation(self) -> bool:
        """Whether the audit was a simulation: seeded and without a ledger. No real record is charged either way."""
        return self.ledger is None

    @property
    def passed(self) -> bool:
        """No broken promise, no departure from the plan, and nothing wrong with the ledger."""
        return self.conforms and not self.broken and not self.ledger

    @property
    def suspects(self) -> tuple[Test, ...]:
        """The tests that speak against the build, the clearest first."""
        found = [test for test in self.tests if test.p_value * len(self.tests) < FALSE_ALARM]
        return tuple(sorted(found, key=lambda test: test.p_value))

    def verdict(self) -> list[str]:
        """The result in sentences."""
        return [*self._about_promises(), *self._about_conformance(), *self._about_ledger()]

    def _about_promises(self) -> list[str]:
        sure = f"confidence {100.0 * self.confidence:.4g} %"
        if not self.broken:
            unit = self.who.partition(" ")[0]
            best = max(self.groups, key=lambda group: group.bound.epsilon / group.epsilon)
            return [
                f"No promise is broken: in no budget group could an attacker prove more than its {unit} allow "
                f"({sure}; closest is ε = {best.epsilon:g}, where ε ≥ {best.bound.epsilon:.3g} is proven)."
            ]
        said, symbol = [], words_for(self.purpose).symbol
        for group in self.broken:
            proof = (
                f"an attacker proves ε ≥ {group.bound.epsilon:.3g} ({sure})"
                if group.bound.epsilon > group.allowed
                else f"the plan gives them {symbol} = {group.probability:.4g}, which costs ε ≥ {group.least_cost:.3g}"
            )
            limit = f"ε = {group.epsilon:g}"
            if group.allowed > group.epsilon * (1.0 + 1e-9):
                limit += f" ({group.allowed:.3g} given that {self.joined} rounds were joined)"
            said.append(f"BROKEN PROMISE: {self.who} {limit}: {proof}.")
        return said

    def _about_conformance(self) -> list[str]:
        if self.conforms:
            p_value = f"p = {self.p_value:.2g}"
            return [f"The build does what its plan says, as far as {len(self.tests)} tests can tell ({p_value})."]
        worst = ", ".join(f"{test.name} (p = {test.p_value:.1e})" for test in self.suspects[:4])
        more = f" and {len(self.suspects) - 4} more" if len(self.suspects) > 4 else ""
        return [
            f"DOES NOT CONFORM: releases do not follow the law of the plan (p = {self.p_value:.1e}; this happens to "
            f"an honest build once in {1 / FALSE_ALARM:,.0f} audits): {worst}{more}. Budgets cannot be trusted until "
            "it does."
        ]

    def _about_ledger(self) -> list[str]:
        if self.ledger is None:
            return []
        if not self.ledger:
            return ["Its ledger verifies."]
        more = f" and {len(self.ledger) - 4} more" if len(self.ledger) > 4 else ""
        return [
            f"ITS LEDGER DOES NOT VERIFY: {'; '.join(self.ledger[:4])}{more}. Its bookings cannot be trusted until it "
            "does."
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        own = {name: value for name, value in vars(self).items() if name not in ("groups", "tests")}
        groups = [{**asdict(group), "broken": group.is_broken} for group in self.groups]
        return {
            **own,
            "is_simulation": self.is_simulation,
            "passed": self.passed,
            "conforms": self.conforms,
            "p_value": self.p_value,
            "false_alarm": FALSE_ALARM,
            "verdict": self.verdict(),
            "groups": groups,
            "tests": [asdict(test) for test in self.tests],
        }
