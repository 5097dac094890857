"""The public schedule of a run: how many rounds, how many local steps in each, and how a silo joins rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from rpdp.accounting.participation import BinomialCount, ExplicitCount
from rpdp.checks import require_count, require_fraction
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.accounting.participation import ParticipationCount

MOST_ROUNDS = 1_000_000
MOST_LOCAL_STEPS = 1_000_000


@dataclass(frozen=True)
class Schedule:
    """T rounds of τ local steps, and the rule by which a silo joins rounds.

    Give either `participation` λ or `participations` k. With `participation` the silo flips its own coin and joins each
    round independently with probability λ; with `max_participations` it sits out once it has joined that many rounds.
    With `participations` it joins exactly k rounds, which it draws uniformly from the T at admission. There is no
    default, because participation determines the cost.

    | rule                    | k, the rounds joined  | the cost given the realised k               |
    |-------------------------|-----------------------|---------------------------------------------|
    | participation           | Binomial(T, λ)        | may exceed the promise (it averages over k) |
    | … + max_participations  | min(Binomial, cap)    | may exceed it, by less                      |
    | participations          | k                     | is the promise; recommended in production   |

    >>> Schedule(rounds=15, local_steps=50, participation=0.5, max_participations=8).expected_participations
    6.96...
    """

    rounds: int
    local_steps: int
    participation: float | None = field(default=None, kw_only=True)
    max_participations: int | None = field(default=None, kw_only=True)
    participations: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._store("rounds", require_count("rounds", self.rounds, most=MOST_ROUNDS))
        self._store("local_steps", require_count("local_steps", self.local_steps, most=MOST_LOCAL_STEPS))
        if (self.participation is None) == (self.participations is None):
            raise InputError(
                "give either participation=λ (a coin per round) or participations=k (exactly k rounds); "
                f"got participation={self.participation}, participations={self.participations}"
            )
        if self.participation is not None:
            self._store("participation", require_fraction("participation", self.participation))
        if self.participations is not None:
            self._store("participations", require_count("participations", self.participations, most=self.rounds))
        if self.max_participations is not None:
            if self.participation is None:
                raise InputError(
                    f"max_participations={self.max_participations} needs participation=λ; "
                    "with participations=k, exactly k rounds are joined and no cap is needed"
                )
            cap = require_count("max_participations", self.max_participations, most=self.rounds)
            self._store("max_participations", cap)

    def _store(self, name: str, value: float) -> None:
        """Replace a field by its plain Python number, so that equal schedules have equal fingerprints."""
        object.__setattr__(self, name, value)

    @property
    def steps(self) -> int:
        """The largest number of local steps that a silo can run."""
        return self.count().largest * self.local_steps

    @property
    def expected_participations(self) -> float:
        """E[k], the mean number of rounds that a silo joins."""
        probabilities = self.count().probabilities()
        return float(np.arange(probabilities.size) @ probabilities)

    def count(self, announced: int | None = None) -> ParticipationCount:
        """The distribution of joined rounds among the first `announced` rounds (default: all T)."""
        rounds = self.rounds if announced is None else announced
        require_count("announced", rounds, least=0, most=self.rounds)
        if rounds == 0:
            return ExplicitCount.exactly(0)
        if self.participations is not None:
            return self._exact_count(rounds, self.participations)  # hypergeometric until the last round
        assert self.participation is not None
        if self.max_participations is None or self.max_participations >= rounds:
            return BinomialCount(rounds, self.participation)
        return _capped_count(rounds, self.participation, self.max_participations)

    def _exact_count(self, announced: int, participations: int) -> ParticipationCount:
        if announced == self.rounds:
            return ExplicitCount.exactly(participations)
        law = stats.hypergeom(self.rounds, participations, announced)
        return ExplicitCount.from_probabilities(law.pmf(np.arange(min(announced, participations) + 1)))

    def describe(self) -> str:
        """The schedule in one line of text."""
        steps = f"{_number(self.rounds, 'round')} × {_number(self.local_steps, 'local step')}"
        if self.participations is not None:
            return f"{steps}, exactly {_number(self.participations, 'round')} joined"
        cap = f", at most {_number(self.max_participations, 'round')} joined" if self.max_participations else ""
        return f"{steps}, participation {self.participation:g}{cap}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _capped_count(rounds: int, participation: float, cap: int) -> ExplicitCount:
    law = stats.binom(rounds, participation)
    probabilities = law.pmf(np.arange(cap + 1))
    probabilities[cap] = law.sf(cap - 1)  # heads after the cap are sat out, so the cap takes all of the tail
    return ExplicitCount.from_probabilities(probabilities)
