"""How records use a parameter in one forward pass, and the squared norms and clipped sum that follow.

The gradient of a weight W (p × d) for one record is Σ_t l_t r_tᵀ over the positions t at which the record uses W, where
l is the gradient of the output and r the input. Its squared norm is |l|²|r|² for one position, and
Σ_{t,s} (l_t·l_s)(r_t·r_s) in general (the "ghost norm" of Goodfellow 2015 and Li et al. 2022, arXiv 2110.05679). This
Gram form costs T²(p + d); the direct form, which materialises the gradient, costs T p d. The direct form is used only
where the per-record gradients are no larger than what the layer keeps anyway. The clipped sum then comes from them at
no further cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rpdp.display import counts_repr
from rpdp.training.kernel import lost_squares

if TYPE_CHECKING:
    from collections.abc import Sequence


GRAM_TERMS = 2**40
"""More than positions × features of any layer.

An entry of one Gram matrix loses at most tiny · features to underflow, and the entries of the other sum up to at most
positions · its trace.
"""


@dataclass
class Norms:
    """Squared norms of the records' gradients, and the scale of their rounding errors.

    Attributes:
        squared: Per record, Σ over parameters.
        scale: Per record, Σ of |l|²|r|² over the uses whose sum is formed from factors. Rounding errors are relative to
            this, not to `squared`, which can be much smaller when positions cancel.
    """

    squared: Tensor
    scale: Tensor

    __repr__ = counts_repr


class Use(ABC):
    """One use (or all uses together) of a parameter by a batch of records."""

    @abstractmethod
    def norms(self) -> Norms:
        """Squared norms of this parameter's per-record gradients."""

    @abstractmethod
    def per_record(self, rows: Tensor) -> Tensor:
        """The gradients of a few records, materialised: shape (rows, size of the parameter)."""

    @abstractmethod
    def add_sum(self, factors: Tensor, out: Tensor) -> None:
        """Add Σ_i factors_i · gradient_i to `out`, which has the shape of the parameter."""

    @abstractmethod
    def erase(self, rows: Tensor) -> None:
        """Make the gradients of these records (a mask) exactly zero, so that no NaN reaches the sum."""


class DirectUse(Use):
    """A use whose per-record gradients are small enough to keep: biases, scales, small weights."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients

    def norms(self) -> Norms:
        """Squared norms of the kept gradients. The sum is formed from the same numbers, so they are exact."""
        squared = squared_rows(self.gradients)
        return Norms(squared, torch.zeros_like(squared))

    def per_record(self, rows: Tensor) -> Tensor:
        """The kept gradients of a few records."""
        return self.gradients[rows]

    def add_sum(self, factors: Tensor, out: Tensor) -> None:
        """One matrix-vector product."""
        out.add_((factors @ self.gradients).view(out.shape))

    def erase(self, rows: Tensor) -> None:
        """Zero rows."""
        self.gradients = zero_rows(self.gradients, rows)


class FactorUse(Use):
    """A matrix used at T positions per record: left (B, T, p) output gradients, right (B, T, d) inputs."""

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self.left = left
        self.right = right
        self.grams: dict[int, Tensor] | None = None
        """Gram matrices shared by layers that read the same input (query, key, value); see `share_grams`."""

    def norms(self) -> Norms:
        """|l|²|r|² for one position; the Gram form for more."""
        if self.left.shape[1] == 1:
            squared = squared_rows(self.left[:, 0]) * squared_rows(self.right[:, 0])
            return Norms(squared, torch.zeros_like(squared))
        return self.gram()

    def gram(self) -> Norms:
        """The Gram form of the squared norms."""
        return gram_norms(self.left_gram(self), self.right_gram(self))

    def settled(self) -> Use:
        """The cheaper form: the direct one if the per-record gradients are no larger than the factors."""
        positions, rows, columns = self.left.shape[1], self.left.shape[2], self.right.shape[2]
        if positions > 1 and rows * columns <= positions * (rows + columns):
            return DirectUse(torch.bmm(self.left.transpose(1, 2), self.right).flatten(1))
        return self

    def left_gram(self, other: FactorUse) -> Tensor:
        """Products l_t · l'_s of this use with another use of the same weight, (B, T, T')."""
        if isinstance(other, IndexUse):
            return other.left_gram(self).transpose(1, 2)
        return torch.bmm(self.left, other.left.transpose(1, 2))

    def right_gram(self, other: FactorUse) -> Tensor:
        """Products r_t · r'_s, (B, T, T')."""
        if other is self and self.grams is not None:
            place = self.right.data_ptr()
            if place not in self.grams:
                self.grams[place] = torch.bmm(self.right, self.right.transpose(1, 2))
            return self.grams[place]
        return torch.bmm(self.right, other.right.transpose(1, 2))

    def per_record(self, rows: Tensor) -> Tensor:
        """The direct form for a few records."""
        return torch.bmm(self.left[rows].transpose(1, 2), self.right[rows]).flatten(1)

    def add_sum(self, factors: Tensor, out: Tensor) -> None:
        """One matrix product over all records and positions."""
        weighted = (self.left * factors.view(-1, 1, 1)).flatten(0, 1)
        out.addmm_(weighted.t(), self.right.flatten(0, 1))

    def erase(self, rows: Tensor) -> None:
        """Zero both factors: zero times infinity would be NaN."""
        self.left = zero_rows(self.left, rows)
        self.right = zero_rows(self.right, rows)


class IndexUse(FactorUse):
    """Rows of a table looked up at T positions. `left` is the index (B, T), standing for its one-hot form."""

    def __init__(self, index: Tensor, right: Tensor, rows: int) -> None:
        super().__init__(index, right)
        self.rows = rows

    def norms(self) -> Norms:
        """The Gram form, in which only pairs of equal indices count."""
        return self.gram()

    def settled(self) -> Use:
        """Never the direct form: a table has many rows, and a record uses few of them."""
        return self

    def left_gram(self, other: FactorUse) -> Tensor:
        """1 where two look-ups have the same index; an entry of l' if the other use is a matrix product."""
        if isinstance(other, IndexUse):
            return (self.left.unsqueeze(2) == other.left.unsqueeze(1)).to(self.right.dtype)
        columns = self.left.unsqueeze(1).expand(-1, other.left.shape[1], -1)
        return other.left.gather(2, columns).transpose(1, 2)

    def per_record(self, rows: Tensor) -> Tensor:
        """The table's gradient for a few records."""
        right = self.right[rows]
        table = right.new_zeros(len(right), self.rows, right.shape[2])
        where = self.left[rows].unsqueeze(2).expand_as(right)
        return table.scatter_add_(1, where, right).flatten(1)

    def add_sum(self, factors: Tensor, out: Tensor) -> None:
        """Add each gradient to the row that was looked up."""
        weighted = self.right * factors.view(-1, 1, 1)
        out.index_add_(0, self.left.flatten(), weighted.flatten(0, 1))

    def erase(self, rows: Tensor) -> None:
        """Zero the gradients; the indices are always finite."""
        self.right = zero_rows(self.right, rows)


