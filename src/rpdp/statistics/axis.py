"""The cells of one column: its levels, or the bins between its edges; and how settings say so."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.errors import InputError
from rpdp.federation.cells import NO_CELL
from rpdp.statistics.columns import MISSING, OTHER, Levels, NumberRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.statistics.columns import Declared


@dataclass(frozen=True)
class Axis:
    """The cells of one column in a histogram, or the groups that it makes.

    Attributes:
        column: The name of the column.
        facts: What is public of it.
        edges: Of a number: where its bins begin and end, from the low end of the range to the high end.
    """

    column: str
    facts: Declared
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
        if isinstance(self.facts, Levels):
            if self.edges:
                raise InputError(f"column {self.column!r} has levels, so its histogram has no edges")
            return
        rising = all(low < high for low, high in itertools.pairwise(self.edges))
        ends = (self.facts.low, self.facts.high)
        if len(self.edges) < 2 or not rising or (self.edges[0], self.edges[-1]) != ends:
            raise InputError(
                f"edges={list(self.edges)} of column {self.column!r} must rise from {ends[0]:g} to {ends[1]:g}"
            )

    @classmethod
    def of(cls, values: object) -> Axis:
        """Read what `plain` wrote."""
        given = mapping(values, "an axis")
        column, facts = column_name(given), column_facts(given)
        edges = tuple(_numbers(given.pop("edges", ())))
        if given:
            raise InputError(f"an axis has no settings {sorted(given)}")
        return cls(column, facts, edges)

    def plain(self) -> dict[str, Any]:
        """As plain values for a request."""
        edges = {"edges": list(self.edges)} if self.edges else {}
        return {"column": self.column, **self.facts.plain(), **edges}

    @cached_property
    def known(self) -> tuple[str, ...]:
        """What the cells of values that are not missing stand for."""
        if isinstance(self.facts, Levels):
            return (*self.facts.levels, OTHER) if self.facts.has_other else self.facts.levels
        return tuple(f"{low:g} – {high:g}" for low, high in itertools.pairwise(self.edges))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What all cells stand for; missing values have the last one."""
        return (*self.known, MISSING) if self.has_missing else self.known

    @property
    def has_missing(self) -> bool:
        """Whether missing values have a cell."""
        return not isinstance(self.facts, Levels) or self.facts.has_missing

    def places(self, values: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """The cell of every value; `NO_CELL` for a value that can have none."""
        absent = np.isnan(values)
        if isinstance(self.facts, Levels):
            places = np.where(absent, 0.0, values).astype(np.int64)
            places[(places < 0) | (places >= len(self.known))] = NO_CELL
        else:
            inner = np.asarray(self.edges[1:-1])
            places = np.searchsorted(inner, self.facts.clipped(values), side="right").astype(np.int64)
        places[absent] = len(self.known) if self.has_missing else NO_CELL
        return places


def mapping(values: object, what: str) -> dict[str, Any]:
    """A copy of settings; refused if they are anything else."""
    if not isinstance(values, Mapping):
        raise InputError(f"{what} must map names to values, not be {values!r}")
    return dict(values)


def column_name(given: dict[str, Any]) -> str:
    """Take the name of a column out of settings."""
    name = given.pop("column")
    if not isinstance(name, str):
        raise InputError(f"column={name!r} must be the name of a column")
    return name


def column_facts(given: dict[str, Any]) -> Declared:
    """Take what is public of a column out of settings."""
    if "range" in given:
        low, high = given.pop("range")
        return NumberRange(low, high)
    return Levels(tuple(given.pop("levels")), given.pop("has_other"), given.pop("has_missing"))


def _numbers(values: Any) -> list[float]:
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in values):
        raise InputError(f"edges={values!r} must be numbers")
    return [float(each) for each in values]
