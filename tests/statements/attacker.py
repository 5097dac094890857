"""The strongest releases that an account allows, and how often the best guess is right: no code of the product.

A sum account of (ε, δ) allows the release that says the truth with probability δ, and else lies as rarely as ε allows.
A Rényi account of B at order α allows the noisy answer of one bit whose divergence is exactly B. Who sees the releases
of several records guesses by the likelihood of all of them together.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.optimize import brentq

from rpdp.ledger.inspection.export import export
from rpdp.ledger.progress_callback import silent

if TYPE_CHECKING:
    from rpdp.ledger import Ledger

ANSWERS = dict[str, tuple[float, float]]
"""What may be released, with its probability if the person is in, and if not."""


def honest_bit(epsilon: float, delta: float) -> ANSWERS:
    """The release that (ε, δ) just allows."""
    right = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    wrong = 1.0 - delta - right
    return {"in!": (delta, 0.0), "in": (right, wrong), "out": (wrong, right), "out!": (0.0, delta)}


def renyi_bit(order: float, divergence: float) -> ANSWERS:
    """The bit with this divergence at this order, either way."""

    def excess(odds: float) -> float:
        p, rest = 1.0 / (1.0 + math.exp(-odds)), 1.0 / (1.0 + math.exp(odds))
        total = math.log(p) * order + math.log(rest) * (1.0 - order)
        other = math.log(rest) * order + math.log(p) * (1.0 - order)
        most = max(total, other)
        whole = most + math.log(math.exp(total - most) + math.exp(other - most))
        return whole / (order - 1.0) - divergence

    p = 0.5 if divergence == 0.0 else 1.0 / (1.0 + math.exp(-float(brentq(excess, 0.0, 700.0))))
    return {"in": (p, 1.0 - p), "out": (1.0 - p, p)}


def right_of_100(releases: list[ANSWERS]) -> float:
    """How many of 100 of the best guesses are right, of somebody who sees all of these."""
    right = 0.0
    for answers in itertools.product(*(release.values() for release in releases)):
        right += max(math.prod(one[0] for one in answers), math.prod(one[1] for one in answers))
    return 50.0 * right


@dataclass(frozen=True)
class Account:
    """One record as an auditor reads it in the JSON export of a ledger."""

    subject: str | None
    epsilon: float
    delta: float
    booked: float
    booked_delta: float
    order: float
    withdrawn: bool

    def for_life(self) -> ANSWERS:
        """The strongest release of everything, so far and to come."""
        if self.order > 1.0:
            theta = self.order - 1.0
            price = -math.log(self.order / theta) - (math.log(self.delta) + math.log(self.order)) / theta
            return renyi_bit(self.order, max(self.epsilon - price, self.booked, 0.0))
        if self.withdrawn:
            return self.so_far()
        return honest_bit(max(self.epsilon, self.booked), max(self.delta, self.booked_delta))

    def so_far(self) -> ANSWERS:
        """The strongest release of what is booked."""
        if self.order > 1.0:
            return renyi_bit(self.order, self.booked)
        return honest_bit(self.booked, self.booked_delta)


def order_of(number: int) -> float:
    """The order with this number (privacy.md, section 7: fourths of an octave above 1); 0 of a sum account."""
    return 1.0 + 2.0 ** ((number - 9) / 4.0) if number else 0.0


def accounts(ledger: Ledger, path: Path) -> dict[str, Account]:
    """All records of a ledger by their hashes, from its export."""
    export(ledger, path, without_ids=False, progress=silent, overwrite=True)
    exported: dict[str, Any] = json.loads(path.read_text())
    found = {}
    for values in exported["records"]:
        row = dict(zip(exported["columns"], values, strict=True))
        found[row["record_hash"]] = Account(
            row["subject_hash"],
            row["epsilon"],
            row["delta"],
            row["booked"] / 2**52,
            row["booked_delta"] / 2**62,
            order_of(int(row.get("order") or 0)),
            bool(row["withdrawn"]),
        )
    return found
