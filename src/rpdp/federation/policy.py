"""A silo's own limits. It admits a public plan only within them, whoever sends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.checks import require_count, require_delta, require_fraction, require_positive
from rpdp.errors import PrivacyRefusal, Reason

if TYPE_CHECKING:
    from rpdp.planning import PublicPlan


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
        max_runs: The largest number of runs in total.
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
        """Return a policy that allows exactly this plan, once: for simulations, where one person writes both sides."""
        return cls(
            max_rounds=public.schedule.rounds,
            max_local_steps=public.schedule.local_steps,
            max_participation=_participation(public),
            max_clip_norm=public.clip_norm,
            min_noise_multiplier=public.noise_multiplier,
            lifetime_delta=public.delta,
        )

    def require(self, public: PublicPlan, runs_before: int) -> None:
        """Refuse a plan that exceeds a limit, and name every limit that it exceeds."""
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
                f"the plan exceeds this silo's policy: {', '.join(beyond)}; nothing was reserved. Ask for a plan "
                "within the policy, or ask the data steward to change the policy",
                Reason.POLICY,
            )


def _participation(public: PublicPlan) -> float:
    schedule = public.schedule
    if schedule.participation is not None:
        return schedule.participation
    assert schedule.participations is not None
    return schedule.participations / schedule.rounds
