"""From a silo file to an agent that is ready to serve: data, budgets, ledger and models opened and checked together."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from rpdp.budgets import BudgetTable
from rpdp.deployment.agent.agent import Agent, AllowedModel, Timing
from rpdp.deployment.agent.socket_service import require_private
from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.federation import Silo
from rpdp.sampling import Secure, Seeded
from rpdp.studies.study_data import records_of
from rpdp.studies.user_code import call_factory, load_function, task_named
from rpdp.training import FlatModel, Records, make_kernel
from rpdp.training import require_private as require_private_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rpdp.deployment.files.silo_file import ModelSection, SiloFile
    from rpdp.ledger import Ledger
    from rpdp.sampling import Randomness


@contextmanager
def opened_agent(spec: SiloFile) -> Iterator[Agent]:
    """The agent of a silo; it holds the silo's ledger as its writer until it is closed."""
    models = _models(spec)
    records, ids = _data(spec)
    for name, model in zip(spec.models, models, strict=True):
        _require_fitting(spec, name, model, records)
    budgets = _budgets(spec.file(spec.silo.budgets))
    with _ledger(spec) as ledger:
        silo = Silo(spec.silo.name, records, budgets, policy=spec.policy.policy(), record_ids=ids, account=ledger)
        ledger.left(silo.budgets, spec.policy.lifetime_delta)  # every record has an account, or it is told now
        agent = Agent(
            silo,
            models,
            _randomness(spec),
            Timing(spec.policy.release_after),
            closed_runs=spec.silo.closed_runs,
            threads=spec.silo.threads,
        )
        try:
            yield agent
        finally:
            agent.close()


def record_ids(spec: SiloFile) -> list[str]:
    """The ids of the silo's records."""
    return _data(spec)[1]


def _budgets(path: Path) -> BudgetTable:
    """The silo's budgets, from a file that is out of the reach of others by its own mode or its directory's."""
    table, path = BudgetTable.read(path), path.resolve()
    if path.parent.stat().st_mode & 0o011:
        require_private(path)
    return table


def _randomness(spec: SiloFile) -> Callable[[], Randomness]:
    if spec.simulation is None:
        return Secure
    seed = spec.simulation.seed
    return lambda: Seeded(seed).child("silo", spec.silo.name)


@contextmanager
def _ledger(spec: SiloFile) -> Iterator[Ledger]:
    from rpdp.ledger import Ledger
    from rpdp.ledger.store.ledger_files import LedgerFiles

    path = spec.file(spec.silo.ledger)
    if not path.is_file():
        raise PrivacyRefusal(
            f"{spec.path}: there is no ledger {path}; make one with `rpdp ledger create {path} --budgets "
            f"{spec.file(spec.silo.budgets)} --lifetime-delta {spec.policy.lifetime_delta}`"
        )
    for file in (path, LedgerFiles(path).key, LedgerFiles(path).inbox):
        require_private(file)
    if spec.path.stat().st_mode & 0o022:
        raise PrivacyRefusal(f"{spec.path}: others can write to it, and so state this silo's limits; `chmod go-w` it")
    with Ledger.open(path) as ledger:
        if ledger.is_simulation != (spec.simulation is not None):
            kinds = ("production", "simulation")
            raise PrivacyRefusal(
                f"{spec.path}: {path} is a {kinds[ledger.is_simulation]} ledger, for ever, and this file describes a "
                f"{kinds[spec.simulation is not None]} silo"
            )
        yield ledger


def _data(spec: SiloFile) -> tuple[Records, list[str]]:
    """Training records and their ids."""
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
    """What may be trained. A plan names a model by its fingerprint, so no two may share one."""
    models = {name: _model(spec, name, section) for name, section in spec.models.items()}
    seen: dict[str, str] = {}
    for name, model in models.items():
        if model.fingerprint in seen:
            raise InputError(
                f"{spec.path}: models.{seen[model.fingerprint]} and models.{name} have the same parameters, and a plan "
                "could not tell which loss is meant; keep one of them"
            )
        seen[model.fingerprint] = name
    return list(models.values())


def _require_fitting(spec: SiloFile, name: str, model: AllowedModel, records: Records) -> None:
    """Model and loss run on the records here, or it is told now and not when a server asks.

    It is the check that admission makes: about the code, not about what the records say.
    """
    if len(records) == 0:
        return  # the silo refuses that, in its own words
    try:
        make_kernel(FlatModel(copy.deepcopy(model.module)), model.loss, records)
    except RpdpError as error:
        raise type(error)(f"{spec.path}: models.{name}: {error}") from None


def _model(spec: SiloFile, name: str, section: ModelSection) -> AllowedModel:
    if section.task is not None:
        chosen = task_named(section.task, spec.directory)
        module, loss = chosen.model(seed=0), chosen.loss
    else:
        module = call_factory(str(section.model), spec.directory, seed=0)
        loss = load_function(str(section.loss), spec.directory)
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{spec.path}: models.{name}: {section.model}() returned {type(module).__name__}, no model")
    require_private_model(module)
    return AllowedModel(module, loss)
