"""The metrics of one model on public test records, as a round's log keeps them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError
from rpdp.metrics import number, title_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    Values = Mapping[str, float | None]


@dataclass(frozen=True)
class ClassCount:
    """How many test records belong to a class, and how many the model assigns to it."""

    records: int
    predicted: int


@dataclass(frozen=True)
class GroupScore:
    """The final model's metrics on the silos' own training records with budgets from `low` to `high`. Sensitive."""

    low: float
    high: float
    records: int
    values: Values


@dataclass(frozen=True)
class Score:
    """The metrics of one model. A value is None where it is not defined, such as AUC where there is one class only.

    The final model is also measured by silo and by class.

    Attributes:
        values: By metric, over all test records of all silos. The first metric decides.
        by_silo: The values of every silo that has test records.
        by_class: The values of every class or label, for metrics that have them; by metric.
        classes: How many test records belong to each class, and how many the model assigns to it.
        remarks: What a reader must know of these values, in sentences.
    """

    values: Values
    by_silo: Mapping[str, Values] = field(default_factory=dict)
    by_class: Mapping[str, Values] = field(default_factory=dict)
    classes: Mapping[str, ClassCount] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Score:
        """Read a score from a log. Release 0.1 knew accuracy only."""
        if "values" not in values:
            silos = {silo: {"accuracy": value} for silo, value in values["by_silo"].items()}
            return cls({"accuracy": values["accuracy"]}, silos)
        classes = {name: ClassCount(**count) for name, count in values["classes"].items()}
        return cls(**{**values, "classes": classes, "remarks": tuple(values["remarks"])})

    def __getitem__(self, metric: str) -> float | None:
        """The value of a metric over all test records."""
        if metric not in self.values:
            raise InputError(f"metric {metric!r} was not measured; there are {', '.join(self.values)}")
        return self.values[metric]

    def text(self, digits: int) -> str:
        """All values in a line, such as "AUC 0.789, accuracy 0.896"."""
        return ", ".join(f"{title_of(name)} {number(value, digits)}" for name, value in self.values.items())

    @property
    def first(self) -> str:
        """The name of the metric that decides."""
        return next(iter(self.values))

    @property
    def accuracy(self) -> float:
        """The accuracy over all test records; an error if it was not among the metrics."""
        value = self["accuracy"]
        assert value is not None  # defined for every model
        return value

    @property
    def mean_over_silos(self) -> Values:
        """By metric, the unweighted mean of the silos' values, where they are defined."""
        return {metric: self._mean(metric) for metric in self.values}

    def _mean(self, metric: str) -> float | None:
        known = [value for one in self.by_silo.values() if (value := one.get(metric)) is not None]
        return statistics.fmean(known) if known else None

    @property
    def majority_share(self) -> float | None:
        """The share of the largest class: the accuracy of always answering with it. None if there are no classes."""
        total = sum(count.records for count in self.classes.values())
        return max(count.records for count in self.classes.values()) / total if total else None

    @property
    def only_class(self) -> str | None:
        """The class that the model assigns to every test record, although there are others; else None."""
        assigned = [name for name, count in self.classes.items() if count.predicted]
        several = sum(count.records > 0 for count in self.classes.values()) > 1
        return assigned[0] if several and len(assigned) == 1 else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The remarks, and that the model assigns one class to everything, if so."""
        if self.only_class is None:
            return self.remarks
        said = f"the model assigns class {self.only_class} to every test record: accuracy says nothing about it"
        return (said, *self.remarks)
