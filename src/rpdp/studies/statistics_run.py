"""Statistics of a study's tables: what is asked, the plan, and a simulation or a real run that answers it.

All silos answer one inquiry, each with a noise and a charge of its own. A simulation asks all rows that the schema
keeps. A real run asks the records of the silos' ledgers: those that a real run trains on, and with private evaluation
those that are held out for it, too.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.errors import InputError
from rpdp.federation import Policy, Silo
from rpdp.planning import DECLARED_SAMPLE
from rpdp.statistics import (
    Answers,
    BudgetCheck,
    Columns,
    ColumnSource,
    Count,
    DeclaredRecords,
    Inquiry,
    NoiseChoice,
    NumberRange,
    RequestTerms,
    ask,
    check_budgets,
    choose_noise,
    declared_columns,
    statistics_of,
)
from rpdp.statistics.answers import bare_records
from rpdp.statistics.named_statistics import BINS, OF_NUMBERS, QUANTILE_BINS, correlation_of
from rpdp.studies.building import policy_of, simulated_account
from rpdp.studies.execution import real_run_errors
from rpdp.studies.real_run import heads_of, open_ledgers, own_limits, run_id
from rpdp.studies.study_budgets import load_budgets
from rpdp.studies.study_data import SiloSource, is_by_silo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rpdp.ledger import Ledger, MemoryAccount
    from rpdp.planning import PublicPlan, RequestEstimator
    from rpdp.statistics import Statistic
    from rpdp.studies.study_file import StudyFile
    from rpdp.studies.study_tables import StudyTable
    from rpdp.tables import EncodedTable, TableSchema

DEFAULT_SHARE = 0.1
DEFAULT_STATISTICS = ("mean", "sd", "histogram")
OF_RECORDS = ("count", "correlation")
"""Statistics that are not of one column: how many records there are, and the correlations of all pairs of numbers."""


@dataclass(frozen=True)
class Question:
    """What is asked of a study.

    Attributes:
        columns: The columns.
        wanted: The statistics of numbers; levels have proportions.
        by: A column of groups, or None.
        estimator: "everyone" or "representative".
        share: The share of a lifetime budget; None for that of the study file, else `DEFAULT_SHARE`.
        floor: For "everyone": the least lifetime ε that takes part.
        bins: The bins of histograms.
        quantile_bins: The bins from which quantiles are read.
    """

    columns: tuple[str, ...]
    wanted: tuple[str, ...] = DEFAULT_STATISTICS
    by: str | None = None
    estimator: RequestEstimator = "representative"
    share: float | None = None
    floor: float | None = None
    bins: int = BINS
    quantile_bins: int = QUANTILE_BINS

    def inquiry(
        self, spec: StudyFile, estimator: RequestEstimator | None = None, *, for_check: bool = False
    ) -> Inquiry:
        """The statistics of these columns, by the estimator of the question or another one."""
        declared = declared_columns(_table_of(spec).schema)
        used = estimator or self.estimator
        unknown = [name for name in self.wanted if name not in (*OF_NUMBERS, *OF_RECORDS)]
        if unknown:
            raise InputError(f"--statistics {unknown[0]!r} must be some of {', '.join((*OF_NUMBERS, *OF_RECORDS))}")
        of_numbers: Any = [name for name in self.wanted if name in OF_NUMBERS]
        made: list[Statistic] = [Count()] if "count" in self.wanted and used == "everyone" and not for_check else []
        for column in self.columns:
            bins = {"bins": self.bins, "quantile_bins": self.quantile_bins}
            made += statistics_of(declared, column, of_numbers, by=self._group_of(spec), **bins)
        if "correlation" in self.wanted:
            numbers = [name for name in self.columns if isinstance(declared[name], NumberRange)]
            made += [correlation_of(declared, one, other) for one, other in itertools.combinations(numbers, 2)]
        return Inquiry(tuple(made), used, for_check=for_check)

    def _group_of(self, spec: StudyFile) -> str | None:
        return None if self.is_by_silo(spec) else self.by

    def is_by_silo(self, spec: StudyFile) -> bool:
        """Whether groups are silos, which costs nothing more."""
        return is_by_silo(spec, self.by)

    def terms(self, spec: StudyFile) -> RequestTerms:
        """The settings that decide prices."""
        share = self.share if self.share is not None else spec.privacy.share or DEFAULT_SHARE
        settings = {
            "study": spec.run.study,
            "silos_per_person": spec.policy.silos_per_person,
            "account": spec.privacy.account,
            "lifetime_delta": spec.lifetime_delta,
            "schema_fingerprint": spec.schema_fingerprint,
        }
        return RequestTerms(spec.delta, share, settings)


@dataclass(frozen=True)
class AnsweredQuestion:
    """What a run answered.

    Attributes:
        answers: The released sums and their inquiry.
        choice: The noise and what was expected of it.
        seed: The seed of a simulation; None for a real run.
        checks: The comparison of the estimators, if it was asked for.
    """

    answers: Answers
    choice: NoiseChoice
    seed: int | None
    checks: tuple[BudgetCheck, ...] = ()


def plan_statistics(
    spec: StudyFile, question: Question, shares: tuple[float, ...], estimator: RequestEstimator
) -> list[NoiseChoice]:
    """The noise and the expected intervals for each of these shares. Nothing is read but the study file."""
    inquiry, known = question.inquiry(spec, estimator), _known(spec, None)
    floor = question.floor if estimator == "everyone" else None
    return [choose_noise(inquiry, known, replace(question.terms(spec), share=share), floor=floor) for share in shares]


def run_statistics(
    spec: StudyFile,
    question: Question,
    seed: int | None,
    *,
    run: str = "",
    resume: bool = False,
    wait: float = 0.0,
    check: bool = False,
    accounts: dict[str, MemoryAccount] | None = None,
    on_choice: Callable[[NoiseChoice], None] | None = None,
) -> AnsweredQuestion:
    """Ask all silos, as a simulation or for real.

    Args:
        spec: The study file.
        question: What is asked.
        seed: The seed of a simulation; None for a real run.
        run: The id of a real run.
        resume: Whether that run began before: it goes on, and what was released stays as it is.
        wait: For how many seconds to wait for each ledger that another process is writing.
        check: Also ask by the other estimator, charged as a run of its own, and compare both.
        accounts: Of a simulation the accounts that its training shares, by silo; those that are missing are added. Then
            only the records that have a part in the study are asked.
        on_choice: Called with what is to be expected, before anything is asked; what it raises ends it there.
    """
    asked = _Asked.of(spec, question, seed, run, resume=resume, wait=wait, accounts=accounts)
    if on_choice is not None:
        on_choice(asked.planned(question.inquiry(spec), question.floor)[0])
    if not check:
        answers, choice = asked.answer(question.inquiry(spec), question.floor, run)
        return AnsweredQuestion(answers, choice, seed)
    everyone = question.inquiry(spec, "everyone", for_check=True)
    representative = question.inquiry(spec, "representative")
    first, _ = asked.answer(everyone, question.floor, f"{run}-everyone" if run else "")
    answers, choice = asked.answer(representative, None, run)
    return AnsweredQuestion(answers, choice, seed, check_budgets(first.estimates(), answers.estimates()))


def simulated_question(spec: StudyFile, question: Question, seed: int) -> tuple[PublicPlan, list[Silo]]:
    """The plan of a question and the silos of a simulation that would answer it; nothing is asked."""
    asked = _Asked.of(spec, question, seed, "", resume=False, wait=0.0)
    _, public = asked.planned(question.inquiry(spec), question.floor)
    return public, asked.silos(spec, public, {})


@dataclass(frozen=True)
class _Asked:
    """The tables of a study, their budgets and its question."""

    spec: StudyFile
    question: Question
    seed: int | None
    tables: Mapping[str, EncodedTable]
    resume: bool
    wait: float
    accounts: dict[str, MemoryAccount] | None

    @classmethod
    def of(
        cls,
        spec: StudyFile,
        question: Question,
        seed: int | None,
        run: str,
        *,
        resume: bool,
        wait: float,
        accounts: dict[str, MemoryAccount] | None = None,
    ) -> _Asked:
        if seed is None and not run:
            raise InputError("a real run of statistics needs --run, the name by which the ledgers know it")
        tables = _table_of(spec).load(spec.directory, seed or 0 if spec.run.split == "by_seed" else 0)
        if seed is None or accounts is not None:
            tables = {name: _enrolled(spec, table) for name, table in tables.items()}
        return cls(spec, question, seed, tables, resume, wait, accounts)

    def planned(self, inquiry: Inquiry, floor: float | None) -> tuple[NoiseChoice, PublicPlan]:
        terms = self.question.terms(self.spec)
        choice = choose_noise(inquiry, _known(self.spec, self.tables), terms, floor=floor)
        return choice, terms.plan(inquiry.request, choice.noise_multiplier)

    def answer(self, inquiry: Inquiry, floor: float | None, run: str) -> tuple[Answers, NoiseChoice]:
        choice, public = self.planned(inquiry, floor)
        if self.seed is not None:
            return ask(inquiry, public, self.silos(self.spec, public, {}), seed=self.seed), choice
        spec = replace(self.spec, run=replace(self.spec.run, id=run))
        run_id(spec, "rpdp", resume=self.resume)
        with ExitStack() as stack:
            ledgers = stack.enter_context(open_ledgers(spec, run, resume=self.resume, wait=self.wait))
            stack.enter_context(real_run_errors())
            silos = self.silos(spec, public, ledgers)
            return ask(inquiry, public, silos, run=run, heads=heads_of(spec)), choice

    def silos(self, spec: StudyFile, public: PublicPlan, ledgers: Mapping[str, Ledger]) -> list[Silo]:
        sources = {name: _source(table) for name, table in self.tables.items()}
        budgets = load_budgets(spec, sources, self.seed or 0)
        return [
            Silo(
                name,
                sources[name].train,
                budgets[name],
                policy=policy_of(spec, public, own_limits(spec, name, ledgers[name])) if ledgers else Policy.of(public),
                account=ledgers[name] if ledgers else self._account(name, public),
                schema_fingerprint=spec.schema_fingerprint,
                measured={"statistics": ColumnSource(Columns.of_table(table, _table_of(spec).schema))},
            )
            for name, table in self.tables.items()
        ]

    def _account(self, silo: str, public: PublicPlan) -> MemoryAccount:
        made = simulated_account(public, len(self.tables[silo]))
        return made if self.accounts is None else self.accounts.setdefault(silo, made)


def _enrolled(spec: StudyFile, table: EncodedTable) -> EncodedTable:
    """The records that have accounts, in their order: those for training, then with private evaluation the others."""
    parts = [~table.is_test] if spec.evaluation.share is None else [~table.is_test, table.is_test]
    return table.take(np.concatenate([np.flatnonzero(part) for part in parts]))


def _source(table: EncodedTable) -> SiloSource:
    subjects = None if table.subjects is None else table.subjects.tolist()
    return SiloSource(bare_records(len(table)), table.ids.tolist(), bare_records(0), subjects, table.survey)


def _known(spec: StudyFile, tables: Mapping[str, EncodedTable] | None) -> DeclaredRecords:
    """What is declared: the distribution of budgets, and the number of records in a silo."""
    records, silos = spec.budgets.records_per_silo, _silos_of(spec)
    if records is None:
        if tables is None:
            raise InputError(
                f"{spec.path}: budgets.records_per_silo is missing: declare the nominal number of records of a silo, "
                "from which noise and expected intervals are planned"
            )
        records = round(float(np.mean([len(table) for table in tables.values()])))
    if tables is not None:
        silos = len(tables)
    return DeclaredRecords(spec.declared_distribution.sample(DECLARED_SAMPLE, 0), records, silos)


def _silos_of(spec: StudyFile) -> int:
    section = _table_of(spec).section
    if section.files is not None:
        return len(section.files)
    return len(section.silos or ("all",)) + (section.rest is not None)


def _table_of(spec: StudyFile) -> StudyTable:
    if spec.table is None:
        raise InputError(f"{spec.path}: statistics need a [table] with a schema, which says what its columns mean")
    return spec.table


def schema_of(spec: StudyFile) -> TableSchema:
    """The schema of a study's tables."""
    return _table_of(spec).schema
