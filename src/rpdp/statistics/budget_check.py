"""The check whether values depend on budgets: two releases, by "everyone" and by "representative", compared.

Both are read as weighted samples of all records, "everyone" with weights 0 and 1. If values do not depend on budgets,
both estimate the same number, and their difference, divided by its standard error, is about standard normal. The two
samples overlap, which makes the difference smaller than assumed: the check raises a false alarm rather less often than
stated. It finds dependence that is larger than the error of the two releases, and no other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.special import ndtr

from rpdp.errors import InputError
from rpdp.statistics.estimate import LEVEL, normal_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.statistics.estimate import NoisyEstimate


@dataclass(frozen=True)
class BudgetCheck:
    """The comparison of one number by the two estimators.

    Attributes:
        name: The number.
        difference: Everyone less representative.
        error: Its standard error.
        p_value: How often a difference as large occurs by chance, if values do not depend on budgets.
        is_flagged: Whether that is too rare, given how many numbers are compared.
    """

    name: str
    difference: float
    error: float
    p_value: float
    is_flagged: bool

    def __str__(self) -> str:
        found = (
            f"{self.name}: everyone − representative = {self.difference:.4g} ± {self.error:.2g}, p = {self.p_value:.2g}"
        )
        if self.is_flagged:
            return f"{found}. Values depend on budgets: do not use the representative estimate for all records"
        return f"{found}. No dependence on budgets was found that exceeds the error of these two releases"


def check_budgets(
    everyone: Sequence[NoisyEstimate], representative: Sequence[NoisyEstimate], *, level: float = LEVEL
) -> tuple[BudgetCheck, ...]:
    """Compare the estimates of two releases; the chance that any is flagged wrongly is at most 1 − level.

    Args:
        everyone: The estimates of an `Inquiry` with `for_check=True`.
        representative: The estimates of the same statistics by "representative".
        level: The level of all comparisons together.
    """
    if [each.name for each in everyone] != [each.name for each in representative] or not everyone:
        raise InputError("the check compares the same statistics by both estimators, in the same order")
    if {e.estimator for e in everyone} != {"everyone"} or {e.estimator for e in representative} != {"representative"}:
        raise InputError('the check compares estimates by "everyone" with estimates by "representative"')
    if any(
        one.method != other.method or one.speaks_of != other.speaks_of
        for one, other in _pairs(everyone, representative)
    ):
        raise InputError("the estimates by everyone leave out their sampling spread: ask with Inquiry(for_check=True)")
    normal_quantile(level)
    allowed = (1.0 - level) / len(everyone)
    return tuple(_compared(one, other, allowed) for one, other in _pairs(everyone, representative))


def _pairs(
    everyone: Sequence[NoisyEstimate], representative: Sequence[NoisyEstimate]
) -> list[tuple[NoisyEstimate, NoisyEstimate]]:
    return list(zip(everyone, representative, strict=True))


def _compared(everyone: NoisyEstimate, representative: NoisyEstimate, allowed: float) -> BudgetCheck:
    difference = everyone.value - representative.value
    error = math.hypot(everyone.error, representative.error)
    p_value = 2.0 * float(ndtr(-abs(difference) / error)) if error > 0.0 else float(difference == 0.0)
    return BudgetCheck(everyone.name, difference, error, p_value, p_value < allowed)
