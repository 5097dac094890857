"""The server: it announces rounds to all silos, averages what comes back with public weights, and keeps the model.

Nothing of the promise rests on it. It protects the run, though, from silos: an update of a wrong shape, with numbers
that are not finite or absurd, is left out, named, and the round goes on with the others.
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

ABSURD = 1e6
"""A parameter that one round moved further than this is a fault, whatever the model."""


class Server:
    """The model and its rounds.

    A round without any usable update leaves the model as it was and is not repeated: repeating it would raise the true
    rate of participation (privacy.md, section 4).

    Args:
        run: The id of the run.
        public: The plan that all silos admitted.
        values: The flat model to start from.
        silos: Names of all silos; updates are averaged in the order of their names.
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
        """What the run would end with now: the mean of the models after the latest rounds."""
        if len(self.recent) == 1:
            return self.recent[0]
        return torch.stack([values.double() for values in self.recent]).mean(dim=0).to(self.values.dtype)

    def checkpoint(self, run: str, rounds: Sequence[RoundLog], draws: Mapping[str, NDArray[np.int64]]) -> Checkpoint:
        """The state after a round; `run` identifies the run together with what it started from."""
        state = (self.values, tuple(self.recent), self.backbone.state)
        return Checkpoint(run, *state, dict(draws), tuple(rounds))

    def restore(self, kept: Checkpoint) -> None:
        """Go on from a checkpoint: model, averaged models, backbone and number of rounds as they were."""
        self.round = len(kept.rounds)
        self.values, self.backbone.state = kept.values, kept.backbone
        self.recent.clear()
        self.recent.extend(kept.recent)

    def announce(self) -> dict[str, Announcement]:
        """Begin the next round: what each silo is told."""
        self.round += 1
        return self.announcements(self.round)

    def announcements(self, number: int) -> dict[str, Announcement]:
        """What each silo is told of a round, from the model as it is now."""
        plan, values = self.public.fingerprint, self.values
        return {
            silo: Announcement(self.run, plan, number, values, self.backbone.correction(silo)) for silo in self.silos
        }

    def collect(self, updates: Iterable[Update]) -> dict[str, str]:
        """Average the usable updates into the model; for each rejected one, whose it is and why."""
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
            self.recent.clear()  # where training started is not one of the averaged models
        self.recent.append(self.values)
        return rejected

    def _fault(self, update: Update) -> str | None:
        change = update.change
        if update.silo not in self._weights:
            return "not a silo of this run"
        if update.round != self.round:
            return f"for round {update.round}, this is round {self.round}"
        if change.shape != self.values.shape or change.dtype != self.values.dtype:
            return (
                f"{change.dtype} of shape {tuple(change.shape)} for a model of {self.values.dtype} and "
                f"{tuple(self.values.shape)}"
            )
        largest = float(change.abs().max()) if change.numel() else 0.0
        if not largest <= ABSURD:
            return f"its largest number is {largest:g}; a sound update stays below {ABSURD:g}"
        return None
