"""From a silo file to an agent that is ready to serve: loads and checks data, budgets, ledger and models together."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rpdp.budgets import BudgetTable
from rpdp.deployment.agent.agent import Agent, AllowedModel, checked_kernel
from rpdp.deployment.agent.agent_journal import AgentJournal
from rpdp.deployment.agent.release_timing import Timing
from rpdp.deployment.files.silo_file import ALL_COLUMNS
from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.federation import Silo
from rpdp.federation.purposes import Purposes
from rpdp.federation.training_process import TrainingProcess
from rpdp.sampling import Secure, Seeded
from rpdp.statistics import Columns, ColumnSource, ModelCells
from rpdp.studies.study_budgets import require_same_persons
from rpdp.studies.study_data import records_of, table_records
from rpdp.studies.study_tables import NetworkSection
from rpdp.studies.table_models import table_loss, table_model
from rpdp.studies.user_code import call_factory, load_function, task_named
from rpdp.tables import TableSchema, find_table, read_table
from rpdp.training import Records, require_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from rpdp.deployment.files.silo_file import ModelSection, SiloFile
    from rpdp.federation.cells import CellSource
    from rpdp.ledger import Ledger
    from rpdp.planning import Purpose
    from rpdp.sampling import Randomness
    from rpdp.tables.encoded_table import EncodedTable
    from rpdp.training import Kernel


@contextmanager
def open_agent(spec: SiloFile, wait: float = 0.0, *, watched: bool = False) -> Iterator[Agent]:
    """The agent of a silo. It holds the silo's ledger as its only writer until the block ends.

    One that is watched writes its status, and metrics if the silo file names a file for them.
    """
    torch.set_num_threads(1)  # torch's threads do not survive a fork; the process that trains has its own
    models = _models(spec)
    held = silo_records(spec)
    records, ids = held.records, held.ids
    persons = None if held.subjects is None else (ids, held.subjects)
    named = None if spec.silo.records is None else spec.file(spec.silo.records)
    budgets = _budgets(spec.file(spec.silo.budgets), persons if named is None else named)
    require_same_persons(budgets.arranged(ids) if held.subjects else budgets, held.subjects)
    measured = _measured(spec, models, held)
    purposes = Purposes(spec.silo.name, len(records), measured, held.held_out)
    with _trainer(spec, models, records, purposes) as trainer, _ledger(spec, wait) as ledger:
        silo = Silo(
            spec.silo.name,
            records,
            budgets,
            policy=spec.policy.policy(),
            record_ids=ids,
            account=ledger,
            schema_fingerprint=held.schema_fingerprint,
            measured=measured,
            held_out=held.held_out,
        )
        ledger.left(silo.budgets, spec.policy.lifetime_delta)  # raises now if a record has no account
        journal = _journal(spec) if watched else AgentJournal(spec.silo.name)
        agent = Agent(
            silo,
            models,
            _randomness(spec),
            Timing(spec.policy.release_after),
            closed_runs=spec.silo.closed_runs,
            max_concurrent_runs=spec.policy.max_concurrent_runs,
            trainer=trainer,
            evaluated=_evaluated(spec, models),
            journal=journal,
        )
        try:
            if watched:
                journal.begin()
            yield agent
        finally:
            agent.close()
            if watched:
                journal.end()


def _journal(spec: SiloFile) -> AgentJournal:
    from rpdp.ledger.store.ledger_files import LedgerFiles

    metrics = None if spec.metrics is None else spec.file(spec.metrics.file)
    return AgentJournal(spec.silo.name, status=LedgerFiles(spec.file(spec.silo.ledger)).agent, metrics=metrics)


@contextmanager
def _trainer(
    spec: SiloFile, models: list[AllowedModel], records: Records, purposes: Purposes | None = None
) -> Iterator[TrainingProcess]:
    """The process that trains. It is made before the ledger is opened, so that it never holds a handle to it."""
    if len(records) == 0:
        raise InputError(f"{spec.path}: silo {spec.silo.name}: it has no records; leave it out of the federation")
    kernels = {
        model.fingerprint: _fitting(spec, name, model, records) for name, model in zip(spec.models, models, strict=True)
    }
    trainer = TrainingProcess(kernels, records, _randomness(spec), threads=spec.silo.threads, purposes=purposes)
    try:
        yield trainer
    finally:
        trainer.close()


def _measured(spec: SiloFile, models: list[AllowedModel], held: SiloRecords) -> dict[Purpose, CellSource]:
    """The code that answers requests: the columns that the steward allows, and the model that may be evaluated."""
    found: dict[Purpose, CellSource] = {}
    if spec.requests.statistics is not None:
        assert held.table is not None
        columns = Columns.of_table(held.table, _schema(spec))
        try:
            found["statistics"] = ColumnSource(columns.only(_allowed(spec.requests.statistics, columns)))
        except InputError as error:
            raise InputError(f"{spec.path}: requests.statistics: {error}") from None
    if spec.requests.evaluation is not None:
        evaluated = list(spec.models).index(spec.requests.evaluation)
        found["evaluation"] = ModelCells(held.records, models[evaluated].module)
    return found


def _allowed(names: Sequence[str], columns: Columns) -> Sequence[str]:
    return tuple(columns.declared) if tuple(names) == (ALL_COLUMNS,) else names


def _evaluated(spec: SiloFile, models: list[AllowedModel]) -> str | None:
    """The fingerprint of the model that may be evaluated."""
    named = dict(zip(spec.models, models, strict=True))
    return None if spec.requests.evaluation is None else named[spec.requests.evaluation].fingerprint


def _budgets(path: Path, records: Path | tuple[Sequence[str], Sequence[str]] | None = None) -> BudgetTable:
    """The silo's budgets, from a file that others cannot reach, by its own mode or its directory's."""
    table, path = BudgetTable.read(path, records=records), path.resolve()
    if path.parent.stat().st_mode & 0o011:
        require_owner_only(path)
    return table


def require_owner_only(path: str | Path) -> None:
    """Refuse a file of the silo that others can read or write."""
    if Path(path).stat().st_mode & 0o077:
        raise PrivacyRefusal(f"{path}: others can read or write it; run `chmod go-rwx {path}`")


def _randomness(spec: SiloFile) -> Callable[[], Randomness]:
    if spec.simulation is None:
        return Secure
    seed = spec.simulation.seed
    return lambda: Seeded(seed).child("silo", spec.silo.name)


@contextmanager
def _ledger(spec: SiloFile, wait: float = 0.0) -> Iterator[Ledger]:
    from rpdp.ledger import Ledger
    from rpdp.ledger.store.ledger_files import LedgerFiles

    path = spec.file(spec.silo.ledger)
    if not path.is_file():
        raise PrivacyRefusal(
            f"{spec.path}: there is no ledger {path}; make one with `rpdp ledger create {path} --budgets "
            f"{spec.file(spec.silo.budgets)} --lifetime-delta {spec.policy.lifetime_delta} --steward steward.pub` (the "
            "steward's keys: `rpdp ledger keygen steward`)"
        )
    for file in (path, LedgerFiles(path).key, LedgerFiles(path).inbox):
        require_owner_only(file)
    if spec.path.stat().st_mode & 0o022:
        raise PrivacyRefusal(
            f"{spec.path}: others can write to it and so change this silo's limits; run `chmod go-w {spec.path}`"
        )
    with Ledger.open(path, wait=wait) as ledger:
        if ledger.is_simulation != (spec.simulation is not None):
            kinds = ("production", "simulation")
            raise PrivacyRefusal(
                f"{spec.path}: {path} is a {kinds[ledger.is_simulation]} ledger, which never changes, but this file "
                f"describes a {kinds[spec.simulation is not None]} silo"
            )
        yield ledger


@dataclass(frozen=True)
class SiloRecords:
    """The records of a silo; of a table also the persons, the schema, how its cells were read, and who is held out."""

    records: Records
    ids: list[str]
    subjects: list[str] | None = None
    schema_fingerprint: str | None = None
    table: EncodedTable | None = None
    held_out: NDArray[np.bool_] | None = None

    __repr__ = counts_repr


def record_ids(spec: SiloFile) -> list[str]:
    """The ids of the silo's records."""
    return silo_records(spec).ids


