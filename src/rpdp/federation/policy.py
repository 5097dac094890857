"""A silo's own limits: a public plan is admitted only inside them, whoever sends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.checks import require_count, require_delta, require_fraction, require_positive
from rpdp.errors import PrivacyRefusal, Reason

if TYPE_CHECKING:
    from rpdp.planning import PublicPlan


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a silo agrees to. Public settings only: admission never depends on a record.

    Args:
        max_rounds: Largest T.
        max_local_steps: Largest τ.
        max_participation: Largest λ; with exactly k rounds, largest k/T.
        max_clip_norm: Largest L.
        min_noise_multiplier: Smallest σ.
        lifetime_delta: δ that records without one of their own allow, over all runs.
        max_runs: How many runs in all.
    """

    max_rounds: int
    max_local_steps: int
    max_participation: float
    max_clip_norm: float
    min_noise_multiplier: float
    lifetime_delta: float
    max_runs: int = 1

    def __post_init__(self) -> None:
        for name in ("max_rounds", "max_local_steps", "max_runs"):
            require_count(name, getattr(self, name))
        for name in ("max_clip_norm", "min_noise_multiplier"):
            require_positive(name, getattr(self, name))
        require_fraction("max_participation", self.max_participation)
        require_delta("lifetime_delta", self.lifetime_delta)

    @classmethod
    def of(cls, public: PublicPlan) -> Policy:
        """Exactly this plan, once: for simulations, where one person writes both sides."""
        return cls(
            max_rounds=public.schedule.rounds,
            max_local_steps=public.schedule.local_steps,
            max_participation=_participation(public),
            max_clip_norm=public.clip_norm,
            min_noise_multiplier=public.noise_multiplier,
            lifetime_delta=public.delta,
        )

    def require(self, public: PublicPlan, runs_before: int) -> None:
        """Refuse a plan that goes beyond any limit, naming all of them."""
        asked = {
            "rounds": (public.schedule.rounds, "at most", self.max_rounds),
            "local_steps": (public.schedule.local_steps, "at most", self.max_local_steps),
            "participation": (_participation(public), "at most", self.max_participation),
            "clip_norm": (public.clip_norm, "at most", self.max_clip_norm),
            "noise_multiplier": (public.noise_multiplier, "at least", self.min_noise_multiplier),
            "delta": (public.delta, "at most", self.lifetime_delta),
            "runs": (runs_before + 1, "at most", self.max_runs),
        }
        beyond = [
            f"{name}={value} (policy: {side} {limit})"
            for name, (value, side, limit) in asked.items()
            if (value > limit if side == "at most" else value < limit)
        ]
        if beyond:
            raise PrivacyRefusal(
                f"the plan goes beyond this silo's policy: {', '.join(beyond)}; nothing was reserved. Ask for a plan "
                "inside the policy, or let the data steward change the policy",
                Reason.POLICY,
            )


def _participation(public: PublicPlan) -> float:
    schedule = public.schedule
    if schedule.participation is not None:
        return schedule.participation
    assert schedule.participations is not None
    return schedule.participations / schedule.rounds
