"""The public plan: the contract between server and silos. It contains nothing that depends on any record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rpdp.accounting import ACCOUNTANTS, Accountant, PrivacyCurve, Schedule
from rpdp.accounting.delta_table import DeltaTable
from rpdp.accounting.divergence import DivergenceCurve
from rpdp.accounting.gaussian_curve import GaussianCurve, GaussianDeltaTable, GaussianDivergence
from rpdp.budgets.account_kinds import ACCOUNT_KINDS, MOST_SILOS_PER_PERSON, AccountKind
from rpdp.checks import (
    require_choice,
    require_count,
    require_delta,
    require_fraction,
    require_number,
    require_positive,
)
from rpdp.display import html_table
from rpdp.errors import InputError, PlanError, TamperedPlanError
from rpdp.planning.allowances import PURPOSES, Purpose
from rpdp.planning.assignment import assign
from rpdp.planning.recipe import Recipe
from rpdp.planning.request import Request
from rpdp.planning.words import words_for

if TYPE_CHECKING:
    from rpdp.accounting.costs import CostCurve, DeltaCosts, DivergenceCosts
    from rpdp.budgets import BudgetTable
    from rpdp.planning.silo_plan import SiloPlan

FORMATS = ("rpdp-public-plan/1", "rpdp-public-plan/2")
"""Format 2 has the settings of `_NEWER`. A plan that leaves all of them as they are is written in format 1."""

_NEWER: dict[str, Any] = {
    "purpose": "training",
    "study": "",
    "share": None,
    "silos_per_person": 1,
    "account": None,
    "lifetime_delta": None,
    "schema_fingerprint": None,
    "request": None,
}

TUNED_ON_BUDGETS = (
    "not covered: a public setting of this plan was chosen by looking at real budgets; what that choice reveals about "
    "them is outside the promise"
)


@dataclass(frozen=True)
class PublicPlan:
    """All settings of a run that server and silos must agree on. It is frozen, and its fingerprint covers all of it.

    Args:
        schedule: Rounds, local steps and participation.
        noise_multiplier: σ, the standard deviation of the noise divided by the clip norm.
        delta: δ of the run, the same for all records.
        clip_norm: L, the largest influence of one record on one step.
        normaliser: B, the public divisor of the noisy sum. Choose it from declared sizes, never from a batch.
        weights: Weights of the silos in the average: one number for all, the default, or a mapping by silo. Choose them
            from declared sizes.
        recipe: How silos train and how the server averages; no effect on any cost.
        accountant: "pld" (default) or "rdp".
        model_fingerprint: Hash of the model's architecture, if it is already fixed.
        notes: What the promise of this plan does not cover, in words.
        purpose: What the run is for: "training", "evaluation" or "statistics". Silos book it.
        study: The name of the study that the run belongs to. Silos book it.
        share: The largest share of a lifetime budget that the run asks for; None leaves it to each silo's policy.
        silos_per_person: In how many silos of the federation a person may ever have an account.
        account: The kind of account of all silos, "renyi" or "sums"; needed if `silos_per_person` is above 1.
        lifetime_delta: The lifetime δ of all silos; needed if `silos_per_person` is above 1.
        schema_fingerprint: Hash of the schema by which all silos turn rows of tables into numbers; None without tables.
        request: What a run of statistics or evaluation measures; None for training.

    >>> plan = PublicPlan(Schedule(15, 50, participations=8), noise_multiplier=10.0, delta=1e-4, clip_norm=1.0,
    ...                   normaliser=64, weights=1.0)
    >>> PublicPlan.from_json(plan.to_json()) == plan
    True
    """

    schedule: Schedule
    _: KW_ONLY
    noise_multiplier: float
    delta: float
    clip_norm: float
    normaliser: float
    weights: float | Mapping[str, float] = 1.0
    recipe: Recipe = field(default_factory=Recipe)
    accountant: Accountant = "pld"
    model_fingerprint: str | None = None
    notes: tuple[str, ...] = ()
    purpose: Purpose = "training"
    study: str = ""
    share: float | None = None
    silos_per_person: int = 1
    account: AccountKind | None = None
    lifetime_delta: float | None = None
    schema_fingerprint: str | None = None
    request: Request | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise InputError(f"schedule={self.schedule!r} must be a rpdp.Schedule")
        for name in ("noise_multiplier", "clip_norm", "normaliser"):
            object.__setattr__(self, name, require_positive(name, getattr(self, name)))
        object.__setattr__(self, "delta", require_delta("delta", self.delta))
        object.__setattr__(self, "weights", _checked_weights(self.weights))
        if not isinstance(self.recipe, Recipe):
            raise InputError(f"recipe={self.recipe!r} must be a rpdp.Recipe")
        if self.accountant not in ACCOUNTANTS:
            raise InputError(f"accountant={self.accountant!r} must be one of {', '.join(ACCOUNTANTS)}")
        if isinstance(self.notes, str) or not all(isinstance(note, str) for note in self.notes):
            raise InputError(f"notes={self.notes!r} must be a list of strings")
        for name in ("model_fingerprint", "schema_fingerprint"):
            if not isinstance(getattr(self, name), str | None):
                raise InputError(f"{name}={getattr(self, name)!r} must be text")
        object.__setattr__(self, "notes", tuple(self.notes))
        self._check_accounts()
        self._check_request()

    def _check_request(self) -> None:
        """Refuse a request in a plan for training, none in another, and settings that its sums do not have."""
        if self.request is None and self.purpose == "training":
            return
        if not isinstance(self.request, Request) or self.purpose == "training":
            raise InputError(
                f"purpose={self.purpose!r} with request={self.request!r}: a plan for statistics or evaluation needs a "
                "rpdp.planning.Request, and a plan for training must not have one"
            )
        weights = self.weights.values() if isinstance(self.weights, Mapping) else [self.weights]
        fixed = {
            "schedule.participation": (self.schedule.participation, 1.0),
            "schedule.max_participations": (self.schedule.max_participations, None),
            "schedule.local_steps": (self.schedule.local_steps, 1),
            "clip_norm": (self.clip_norm, self.request.norm),
            "normaliser": (self.normaliser, 1.0),
            "every weight": (1.0 if all(weight == 1.0 for weight in weights) else None, 1.0),
            "recipe": (self.recipe, Recipe()),
            "accountant": (self.accountant, "pld"),
        }
        wrong = [f"{name}={given!r}, not {due!r}" for name, (given, due) in fixed.items() if given != due]
        if wrong:
            raise InputError(
                f"a plan with a request adds up what all silos release, once in every round, so it must have the "
                f"settings of that: {'; '.join(wrong)}. Make it with PublicPlan.of_request"
            )

    @classmethod
    def of_request(
        cls,
        request: Request,
        *,
        noise_multiplier: float,
        delta: float,
        purpose: Purpose,
        rounds: int = 1,
        **settings: Any,
    ) -> PublicPlan:
        """The plan of a run that releases the sums of a request in each of its rounds, from all silos.

        Args:
            request: The measures.
            noise_multiplier: s, the standard deviation of the noise on each cell divided by `request.norm`. A record of
                weight w pays for a Gaussian of multiplier s/(w√rounds).
            delta: δ of the run.
            purpose: "statistics" or "evaluation".
            rounds: How often the sums are released.
            settings: Further settings of the plan, such as study, share, weights by silo, or fingerprints.
        """
        schedule = Schedule(rounds, 1, participation=1.0)
        sums = {"clip_norm": request.norm, "normaliser": 1.0, "weights": 1.0, "noise_multiplier": noise_multiplier}
        return cls(schedule, **{**sums, **settings}, delta=delta, purpose=purpose, request=request)

    def _check_accounts(self) -> None:
        require_choice("purpose", self.purpose, PURPOSES)
        if not isinstance(self.study, str):
            raise InputError(f"study={self.study!r} must be text")
        if self.share is not None:
            object.__setattr__(self, "share", require_fraction("share", self.share))
        require_count("silos_per_person", self.silos_per_person, most=MOST_SILOS_PER_PERSON)
        if self.account is not None:
            require_choice("account", self.account, ACCOUNT_KINDS)
        if self.lifetime_delta is not None:
            object.__setattr__(self, "lifetime_delta", require_delta("lifetime_delta", self.lifetime_delta))
        if self.silos_per_person > 1 and (self.account is None or self.lifetime_delta is None):
            raise InputError(
                f"silos_per_person={self.silos_per_person}: a person's accounts must fit together, so the plan must "
                "also state account and lifetime_delta, the same for all silos"
            )

    def __repr__(self) -> str:
        promise = f"{words_for(self.purpose).noise} = {self.noise_multiplier:g}, δ = {self.delta:g}"
        return f"PublicPlan({self.describe()}, {promise}, fingerprint {self.fingerprint[:12]}…)"

    def describe(self) -> str:
        """What the run releases and how often, in one line of text."""
        if self.request is None:
            return self.schedule.describe()
        releases = "1 release" if self.schedule.rounds == 1 else f"{self.schedule.rounds:,} releases"
        cells = "1 cell" if self.request.size == 1 else f"{self.request.size:,} cells"
        return f"{releases} of {cells}, estimator {self.request.estimator}"

    @property
    def pricing(self) -> str:
        """How costs at the plan's δ are computed: by which accountant, or exactly."""
        return f"{self.accountant} accountant" if self.request is None else "exact price of a Gaussian"

    def _repr_html_(self) -> str:
        facts = {
            "schedule": self.describe(),
            f"noise multiplier {words_for(self.purpose).noise}": f"{self.noise_multiplier:g}",
            "δ": f"{self.delta:g}",
            "clip norm L": f"{self.clip_norm:g}",
            **(self._training_facts() if self.request is None else self._request_facts(self.request)),
            "purpose": self.purpose,
            "silos per person": str(self.silos_per_person),
            "fingerprint": self.fingerprint,
        }
        return html_table("Public plan", [*facts.items(), *(("note", note) for note in self.notes)])

    def _training_facts(self) -> dict[str, str]:
        return {
            "normaliser B": f"{self.normaliser:g}",
            "weights": "all alike" if isinstance(self.weights, float) else f"{len(self.weights):,} silos",
            "training": f"{self.recipe.optimiser}, learning rate {self.recipe.learning_rate:g}, {self.recipe.backbone}",
            "accountant": self.accountant,
        }

    @staticmethod
    def _request_facts(request: Request) -> dict[str, str]:
        return {"measures": ", ".join(measure.kind for measure in request.measures)}

    @property
    def curve(self) -> CostCurve:
        """The cost of this plan for a record, as a function of its probability or weight q, at the plan's δ."""
        return self.curve_at(self.delta)

    def curve_at(self, delta: float) -> CostCurve:
        """The cost of this plan for a record at another δ."""
        if delta not in self._curves:
            self._curves[delta] = self._curve_at(delta)
        return self._curves[delta]

    def _curve_at(self, delta: float) -> CostCurve:
        sigma = self.noise_multiplier
        if self.request is not None:
            return GaussianCurve(self.schedule, noise_multiplier=sigma, delta=delta, weights=self.request.weights)
        return PrivacyCurve(self.schedule, noise_multiplier=sigma, delta=delta, accountant=self.accountant)

    @cached_property
    def delta_table(self) -> DeltaCosts:
        """The cost of this plan for records with a δ of their own."""
        sigma = self.noise_multiplier
        if self.request is not None:
            return GaussianDeltaTable(self.schedule, noise_multiplier=sigma, weights=self.request.weights)
        return DeltaTable(self.schedule, noise_multiplier=sigma)

    def divergence_curve(self, order: float) -> DivergenceCosts:
        """The cost of this plan for a record with a Rényi account of this order."""
        if order not in self._divergences:
            self._divergences[order] = self._divergence_curve(order)
        return self._divergences[order]

    def _divergence_curve(self, order: float) -> DivergenceCosts:
        sigma = self.noise_multiplier
        if self.request is not None:
            weights = self.request.weights
            return GaussianDivergence(self.schedule, noise_multiplier=sigma, order=order, weights=weights)
        return DivergenceCurve(self.schedule, noise_multiplier=sigma, order=order)

    @cached_property
    def _curves(self) -> dict[float, CostCurve]:
        return {}

    @cached_property
    def _divergences(self) -> dict[float, DivergenceCosts]:
        return {}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over every public setting."""
        return hashlib.sha256(_canonical(self._settings()).encode()).hexdigest()

    def assign(
        self, budgets: BudgetTable, *, estimator: str = "certified", lifetime_delta: float | None = None
    ) -> SiloPlan:
        """A sampling probability for every record, never over budget. Call this inside the silo.

        `lifetime_delta` is the δ that the silo's policy sets for records without a δ of their own. A record whose δ is
        below that of the plan is priced at its own.
        """
        return assign(self, budgets, estimator=estimator, lifetime_delta=lifetime_delta)

    def weight(self, silo: str) -> float:
        """The weight of a silo in the average."""
        if not isinstance(self.weights, Mapping):
            return self.weights
        if silo not in self.weights:
            raise PlanError(
                f"the plan has no weight for silo {silo!r}, only for {', '.join(self.weights)}; "
                "add the silo to weights, or give one number for all silos"
            )
        return self.weights[silo]

    def with_note(self, note: str) -> PublicPlan:
        """The same plan with one more note on what it does not cover."""
        return replace(self, notes=(*self.notes, note))

    def with_normaliser(self, normaliser: float) -> PublicPlan:
        """The same plan with another normaliser, at the same costs."""
        return replace(self, normaliser=normaliser)

    def to_json(self) -> str:
        """All settings and the fingerprint as JSON."""
        return json.dumps({**self._settings(), "fingerprint": self.fingerprint}, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> PublicPlan:
        """Read a plan from JSON. Refuses one whose settings do not match its fingerprint."""
        try:
            values = json.loads(text)
            claimed = values.pop("fingerprint")
            stated = values.pop("format")
            if stated not in FORMATS:
                raise PlanError(f"this is not a plan in the format {' or '.join(FORMATS)}")
            schedule = Schedule(**values.pop("schedule"))
            recipe = Recipe(**values.pop("recipe"))
            if "request" in values:
                values["request"] = Request.of(values["request"])
            plan = cls(schedule, recipe=recipe, **{**values, "notes": tuple(values["notes"])})
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise PlanError(f"not a public plan: {type(error).__name__}: {error}") from None
        if stated != plan._settings()["format"]:
            raise PlanError(f"this plan says that it has the format {stated}, but its settings are of another")
        if plan.fingerprint != claimed:
            raise TamperedPlanError(
                f"the plan was altered: its settings hash to {plan.fingerprint[:12]}…, but it claims "
                f"{str(claimed)[:12]}…; ask its author for the original"
            )
        return plan

    def write(self, path: str | Path) -> None:
        """Write a JSON file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> PublicPlan:
        """Read a JSON file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"{path}: cannot be read: {error}") from None
        return cls.from_json(text)

    def _settings(self) -> dict[str, Any]:
        weights = dict(self.weights) if isinstance(self.weights, Mapping) else self.weights
        newer = {name: getattr(self, name) for name, value in _NEWER.items() if getattr(self, name) != value}
        if self.request is not None:
            newer["request"] = self.request.plain()
        return {
            "format": FORMATS[bool(newer)],
            "schedule": asdict(self.schedule),
            "noise_multiplier": self.noise_multiplier,
            "delta": self.delta,
            "clip_norm": self.clip_norm,
            "normaliser": self.normaliser,
            "weights": weights,
            "recipe": self.recipe.settings(),
            "accountant": self.accountant,
            "model_fingerprint": self.model_fingerprint,
            "notes": list(self.notes),
            **newer,
        }


def _canonical(settings: dict[str, Any]) -> str:
    # The fingerprint is taken over this text, so it must be the same for equal settings on every machine: sorted keys,
    # no spaces, ASCII only.
    return json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _checked_weights(weights: float | Mapping[str, float]) -> float | Mapping[str, float]:
    if not isinstance(weights, Mapping):
        return require_positive("weights", weights)
    if not all(isinstance(silo, str) for silo in weights):
        raise InputError(f"weights={dict(weights)} must map silo names (text) to numbers")
    checked = {silo: require_number(f"weights[{silo!r}]", value) for silo, value in sorted(weights.items())}
    if not checked or min(checked.values()) < 0.0 or sum(checked.values()) <= 0.0:
        raise InputError(f"weights={dict(weights)} must not be negative and must not all be 0")
    return MappingProxyType(checked)