class SharedUse(Use):
    """Several uses of one parameter. Their norm |Σ g_i|² needs cross terms; their sum does not."""

    def __init__(self, uses: Sequence[FactorUse]) -> None:
        self.uses = list(uses)

    def norms(self) -> Norms:
        """Σ |g_i|² + 2 Σ_{i<j} g_i · g_j, every term in the Gram form."""
        own = [use.gram() for use in self.uses]
        squared = torch.stack([norms.squared for norms in own]).sum(0)
        for position, first in enumerate(self.uses):
            for second in self.uses[position + 1 :]:
                cross = first.left_gram(second) * first.right_gram(second)
                squared = squared + 2 * cross.sum((1, 2))
        scale = torch.stack([norms.scale.sqrt() for norms in own]).sum(0).square()
        return Norms(squared, scale)

    def per_record(self, rows: Tensor) -> Tensor:
        """The sum over the uses."""
        return torch.stack([use.per_record(rows) for use in self.uses]).sum(0)

    def add_sum(self, factors: Tensor, out: Tensor) -> None:
        """Each use adds its share."""
        for use in self.uses:
            use.add_sum(factors, out)

    def erase(self, rows: Tensor) -> None:
        """Every use erases these records."""
        for use in self.uses:
            use.erase(rows)


def combine(uses: Sequence[FactorUse]) -> Use:
    """All uses of one weight as a single use: matrix uses are joined along positions, others get cross terms."""
    if len(uses) == 1:
        return uses[0].settled()
    if all(type(use) is FactorUse for use in uses):
        left = torch.cat([use.left for use in uses], dim=1)
        return FactorUse(left, torch.cat([use.right for use in uses], dim=1)).settled()
    return SharedUse(uses)


def share_grams(uses: Sequence[Use]) -> None:
    """Let uses with the same input compute its Gram matrix only once."""
    plain = [use for use in uses if type(use) is FactorUse and use.left.shape[1] > 1]
    grams: dict[int, Tensor] = {}
    counts = Counter((use.right.data_ptr(), use.right.shape) for use in plain)
    for use in plain:
        if counts[use.right.data_ptr(), use.right.shape] > 1:
            use.grams = grams


def gram_norms(left: Tensor, right: Tensor) -> Norms:
    """Σ_{t,s} left_{ts} right_{ts} per record, from two Gram matrices (B, T, T)."""
    traces = _trace(left), _trace(right)
    lost = (traces[0] + traces[1]) * lost_squares(left, GRAM_TERMS)
    squared: Tensor = torch.linalg.vecdot(left.flatten(1), right.flatten(1)).add_(lost)
    return Norms(squared, traces[0] * traces[1])


def _trace(gram: Tensor) -> Tensor:
    return gram.diagonal(dim1=1, dim2=2).sum(1)


def squared_rows(values: Tensor) -> Tensor:
    """|row|² for each record, over all other dimensions; never below the true value, even if squares underflow."""
    rows = values.flatten(1)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.square_().add_(lost_squares(rows, rows.shape[1]))


def zero_rows(values: Tensor, rows: Tensor) -> Tensor:
    """A copy in which the masked records are exactly zero."""
    return torch.where(rows.view(-1, *[1] * (values.dim() - 1)), 0.0, values)
