"""What a federated run leaves behind: a public part, and each silo's own part that stays with the silo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.federation.evaluation import Score
    from rpdp.planning import PublicPlan, SiloPlan


@dataclass(frozen=True)
class RoundLog:
    """One round as the server sees it: public.

    Attributes:
        round: From 1.
        joined: The silos whose updates were averaged.
        rejected: Silos whose update was left out, and why.
        score: Accuracy on public test records, if it was measured.
        seconds: How long it took.
    """

    round: int
    joined: tuple[str, ...]
    rejected: Mapping[str, str]
    score: Score | None
    seconds: float


@dataclass(frozen=True)
class SiloView:
    """What a silo knows of a run. Sensitive: it stays in the silo.

    Attributes:
        plan: Budgets, probabilities and costs.
        joined: The rounds its coin let it join.
        draws: How often each record was drawn.
        expected_draws: How often it was to be drawn on average, given the joined rounds.
        correct: Whether the final model is right on each training record, if it was measured.
        overdrawn: How many records the plan costs more than they allow; 0 for every method that keeps its promise.
    """

    plan: SiloPlan
    joined: tuple[int, ...]
    draws: NDArray[np.int64]
    expected_draws: NDArray[np.float64]
    correct: NDArray[np.bool_] | None
    overdrawn: int


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    Attributes:
        run: Its id.
        public: The plan.
        method: The name of the method, "rpdp" for ours.
        seed: Of a simulation; None in production.
        values: The flat final model, what the promise covers.
        rounds: All rounds.
        silos: The silos' own views, by name. Sensitive.
        seconds: Wall-clock time.
    """

    run: str
    public: PublicPlan
    method: str
    seed: int | None
    values: Tensor
    rounds: tuple[RoundLog, ...]
    silos: Mapping[str, SiloView]
    seconds: float

    @property
    def is_simulation(self) -> bool:
        """Whether randomness was seeded, so that nothing is protected."""
        return self.seed is not None

    @property
    def score(self) -> Score | None:
        """The accuracy of the final model, if it was measured."""
        return next((log.score for log in reversed(self.rounds) if log.score is not None), None)
