"""Facts for a report that a run itself does not know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rpdp.federation.score import GroupScore
    from rpdp.ledger.inspection.use_over_time import UseOverTime


@dataclass(frozen=True)
class ReportFacts:
    """Texts for a report. They say nothing about records, except for those of the silo edition only.

    Attributes:
        task: What was learned from what.
        budgets: Where the budgets come from: a distribution with its parameters, or a file. Silo edition only.
        notes: What the promise does not cover, beyond the notes of the public plan: how the data was prepared, ….
        promises: By method, what it promises, in a sentence.
        yardsticks: What existing scores are worth on the same test records: by column and metric, one value per seed.
        features: The features of a table by its public schema: the name of each, and what its values mean.
        evaluation: The private evaluation of the final model, as `evaluation.json` of a run has it; None without one.
        held_out_groups: The final model's metrics on held-out records, by budget. Silo edition only.
        lifetimes: The use of lifetime budgets by silo, from the ledgers of a real run. Silo edition only.
        outlook: What the ledgers had left before a real run held anything, a line each. Silo edition only.
    """

    task: str | None = None
    budgets: str | None = None
    notes: Sequence[str] = ()
    promises: Mapping[str, str] = field(default_factory=dict)
    evaluation: Mapping[str, Any] | None = None
    held_out_groups: Sequence[GroupScore] = ()
    outlook: Sequence[str] = ()
    lifetimes: Mapping[str, UseOverTime] = field(default_factory=dict)
    features: Sequence[tuple[str, str]] = ()
    yardsticks: Mapping[str, Mapping[str, Sequence[float | None]]] = field(default_factory=dict)
