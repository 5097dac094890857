"""Evaluating the global model on test records, which count as public in simulations only (privacy.md, rule 13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from rpdp.training import FlatModel, Records

    Correct = Callable[[Tensor, Tensor], Tensor]
    """Maps outputs and targets to one truth value per record."""

CHUNK = 1024


@dataclass(frozen=True)
class Score:
    """Accuracy of one model.

    Attributes:
        accuracy: Over all test records of all silos together.
        mean_over_silos: The unweighted mean of the silos' accuracies.
        by_silo: The accuracy of each silo.
    """

    accuracy: float
    mean_over_silos: float
    by_silo: Mapping[str, float]


@dataclass(frozen=True)
class Evaluation:
    """Test records by silo, and what counts as a correct answer."""

    test: Mapping[str, Records]
    correct: Correct

    def __post_init__(self) -> None:
        if not self.test or all(len(records) == 0 for records in self.test.values()):
            raise InputError("there is no test record to evaluate on; give test records to at least one silo")

    def hits(self, model: FlatModel, silo: str) -> int:
        """Count the correct answers on the test records of one silo."""
        return int(self.answers(model, self.test[silo]).sum())

    def answers(self, model: FlatModel, records: Records) -> Tensor:
        """Return for each record whether the model is right."""
        with model.evaluating(), torch.no_grad():
            parts = [
                self.correct(
                    model.module(*[model.prepare(tensor) for tensor in chunk.inputs]), chunk.targets.to(model.device)
                )
                for chunk in records.chunks(CHUNK)
            ]
        return torch.cat(parts).cpu() if parts else torch.zeros(0, dtype=torch.bool)

    def score(self, hits: Mapping[str, int]) -> Score:
        """Turn correct answers by silo into accuracies. Silos without test records have none."""
        counts = {silo: len(self.test[silo]) for silo in hits if len(self.test[silo])}
        by_silo = {silo: hits[silo] / count for silo, count in counts.items()}
        return Score(
            accuracy=sum(hits[silo] for silo in counts) / sum(counts.values()),
            mean_over_silos=sum(by_silo.values()) / len(by_silo),
            by_silo=by_silo,
        )
