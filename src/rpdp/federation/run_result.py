"""The result of a federated run: a public part, and a part for each silo that stays with the silo."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rpdp.display import html_table
from rpdp.errors import InputError
from rpdp.federation.fingerprint import model_fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.federation.score import GroupScore, Score
    from rpdp.planning import PublicPlan, SiloPlan


@dataclass(frozen=True)
class RoundLog:
    """One round as the server sees it. Public.

    Attributes:
        round: The number of the round, from 1.
        joined: The silos whose updates were averaged.
        rejected: The silos whose updates were left out, with the reasons.
        score: The metrics on public test records, if they were measured.
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

    def __repr__(self) -> str:
        return f"SiloView({len(self.plan):,} records, {len(self.joined):,} rounds joined, {self.overdrawn:,} overdrawn)"


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
        module: A module of the run's architecture, for `model`; None where it is not known, as in a result read from
            files. It is not stored.
        groups: The final model's metrics on training records, by budget, if they were measured. Sensitive.
        chosen_round: The round whose model is the result, if private evaluation chose one; None for the last.
    """

    run: str
    public: PublicPlan
    method: str
    seed: int | None
    values: Tensor
    rounds: tuple[RoundLog, ...]
    silos: Mapping[str, SiloView]
    seconds: float
    module: nn.Module | None = field(default=None, repr=False, compare=False)
    groups: tuple[GroupScore, ...] = field(default=(), repr=False)
    chosen_round: int | None = None

    def __repr__(self) -> str:
        kind = "simulation" if self.is_simulation else "production"
        sizes = f"{len(self.rounds):,} rounds, {len(self.silos):,} silo views, {len(self.values):,} parameters"
        return f"RunResult({self.run!r}, {self.method}, {kind}, {sizes})"

    def _repr_html_(self) -> str:
        facts = {
            "method": self.method,
            "kind": "simulation: nobody is protected" if self.is_simulation else "production",
            "plan": repr(self.public),
            "rounds": f"{len(self.rounds):,}, {sum(not log.joined for log in self.rounds):,} without an update",
            "measured on test records": "nothing" if self.score is None else self.score.text(3),
            "parameters": f"{len(self.values):,}",
            **{f"silo {name}": repr(view) for name, view in self.silos.items()},
        }
        return html_table(f"Run {self.run}", facts.items())

    @property
    def model(self) -> nn.Module:
        """The trained model: a new module with the final values."""
        if self.module is None:
            raise InputError(
                "this result knows the values of the model but not its module, as after read_result: make a module of "
                "the same architecture and call result.load_into(module)"
            )
        return self.load_into(copy.deepcopy(self.module))

    def load_into(self, module: nn.Module) -> nn.Module:
        """Copy the final values into a module of the run's architecture, in place, and return it."""
        import torch

        trained = [value for value in module.parameters() if value.requires_grad]
        sizes = [value.numel() for value in trained]
        expected = self.public.model_fingerprint
        if sum(sizes) != len(self.values) or expected not in (None, model_fingerprint(module)):
            raise InputError(
                f"the module has {sum(sizes):,} trainable parameters and the run trained {len(self.values):,}, or its "
                "layers differ: use a module of the architecture that was trained"
            )
        for value, part in zip(trained, torch.split(self.values, sizes), strict=True):
            value.data.copy_(part.view_as(value))
        return module

    @property
    def is_simulation(self) -> bool:
        """Whether the randomness was seeded, so that nothing is protected."""
        return self.seed is not None

    @property
    def score(self) -> Score | None:
        """The metrics of the final model, if they were measured."""
        rounds = self.rounds[: self.chosen_round]
        return next((log.score for log in reversed(rounds) if log.score is not None), None)

    def with_model_of(self, number: int, values: Tensor) -> RunResult:
        """The same run with the model after an earlier round as its result."""
        if number == len(self.rounds):
            return self
        # What is known of training records is about the last model, which nobody keeps.
        silos = {name: replace(view, correct=None) for name, view in self.silos.items()}
        return replace(self, values=values, silos=silos, groups=(), chosen_round=number)
