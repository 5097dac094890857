"""The runs of a report, by method and seed, and what is computed from them.

The edition to share is made from runs whose silo views were taken away first, so that nothing sensitive can slip into
a figure or a table by mistake. One thing is kept of them: which methods price nothing at all (an infinite cost), a
property of the method and no record's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from rpdp.checks import require_choice
from rpdp.errors import InputError
from rpdp.report.report_facts import ReportFacts
from rpdp.spread import Spread

if TYPE_CHECKING:
    from rpdp.federation import RunResult, SiloView

Edition = Literal["silo", "share"]
EDITIONS: tuple[Edition, ...] = ("silo", "share")

_PROMISES = {"rpdp": "each record its own ε"}


@dataclass(frozen=True)
class ReportRuns:
    """All runs of a report; the first run of the first method is the one that the report is about.

    Attributes:
        methods: Runs by method, one per seed.
        unprotected: Methods that promise nothing.
        edition: For whom; to share, no run has a silo view.
        facts: What the runs do not know.
    """

    methods: Mapping[str, tuple[RunResult, ...]]
    unprotected: frozenset[str]
    edition: Edition
    facts: ReportFacts

    @classmethod
    def of(
        cls, results: RunResult | Mapping[str, Sequence[RunResult]], edition: str, facts: ReportFacts | None
    ) -> ReportRuns:
        """Check what was given, and take away what the edition must not show."""
        require_choice("edition", edition, EDITIONS)
        methods = (
            {name: tuple(runs) for name, runs in results.items()}
            if isinstance(results, Mapping)
            else {results.method: (results,)}
        )
        if not methods or not all(methods.values()):
            empty = ", ".join(name for name, runs in methods.items() if not runs) or "results"
            raise InputError(f"a report needs at least one run of each method; there is none of {empty}")
        unprotected = frozenset(name for name, runs in methods.items() if any(map(_prices_nothing, runs)))
        facts = facts or ReportFacts()
        if edition == "share":
            methods = {name: tuple(replace(run, silos={}, groups=()) for run in runs) for name, runs in methods.items()}
            facts = replace(facts, outlook=(), held_out_groups=(), lifetimes={})
        return cls(methods, unprotected, "share" if edition == "share" else "silo", facts)

    @property
    def run(self) -> RunResult:
        """The run that the report is about."""
        return next(iter(self.methods.values()))[0]

    @property
    def method(self) -> str:
        """The name of the method that the report is about."""
        return next(iter(self.methods))

    @property
    def is_protected(self) -> bool:
        """Whether the report is about a method that promises something."""
        return self.method not in self.unprotected

    @property
    def depends_on_coins(self) -> bool:
        """Whether the promise averages over coins that the observer sees, so the cost given them matters too."""
        count = self.run.public.schedule.count()
        return self.is_protected and float(count.probabilities().max()) < 1.0 - 1e-12

    @property
    def for_silo(self) -> bool:
        """Whether everything may be shown."""
        return self.edition == "silo"

    @property
    def is_scored(self) -> bool:
        """Whether any final model was measured."""
        return bool(self.metrics)

    @property
    def silos(self) -> list[str]:
        """Every silo that the plan, a round or a score names, and in the silo edition all others."""
        run = self.run
        names = set(run.silos)
        if isinstance(run.public.weights, Mapping):
            names.update(run.public.weights)
        for log in run.rounds:
            names.update(log.joined, log.rejected, log.score.by_silo if log.score else ())
        return sorted(names)

    def promise(self, method: str) -> str:
        """What a method promises, in a sentence."""
        stated = self.facts.promises.get(method)
        if method in self.unprotected:
            return stated or "nothing"
        return stated or _PROMISES.get(method, "not stated")

    @property
    def metrics(self) -> list[str]:
        """The names of what was measured; the first one decides."""
        scores = [run.score for runs in self.methods.values() for run in runs if run.score]
        return list(dict.fromkeys(name for score in scores for name in score.values))

    def values(self, method: str, metric: str) -> list[float | None]:
        """Of the final models, over all test records, by seed."""
        return [run.score.values.get(metric) for run in self.methods[method] if run.score]

    def means_over_silos(self, method: str, metric: str) -> list[float | None]:
        """Of the final models, the unweighted means of the silos' values, by seed."""
        return [run.score.mean_over_silos.get(metric) for run in self.methods[method] if run.score]

    @property
    def majority_share(self) -> Spread | None:
        """The share of the largest class among the test records: the accuracy of always answering with it."""
        return Spread.of([run.score.majority_share for run in self.methods[self.method] if run.score])

    def one_class(self, method: str) -> int:
        """On how many seeds the final model assigns one class to every test record."""
        return sum(run.score is not None and run.score.only_class is not None for run in self.methods[method])

    def over_budget(self, method: str) -> int:
        """Records, over all seeds, that spend more than they allow, as their silos counted."""
        return sum(view.overdrawn for run in self.methods[method] for view in run.silos.values())

    def records(self, method: str) -> int:
        """Records over all seeds."""
        return sum(len(view.plan) for run in self.methods[method] for view in run.silos.values())

    def same_records(self, run: RunResult, other: RunResult) -> bool:
        """Whether two runs trained on the same records in the same order."""
        return run.silos.keys() == other.silos.keys() and all(
            view.plan.ids.equals(other.silos[silo].plan.ids) for silo, view in run.silos.items()
        )


def rounds_answered(run: RunResult, silo: str) -> int:
    """How many rounds a silo joined, as the server saw it; an update that was rejected was released all the same."""
    return sum(silo in log.joined or silo in log.rejected for log in run.rounds)


def _prices_nothing(run: RunResult) -> bool:
    return any(bool(_priceless(view).any()) for view in run.silos.values())


def _priceless(view: SiloView) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.isinf(view.plan.cost)
