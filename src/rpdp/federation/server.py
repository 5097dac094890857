"""The server: it announces rounds to all silos, averages their updates with public weights, and keeps the model.

The privacy promise does not depend on it. It does protect the run from faulty silos: an update of the wrong shape, or
with numbers that are not finite or too large, is rejected by name, and the round continues with the others.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import torch

from rpdp.federation.backbones import Weighted, make_backbone
from rpdp.federation.checkpoint import Checkpoint
from rpdp.federation.messages import Announcement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.federation.messages import Update
    from rpdp.federation.run_result import RoundLog
    from rpdp.planning import PublicPlan

LARGEST_CHANGE = 1e6
"""A change of one parameter in one round beyond this is a fault, whatever the model."""


class Server:
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
        self.run = run
        self.public = public
        self.values = values.detach().clone()
        self.silos = sorted(silos)
        self.round = 0
        self.recent: deque[Tensor] = deque([self.values], maxlen=public.recipe.averaged_rounds)
        self.backbone = make_backbone(public.recipe, self.silos, public.schedule.local_steps)
        self._weights = {silo: public.weight(silo) for silo in self.silos}

    @property
    def is_done(self) -> bool:
        """Whether all rounds were announced."""
        return self.round >= self.public.schedule.rounds

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

    def announce(self) -> dict[str, Announcement]:
        """Begin the next round and return its announcement to each silo."""
        self.round += 1
        return self.announcements(self.round)

    def announcements(self, number: int) -> dict[str, Announcement]:
        """Return the announcement of a round to each silo, from the current model."""
        plan, values = self.public.fingerprint, self.values
        return {
            silo: Announcement(self.run, plan, number, values, self.backbone.correction(silo)) for silo in self.silos
        }

    def collect(self, updates: Iterable[Update]) -> dict[str, str]:
        """Average the usable updates into the model; return the reason for each rejected update, by silo."""
        by_silo: dict[str, Update] = {}
        rejected: dict[str, str] = {}
        for update in updates:
            if update.silo in by_silo:
                rejected[update.silo] = "more than one update for the round"
            by_silo[update.silo] = update
        changes = []
        for silo in sorted(by_silo):
            fault = rejected.get(silo) or self._fault(by_silo[silo])
            if fault is None:
                changes.append(Weighted(silo, self._weights[silo], by_silo[silo].change))
            else:
                rejected[silo] = fault
        if changes and sum(change.weight for change in changes) > 0.0:
            self.values = self.backbone.step(self.values, changes)
        if self.round == 1:
            self.recent.clear()  # the starting model is not one of the averaged models
        self.recent.append(self.values)
        return rejected

    def _fault(self, update: Update) -> str | None:
        change = update.change
        if update.silo not in self._weights:
            return "not a silo of this run"
        if update.round != self.round:
            return f"for round {update.round}, but this is round {self.round}"
        if change.shape != self.values.shape or change.dtype != self.values.dtype:
            return (
                f"type {change.dtype} and shape {tuple(change.shape)}, but the model has type {self.values.dtype} and "
                f"shape {tuple(self.values.shape)}"
            )
        largest = float(change.abs().max()) if change.numel() else 0.0
        if not largest <= LARGEST_CHANGE:  # written this way round so that NaN is rejected, too
            return f"its largest number is {largest:g}; a sound update stays below {LARGEST_CHANGE:g}"
        return None
