"""The words for a record's q and what follows from it: a probability in training, a weight in a run with a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rpdp.planning.allowances import Purpose


@dataclass(frozen=True)
class Words:
    """What texts and tables call the columns of a silo plan.

    Attributes:
        q: The name of q in a sentence.
        symbol: Its symbol.
        noise: The symbol of the noise multiplier.
        step: What releases one noisy sum.
        total: Σq.
        share: A group's part of Σq.
    """

    q: str
    symbol: str
    noise: str
    step: str
    total: str
    share: str

    @property
    def signal(self) -> str:
        """The signal to noise of one noisy sum, as a formula."""
        return f"Σ{self.symbol}/{self.noise}"


_TRAINING = Words("sampling probability", "q", "σ", "step", "expected batch", "share of the batch")
_REQUEST = Words("weight", "w", "s", "release", "sum of weights", "share of the sum")


def words_for(purpose: Purpose) -> Words:
    """The words for runs of this purpose: only training samples records."""
    return _TRAINING if purpose == "training" else _REQUEST
