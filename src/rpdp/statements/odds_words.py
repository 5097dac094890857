"""Odds as people read them: so many of 100, rounded up, never down."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.accounting.odds import right_guesses

if TYPE_CHECKING:
    from rpdp.statements.statement_words import Catalogue

CHANCE = 50
"""Of 100 guesses, so many are right without any release."""


@dataclass(frozen=True)
class Odds:
    """A bound on right guesses of 100, and how it is shown.

    Attributes:
        guesses: The bound; 50 without any release.
    """

    guesses: float

    @property
    def decimals(self) -> int:
        """How many decimals are shown: whole numbers, but near 100 as many as it takes to tell budgets apart."""
        return 0 if self.guesses <= 99.0 else 1 if self.guesses <= 99.9 else 2

    @property
    def shown(self) -> float:
        """The number that is shown: the bound, rounded up."""
        scale = 10.0**self.decimals
        return min(100.0, math.ceil(self.guesses * scale) / scale)

    @property
    def figures(self) -> int:
        """How many of 100 figures are filled in a picture: the bound, rounded up to a whole number."""
        return min(100, math.ceil(self.guesses))

    def text(self, words: Catalogue) -> str:
        """The number in a language's notation."""
        decimals = 0 if self.shown == int(self.shown) else self.decimals
        return words.number(self.shown, decimals)


def odds_of_budget(epsilon: float, delta: float) -> Odds:
    """The odds of everything that a budget ever allows."""
    return Odds(float(CHANCE) if epsilon == 0.0 and delta == 0.0 else right_guesses(epsilon, delta))


def explain_budget(epsilon: float, delta: float, words: Catalogue) -> list[str]:
    """What a budget means, in sentences.

    >>> from rpdp.statements.statement_words import load_words
    >>> explain_budget(0.5, 1e-5, load_words("en"))[1]
    'That guess is right in at most 63 of 100 cases. Without any use of the data, it is right in 50 of 100.'
    """
    odds = odds_of_budget(epsilon, delta).text(words)
    return [words("coin"), words("guess", odds=odds), words("guess_note")]