def silo_records(spec: SiloFile) -> SiloRecords:
    """Load the records of a silo: those to train on, and those that are held out if it answers evaluations."""
    if spec.data.table is not None:
        return _of_table(spec, spec.data.table)
    return SiloRecords(*_data(spec))


def table_remarks(spec: SiloFile) -> list[str]:
    """How the cells of the silo's table were read, in sentences; for the steward only."""
    table = silo_records(spec).table
    remarks = [] if table is None else table.survey.remarks()
    return [f"{text}; {advice}" if advice else text for _, text, advice in remarks]


def _of_table(spec: SiloFile, name: str) -> SiloRecords:
    """Load the records of the silo's table."""
    schema = _schema(spec)
    if schema.record is None and spec.simulation is None:
        raise InputError(
            f"{spec.path}: {spec.data.schema}: record is missing: accounts are kept by the ids of records, so name the "
            "column that holds them"
        )
    path = find_table(name, spec.directory)
    try:
        encoded = schema.encode(read_table(path))
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
    held_out = None if spec.requests.evaluation is None else encoded.is_test
    held = encoded.take(~encoded.is_test) if held_out is None else encoded
    subjects = None if held.subjects is None else held.subjects.tolist()
    return SiloRecords(table_records(held), held.ids.tolist(), subjects, schema.fingerprint, held, held_out)


