"""The result of a federated run: a public part, and a part for each silo that stays with the silo."""

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
    """One round as the server sees it. Public.

    Attributes:
        round: The number of the round, from 1.
        joined: The silos whose updates were averaged.
        rejected: The silos whose updates were left out, with the reasons.
        score: The accuracy on public test records, if it was measured.
        seconds: How long the round took.
    """

    round: int
    joined: tuple[str, ...]
    rejected: Mapping[str, str]
    score: Score | None
    seconds: float


@dataclass(frozen=True)
class SiloView:
    """What a silo knows about a run. Sensitive: it stays in the silo.

    Attributes:
        plan: Budgets, probabilities and costs.
        joined: The rounds that the silo joined.
        draws: How often each record was drawn.
        expected_draws: How often each record was expected to be drawn, given the joined rounds.
        correct: Whether the final model is right on each training record, if it was measured.
        overdrawn: How many records the plan costs more than their budget; 0 for every method that keeps its promise.
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
        run: The id of the run.
        public: The public plan.
        method: The name of the method, such as "rpdp".
        seed: The seed of a simulation; None in production.
        values: The flat final model, which the promise covers.
        rounds: All rounds.
        silos: The silos' own views, by name. Sensitive.
        seconds: The wall-clock time.
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
        """Whether the randomness was seeded, so that nothing is protected."""
        return self.seed is not None

    @property
    def score(self) -> Score | None:
        """The accuracy of the final model, if it was measured."""
        return next((log.score for log in reversed(self.rounds) if log.score is not None), None)
