"""What planning and the ledger need to know of a run's price, whatever mechanism it is: sampled training or a request.

| of a record | training | a request |
|---|---|---|
| q is | its sampling probability | its weight |
| `CostCurve`: ε at one δ | `PrivacyCurve` | `GaussianCurve` |
| `DeltaCosts`: ε at any δ | `DeltaTable` | `GaussianDeltaTable` |
| `DivergenceCosts`: ρ at one order | `DivergenceCurve` | `GaussianDivergence` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, overload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.curve import Bounds
    from rpdp.accounting.schedule import Schedule


class CostCurve(Protocol):
    """The cost of a run for a record, as a function of its q, at one δ. `PrivacyCurve` says what each method does."""

    schedule: Schedule
    noise_multiplier: float
    target_delta: float

    def after(self, announced: int) -> CostCurve:
        """The curve for the first `announced` rounds."""
        ...

    def given(self, participations: int) -> CostCurve:
        """The curve given that the silo joined so many rounds."""
        ...

    @overload
    def epsilon(self, q: float) -> float: ...
    @overload
    def epsilon(self, q: ArrayLike) -> FloatArray: ...
    def epsilon(self, q: ArrayLike) -> FloatArray | float:
        """Upper bounds on the cost."""
        ...

    def epsilon_above(self, q: ArrayLike) -> FloatArray:
        """Upper bounds on the cost, for very many q."""
        ...

    def covers(self, q: ArrayLike, cost: ArrayLike) -> NDArray[np.bool_]:
        """Whether each stated cost is a price of its q."""
        ...

    @overload
    def sampling_probability(self, epsilon: float) -> float: ...
    @overload
    def sampling_probability(self, epsilon: ArrayLike) -> FloatArray: ...
    def sampling_probability(self, epsilon: ArrayLike) -> FloatArray | float:
        """For each budget, the largest q within it."""
        ...

    def certify(self, epsilon: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """For each budget, the largest q within it and its cost, which never exceeds the budget."""
        ...

    def tabulate(self) -> None:
        """Compute everything that `certify` may need for any budgets."""
        ...

    def bounds(self, q: ArrayLike, *, accuracy: float = ...) -> Bounds:
        """Lower and upper bounds on the true cost."""
        ...

    @overload
    def delta(self, q: float, epsilon: float) -> float: ...
    @overload
    def delta(self, q: float, epsilon: ArrayLike) -> FloatArray: ...
    def delta(self, q: float, epsilon: ArrayLike) -> FloatArray | float:
        """The privacy profile δ(ε) of a record."""
        ...

    def advantage(self, q: float) -> float:
        """The largest membership advantage that any attacker can have."""
        ...

    @property
    def largest_cost(self) -> float:
        """The cost of q = 1."""
        ...


class DeltaCosts(Protocol):
    """The cost of a run for records with a δ of their own."""

    def certify(self, epsilon: FloatArray, delta: float) -> tuple[FloatArray, FloatArray]:
        """For each budget, the largest q within it at this δ, and its cost."""
        ...

    def covers(self, q: FloatArray, cost: FloatArray, delta: float) -> NDArray[np.bool_]:
        """Whether each stated cost is a price of its q at this δ."""
        ...

    def tabulate(self) -> None:
        """Compute everything that `certify` may need for any budgets."""
        ...


class DivergenceCosts(Protocol):
    """The cost of a run for a Rényi account of one order."""

    def divergence(self, q: FloatArray) -> FloatArray:
        """Upper bounds on the divergence of each q."""
        ...

    def certify(self, divergence: FloatArray) -> tuple[FloatArray, FloatArray]:
        """For each divergence, the largest q within it, and its own divergence."""
        ...

    def covers(self, q: FloatArray, cost: FloatArray, times: int = 1) -> NDArray[np.bool_]:
        """Whether each stated cost is at least `times` the divergence of its q."""
        ...

    def tabulate(self) -> None:
        """Compute everything that `certify` may need for any budgets."""
        ...
