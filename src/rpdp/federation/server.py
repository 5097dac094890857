"""The server: it announces rounds to all silos, averages their updates with public weights, and keeps the model.

In a run with a request nothing is averaged: it keeps the sums that every silo released.

The privacy promise does not depend on it. It does protect the run from faulty silos: an update of the wrong shape, or
with numbers that are not finite or too large, is rejected by name, and the round continues with the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.federation.backbones import Weighted, make_backbone
from rpdp.federation.checkpoint import Checkpoint
from rpdp.federation.messages import Announcement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.federation.messages import Update
    from rpdp.federation.run_result import RoundLog
    from rpdp.planning import PublicPlan

LARGEST_CHANGE = 1e6
"""A change of one parameter in one round beyond this is a fault, whatever the model."""

LARGEST_SUM = 2.0**31
"""A sum of one cell beyond this is a fault: `exact_sums` allows 2³⁰ records, and 13 · 2²⁶ of noise."""


class RoundServer(ABC):
    """What the server of a run does in its rounds, whatever silos release in them.

    Args:
        run: The id of the run.
        public: The plan that all silos admitted.
        silos: The names of all silos.
        update: A tensor of the shape and type of a sound update.
        largest: The largest number in a sound update.
    """

    def __init__(self, run: str, public: PublicPlan, silos: Sequence[str], update: Tensor, largest: float) -> None:
        self.run = run
        self.public = public
        self.silos = sorted(silos)
        self.round = 0
        self._weights = {silo: public.weight(silo) for silo in self.silos}
        self._sound, self._largest = update, largest

    @property
    def is_done(self) -> bool:
        """Whether all rounds were announced."""
        return self.round >= self.public.schedule.rounds

    def announce(self) -> dict[str, Announcement]:
        """Begin the next round and return its announcement to each silo."""
        self.round += 1
        return self.announcements(self.round)

    @property
    @abstractmethod
    def result(self) -> Tensor:
        """What the run would end with now."""

    @abstractmethod
    def checkpoint(self, run: str, rounds: Sequence[RoundLog], draws: Mapping[str, NDArray[np.int64]]) -> Checkpoint:
        """Return the state after a round. `run` identifies the run and what it started from."""

    @abstractmethod
    def restore(self, kept: Checkpoint) -> None:
        """Restore the state, and the number of rounds, from a checkpoint."""

    @abstractmethod
    def collect(self, updates: Iterable[Update]) -> dict[str, str]:
        """Take the usable updates of the round; return the reason for each rejected one, by silo."""

    @abstractmethod
    def announcements(self, number: int) -> dict[str, Announcement]:
        """Return the announcement of a round to each silo."""

    def usable(self, updates: Iterable[Update]) -> tuple[list[Update], dict[str, str]]:
        """Return the usable updates, in the order of their silos, and the reason for each rejected one, by silo."""
        by_silo: dict[str, Update] = {}
        rejected: dict[str, str] = {}
        for update in updates:
            if update.silo in by_silo:
                rejected[update.silo] = "more than one update for the round"
            by_silo[update.silo] = update
        found = []
        for silo in sorted(by_silo):
            fault = rejected.get(silo) or self._fault(by_silo[silo])
            if fault is None:
                found.append(by_silo[silo])
            else:
                rejected[silo] = fault
        return found, rejected

    def _fault(self, update: Update) -> str | None:
        change, sound = update.change, self._sound
        if update.silo not in self._weights:
            return "not a silo of this run"
        if update.round != self.round:
            return f"for round {update.round}, but this is round {self.round}"
        if change.shape != sound.shape or change.dtype != sound.dtype:
            return (
                f"type {change.dtype} and shape {tuple(change.shape)}, but the model has type {sound.dtype} and "
                f"shape {tuple(sound.shape)}"
            )
        largest = float(change.abs().max()) if change.numel() else 0.0
        if not largest <= self._largest:  # written this way round so that NaN is rejected, too
            return f"its largest number is {largest:g}; a sound update stays below {self._largest:g}"
        return None


class Server(RoundServer):
    """The model and its rounds.

    A round without any usable update leaves the model as it was and is not repeated: repeating it would raise the true
    rate of participation (privacy.md, section 4).

    Args:
        run: The id of the run.
        public: The plan that all silos admitted.
        values: The flat model to start from.
        silos: The names of all silos; updates are averaged in the order of their names.
    """

    def __init__(self, run: str, public: PublicPlan, values: Tensor, silos: Sequence[str]) -> None:
        self.values = values.detach().clone()
        super().__init__(run, public, silos, self.values, LARGEST_CHANGE)
        self.recent: deque[Tensor] = deque([self.values], maxlen=public.recipe.averaged_rounds)
        self.backbone = make_backbone(public.recipe, self.silos, public.schedule.local_steps)

    @property
    def result(self) -> Tensor:
        """The model with which the run would end now: the mean of the models after the last rounds."""
        if len(self.recent) == 1:
            return self.recent[0]
        return torch.stack([values.double() for values in self.recent]).mean(dim=0).to(self.values.dtype)

    def checkpoint(self, run: str, rounds: Sequence[RoundLog], draws: Mapping[str, NDArray[np.int64]]) -> Checkpoint:
        """Return the state after a round. `run` identifies the run and what it started from."""
        state = (self.values, tuple(self.recent), self.backbone.state)
        return Checkpoint(run, *state, dict(draws), tuple(rounds))

    def restore(self, kept: Checkpoint) -> None:
        """Restore the model, averaged models, backbone and number of rounds from a checkpoint."""
        self.round = len(kept.rounds)
        self.values, self.backbone.state = kept.values, kept.backbone
        self.recent.clear()
        self.recent.extend(kept.recent)

    def announcements(self, number: int) -> dict[str, Announcement]:
        """Return the announcement of a round to each silo, from the current model."""
        plan, values = self.public.fingerprint, self.values
        return {
            silo: Announcement(self.run, plan, number, values, self.backbone.correction(silo)) for silo in self.silos
        }

    def collect(self, updates: Iterable[Update]) -> dict[str, str]:
        """Average the usable updates into the model; return the reason for each rejected update, by silo."""
        usable, rejected = self.usable(updates)
        changes = [Weighted(update.silo, self._weights[update.silo], update.change) for update in usable]
        if changes and sum(change.weight for change in changes) > 0.0:
            self.values = self.backbone.step(self.values, changes)
        if self.round == 1:
            self.recent.clear()  # the starting model is not one of the averaged models
        self.recent.append(self.values)
        return rejected


class SumServer(RoundServer):
    """The sums of a run with a request: what each silo released in each round.

    Args:
        run: The id of the run.
        public: The plan that all silos admitted.
        values: What the next round announces: the flat model of an evaluation; empty for statistics.
        silos: The names of all silos.
    """

    def __init__(self, run: str, public: PublicPlan, values: Tensor, silos: Sequence[str]) -> None:
        assert public.request is not None
        size, rounds = public.request.size, public.schedule.rounds
        super().__init__(run, public, silos, torch.empty(size, dtype=torch.float64), LARGEST_SUM)
        self.values = values.detach().clone()
        self.released = {silo: np.full((rounds, size), np.nan) for silo in self.silos}
        """Rounds × cells, by silo; NaN where a silo released nothing."""

    @property
    def result(self) -> Tensor:
        """All that was released: silos in the order of their names × rounds × cells."""
        return torch.from_numpy(np.stack([self.released[silo] for silo in self.silos]))

    def checkpoint(self, run: str, rounds: Sequence[RoundLog], draws: Mapping[str, NDArray[np.int64]]) -> Checkpoint:
        """Return the state after a round. `run` identifies the run and what it started from."""
        return Checkpoint(run, self.result, (), {}, dict(draws), tuple(rounds))

    def restore(self, kept: Checkpoint) -> None:
        """Restore what was released, and the number of rounds, from a checkpoint."""
        self.round = len(kept.rounds)
        self.released = {silo: sums.numpy().copy() for silo, sums in zip(self.silos, kept.values, strict=True)}

    def announcements(self, number: int) -> dict[str, Announcement]:
        """Return the announcement of a round to each silo."""
        return {silo: Announcement(self.run, self.public.fingerprint, number, self.values) for silo in self.silos}

    def collect(self, updates: Iterable[Update]) -> dict[str, str]:
        """Keep the usable sums of the round; return the reason for each rejected update, by silo."""
        usable, rejected = self.usable(updates)
        for update in usable:
            self.released[update.silo][self.round - 1] = update.change.numpy()
        return rejected
