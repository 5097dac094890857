"""A silo's own limits. It admits a public plan only within them, whoever sends it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rpdp.budgets import MOST_SILOS_PER_PERSON
from rpdp.checks import (
    require_count,
    require_delta,
    require_fingerprint,
    require_fraction,
    require_least,
    require_positive,
)
from rpdp.errors import PrivacyRefusal, Reason
from rpdp.planning.allowances import Allowance, Purpose, checked_reserves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rpdp.planning import PublicPlan

CONCURRENT_RUNS = 4
"""How many unfinished runs an agent carries unless its silo file says otherwise."""

ONE_DAY = 86_400
LONGEST_HOLD = 30 * ONE_DAY

CANCELLED_PER_RUN = 20
"""How many cancelled runs a silo accepts for each run of `max_runs`. A cancelled run costs no budget, but its events
stay in the ledger: without a limit a server could fill the disk."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a silo agrees to. It uses public settings only, so admission never depends on a record.

    Args:
        max_rounds: The largest T.
        max_local_steps: The largest τ.
        max_participation: The largest λ; with exactly k rounds, the largest k/T.
        max_clip_norm: The largest L.
        min_noise_multiplier: The smallest σ.
        lifetime_delta: The δ over all runs for records without a δ of their own.
        max_runs: The largest number of runs in total. Cancelled runs do not count.
        max_share_per_run: The largest share of a lifetime budget that one run may take. Real runs need it: without it
            the first run takes everything.
        max_epsilon_per_run: The largest ε of one run alone, at the δ of its plan; None for no such limit.
        reserved: Shares of lifetime budgets that are kept for purposes, such as {"evaluation": 0.2}.
        silos_per_person: In how many silos of the federation a person may ever have an account.
        max_hold: The longest time, in seconds, for which a run may hold budgets before its first round.
        allowed_plans: Fingerprints of the plans that may run; None for any plan within the limits. A run books budgets,
            so without this whoever can send a plan can use budgets up.
        min_learning_rate: The smallest local learning rate, in the last round as well.
        max_learning_rate: The largest local learning rate.
        max_momentum: The largest momentum of local SGD.
        min_micro_batch: The smallest micro-batch: with one record each, a step takes a hundred times as long.
        max_proximal: The largest strength of FedProx, the only backbone setting that a silo applies.
        max_cells: The largest number of cells of a request.

    The last six cost no budget. They limit what a server can do with a recipe besides training: with a learning rate
    of 1e-30, say, announced weights of 1e30 stay as they are through all steps (privacy.md, rule 16).

    Of a plan with a request only rounds, δ, runs and cells are limited: nobody is sampled and nothing is trained, its
    clip norm follows from the number of measures, and what its noise costs a record is limited by the share of a run.
    """

    max_rounds: int
    max_local_steps: int
    max_participation: float
    max_clip_norm: float
    min_noise_multiplier: float
    lifetime_delta: float
    max_runs: int = 1
    max_share_per_run: float | None = None
    max_epsilon_per_run: float | None = None
    reserved: Mapping[Purpose, float] = field(default_factory=dict)
    silos_per_person: int = 1
    max_hold: int = ONE_DAY
    allowed_plans: tuple[str, ...] | None = None
    min_learning_rate: float = 1e-6
    max_learning_rate: float = 10.0
    max_momentum: float = 0.99
    min_micro_batch: int = 256
    max_proximal: float = 10.0
    max_cells: int = 100_000

    def __post_init__(self) -> None:
        require_count("max_hold", self.max_hold, most=LONGEST_HOLD)
        for name in ("max_rounds", "max_local_steps", "max_runs", "min_micro_batch", "max_cells"):
            require_count(name, getattr(self, name))
        for name in ("max_clip_norm", "min_noise_multiplier", "min_learning_rate", "max_learning_rate"):
            require_positive(name, getattr(self, name))
        for name in ("max_momentum", "max_proximal"):
            require_least(name, getattr(self, name), 0.0)
        require_fraction("max_participation", self.max_participation)
        require_delta("lifetime_delta", self.lifetime_delta)
        require_count("silos_per_person", self.silos_per_person, most=MOST_SILOS_PER_PERSON)
        if self.max_share_per_run is not None:
            require_fraction("max_share_per_run", self.max_share_per_run)
        if self.max_epsilon_per_run is not None:
            require_positive("max_epsilon_per_run", self.max_epsilon_per_run)
        object.__setattr__(self, "reserved", checked_reserves(self.reserved))
        for plan in self.allowed_plans or ():
            require_fingerprint("allowed_plans", plan)

    @classmethod
    def of(cls, public: PublicPlan) -> Policy:
        """Return a policy that allows exactly this plan, once: for simulations, where one person writes both sides."""
        return cls(
            max_rounds=public.schedule.rounds,
            max_local_steps=public.schedule.local_steps,
            max_participation=_participation(public),
            max_clip_norm=public.clip_norm,
            min_noise_multiplier=public.noise_multiplier,
            lifetime_delta=public.delta if public.lifetime_delta is None else public.lifetime_delta,
            max_share_per_run=1.0,
            silos_per_person=public.silos_per_person,
            min_learning_rate=max(_last_rate(public), sys.float_info.min),
            max_learning_rate=public.recipe.learning_rate,
            max_momentum=public.recipe.momentum,
            min_micro_batch=public.recipe.micro_batch,
            max_proximal=max(_proximal(public), 0.0),
            max_cells=cls.max_cells if public.request is None else public.request.size,
        )

    def within(self, limits: Mapping[str, Any]) -> Policy:
        """Return these limits and further ones together: of two limits, the stricter counts.

        A δ or a number of silos cannot be stricter: both must state the same.
        """
        chosen: dict[str, Any] = {}
        for name, stated in limits.items():
            own = getattr(self, name)
            if name in ("lifetime_delta", "silos_per_person"):
                if own != stated:
                    raise PrivacyRefusal(
                        f"{name}={own} here, but the steward's own limits beside the ledger state {stated}; nothing "
                        "was reserved. Both must state the same",
                        Reason.POLICY,
                    )
            elif name == "reserved":
                chosen[name] = {use: max(own.get(use, 0.0), stated.get(use, 0.0)) for use in {*own, *stated}}
            else:
                stricter = max if name.startswith("min_") else min
                chosen[name] = stated if own is None else stricter(own, stated)
        return replace(self, **chosen)

    def allowance(self, public: PublicPlan) -> Allowance:
        """Return what a run of this plan may take of each record: the smaller of what both sides allow."""
        if self.max_share_per_run is None:
            raise PrivacyRefusal(
                "this silo's policy states no max_share_per_run, so one run could take whole lifetime budgets; nothing "
                "was reserved. Add it to the policy, such as 0.1 for ten runs",
                Reason.POLICY,
            )
        share = self.max_share_per_run if public.share is None else min(self.max_share_per_run, public.share)
        return Allowance(
            share=share, purpose=public.purpose, max_epsilon=self.max_epsilon_per_run, reserved=self.reserved
        )

    def require(self, public: PublicPlan, runs_before: int) -> None:
        """Refuse a plan that is not allowed, or that exceeds a limit; name every limit that it exceeds."""
        if self.allowed_plans is not None and public.fingerprint not in self.allowed_plans:
            raise PrivacyRefusal(
                f"plan {public.fingerprint} is not in allowed_plans of this silo; nothing was reserved. If the data "
                "steward agrees to this plan, add its fingerprint to allowed_plans",
                Reason.POLICY,
            )
        asked: dict[str, tuple[float, str, float]] = {
            "rounds": (public.schedule.rounds, "at most", self.max_rounds),
            "delta": (public.delta, "at most", self.lifetime_delta),
            "runs": (runs_before + 1, "at most", self.max_runs),
        }
        if public.request is None:
            asked |= self._asked_of_training(public)
        else:
            asked["cells"] = (public.request.size, "at most", self.max_cells)
        beyond = [
            f"{name}={value} (policy: {side} {limit})"
            for name, (value, side, limit) in asked.items()
            if (value > limit if side == "at most" else value < limit)
        ]
        if public.silos_per_person != self.silos_per_person:
            beyond.append(f"silos_per_person={public.silos_per_person} (policy: exactly {self.silos_per_person})")
        if public.lifetime_delta not in (None, self.lifetime_delta):
            beyond.append(f"lifetime_delta={public.lifetime_delta} (policy: exactly {self.lifetime_delta})")
        if beyond:
            raise PrivacyRefusal(
                f"the plan exceeds this silo's policy: {', '.join(beyond)}; nothing was reserved. Ask for a plan "
                "within the policy, or ask the data steward to change the policy",
                Reason.POLICY,
            )

    def _asked_of_training(self, public: PublicPlan) -> dict[str, tuple[float, str, float]]:
        """What only a plan for training asks for, each with its limit."""
        return {
            "local_steps": (public.schedule.local_steps, "at most", self.max_local_steps),
            "participation": (_participation(public), "at most", self.max_participation),
            "clip_norm": (public.clip_norm, "at most", self.max_clip_norm),
            "noise_multiplier": (public.noise_multiplier, "at least", self.min_noise_multiplier),
            "learning_rate": (public.recipe.learning_rate, "at most", self.max_learning_rate),
            "learning_rate of the last round": (_last_rate(public), "at least", self.min_learning_rate),
            "momentum": (public.recipe.momentum, "at most", self.max_momentum),
            "micro_batch": (public.recipe.micro_batch, "at least", self.min_micro_batch),
            "proximal": (_proximal(public), "at most", self.max_proximal),
            "smallest proximal": (_proximal(public), "at least", 0.0),
        }

    def require_hold(self, hold: int, cancelled_before: int) -> None:
        """Refuse to hold budgets for too long, or again after too many runs that were cancelled."""
        require_count("hold", hold)
        if hold > self.max_hold:
            raise PrivacyRefusal(
                f"the budgets are to be held for {hold} s before the first round, but the policy allows max_hold="
                f"{self.max_hold} s; nothing was reserved. Ask for a shorter hold, or ask the data steward to change "
                "the policy",
                Reason.POLICY,
            )
        most = CANCELLED_PER_RUN * self.max_runs
        if cancelled_before >= most:
            raise PrivacyRefusal(
                f"{cancelled_before} runs were cancelled before their first round; this silo accepts {most} "
                f"({CANCELLED_PER_RUN} × max_runs). Nothing was reserved. Find out why they were cancelled, then ask "
                "the data steward to raise max_runs",
                Reason.POLICY,
            )


def _proximal(public: PublicPlan) -> float:
    from rpdp.federation.backbones import proximal_strength  # needs torch, which a policy alone does not

    return proximal_strength(public.recipe)


def _last_rate(public: PublicPlan) -> float:
    """The smallest learning rate of a run: decay only lowers it."""
    return public.recipe.rate(public.schedule.rounds)


def _participation(public: PublicPlan) -> float:
    schedule = public.schedule
    if schedule.participation is not None:
        return schedule.participation
    assert schedule.participations is not None
    return schedule.participations / schedule.rounds