def _schema(spec: SiloFile) -> TableSchema:
    return TableSchema.read(spec.file(str(spec.data.schema)))


def _data(spec: SiloFile) -> tuple[Records, list[str]]:
    """The training records and their ids, from a function or a built-in task."""
    section = spec.data
    if section.task is not None:
        silos = task_named(section.task, spec.directory).load(section.partition).silos
        if section.part is None or section.part not in silos:
            raise InputError(f"{spec.path}: data.part={section.part!r} must be one of {', '.join(silos)}")
        held = silos[section.part].train
        return records_of(held), held.record_ids.tolist()
    given = call_factory(str(section.factory), spec.directory, seed=0)
    is_pair = isinstance(given, tuple) and len(given) == 2
    if not is_pair or not isinstance(given[0], Records) or not isinstance(given[1], Iterable):
        raise InputError(
            f"{spec.path}: {section.factory}() returned {type(given).__name__}; it must return (records, their ids), "
            "the records as rpdp.training.Records"
        )
    return given[0], [str(one) for one in given[1]]


def _models(spec: SiloFile) -> list[AllowedModel]:
    """The models that may be trained. A plan names a model by its fingerprint, so no two may share one."""
    models = {name: _model(spec, name, section) for name, section in spec.models.items()}
    seen: dict[str, str] = {}
    for name, model in models.items():
        if model.fingerprint in seen:
            raise InputError(
                f"{spec.path}: models.{seen[model.fingerprint]} and models.{name} have the same parameters, so a plan "
                "cannot say which loss it means; keep one of them"
            )
        seen[model.fingerprint] = name
    return list(models.values())


def _fitting(spec: SiloFile, name: str, model: AllowedModel, records: Records) -> Kernel:
    """The kernel of a model; one that does not fit the records is refused now rather than when a server asks."""
    try:
        return checked_kernel(model, records)
    except RpdpError as error:
        raise type(error)(f"{spec.path}: models.{name}: {error}") from None


def _model(spec: SiloFile, name: str, section: ModelSection) -> AllowedModel:
    if section.task is not None:
        chosen = task_named(section.task, spec.directory)
        module, loss = chosen.model(seed=0), chosen.loss
    elif section.network is not None:
        schema = _schema(spec)
        module = table_model(schema, NetworkSection(section.network, section.hidden), 0)
        loss = table_loss(schema)
    else:
        module = call_factory(str(section.model), spec.directory, seed=0)
        loss = load_function(str(section.loss), spec.directory)
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{spec.path}: models.{name}: {section.model}() returned {type(module).__name__}, not a model")
    require_private(module)
    return AllowedModel(module, loss)
