"""The silo file: a TOML file under the silo's control that says what its agent holds, may train and agrees to.

[silo]                                   paths are relative to this file
name = "north"
ledger = "ledger.db"
budgets = "budgets.csv"
socket = "agent.sock"
[data]                                   the silo's records
factory = "hospital:load"                or table = "north.csv" and schema = "schema.toml"; or a part of a built-in
                                         task: task = "breast_cancer", part = "silo-00"
[models.risk]                            a model that may be trained here; code never comes from a server
model = "hospital:make_model"
loss = "hospital:loss"                   or task = "breast_cancer", or network = "linear" for a table
[requests]                               optional: what it answers besides training, from its table
statistics = ["age", "sex"]              columns that statistics may use, or "all"
evaluation = "risk"                      the model that may be evaluated on held-out records
[policy]                                 the silo's limits; those of the recipe have defaults
max_rounds = 15
max_share_per_run = 0.1                  of every lifetime budget; a new run needs it
max_hold = 86400                         seconds; how long a run may hold budgets before its first round
release_after = 5.0                      seconds; "ready" reveals how long training takes
allowed_plans = ["…"]                    fingerprints; without it any plan within the limits
[metrics]                                optional: public numbers for a monitoring system
file = "/var/lib/…/rpdp.prom"            read by the textfile collector of node_exporter
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.budgets import MOST_SILOS_PER_PERSON
from rpdp.checks import (
    require_count,
    require_delta,
    require_fingerprint,
    require_fraction,
    require_least,
    require_positive,
)
from rpdp.errors import InputError
from rpdp.federation.policy import CONCURRENT_RUNS, LONGEST_HOLD, ONE_DAY
from rpdp.federation.stated_limits import reserves
from rpdp.setting_fields import either, list_of, nearest, one_of, plain_name, read_section, setting, text
from rpdp.studies.study_sections import reference
from rpdp.studies.study_tables import NETWORKS, widths

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind
    from rpdp.federation import Policy
    from rpdp.planning import PublicPlan, Purpose

READY = "ready"
ALL_COLUMNS = "all"

MOST_CONCURRENT_RUNS = 64
"""The agent keeps the plan of every unfinished run in memory."""

_OF_THE_AGENT = ("release_after", "max_concurrent_runs")
"""Limits that the agent enforces, not the silo."""


def _names(name: str, value: object) -> tuple[str, ...]:
    """A list of names, which may be empty."""
    return () if value == [] else list_of(text)(name, value)


def _fingerprints(name: str, value: object) -> tuple[str, ...]:
    """A list of plans; an empty one allows none."""
    return () if value == [] else list_of(require_fingerprint)(name, value)


def _prometheus_file(name: str, value: object) -> str:
    """A file that node_exporter reads: it passes over those with another ending."""
    if not text(name, value).endswith(".prom"):
        raise InputError(f"{name}={value!r} must end with .prom, or node_exporter does not read it")
    return str(value)


@dataclass(frozen=True)
class SiloSection:
    """`[silo]`: its name, its files, its socket.

    Attributes:
        records: With budgets by person: the table of records and their persons (record,subject), unless the data name
            them.
        socket: The agent's Unix socket.
        group: The system group that may open the socket.
        threads: Threads to train with.
        closed_runs: Runs that were given up; they are never continued.
    """

    name: str = setting(plain_name, meaning="the silo's name in the federation")
    ledger: str = setting(text, meaning='its ledger, made with "rpdp ledger create"')
    budgets: str = setting(text, meaning="its budget file")
    records: str | None = setting(text, None)
    socket: str = setting(text, "agent.sock")
    group: str | None = setting(text, None)
    threads: int = setting(partial(require_count, most=1024), 1)
    closed_runs: tuple[str, ...] = setting(_names, ())


@dataclass(frozen=True)
class DataSection:
    """`[data]`: a function of the silo's own, a table, or a part of a built-in task.

    Attributes:
        factory: A function that returns (Records, ids).
        table: Instead of factory: a table with the silo's records. Test records of its schema's split are left out.
        schema: With table: its schema file, or a study file with [table].
        task: Instead of both: a built-in task.
        part: With task: the silo of the task whose records these are.
        partition: With task: how its data are divided.
    """

    factory: str | None = setting(reference, None)
    table: str | None = setting(text, None)
    schema: str | None = setting(text, None)
    task: str | None = setting(text, None)
    part: str | None = setting(text, None)
    partition: str | None = setting(text, None)

    def __post_init__(self) -> None:
        given = [each for each in (self.factory, self.table, self.task) if each is not None]
        is_whole = (self.task is None) == (self.part is None) and (self.table is None) == (self.schema is None)
        if len(given) != 1 or not is_whole:
            raise InputError(
                'data needs either factory = "module:function", or table = "north.csv" with schema = "schema.toml", or '
                'task = "a built-in task" with part = "its silo"'
            )
        if self.partition is not None and self.task is None:
            raise InputError(f"data.partition={self.partition!r} goes with a built-in task")


@dataclass(frozen=True)
class ModelSection:
    """`[models.NAME]`: a model that may be trained here, with its loss.

    Attributes:
        model: A function that returns the model.
        loss: A function from outputs and targets to one value per record.
        task: Instead of both: a built-in task.
        network: Instead of all: linear or mlp, for the table of [data].
        hidden: With network: the widths of the hidden layers of mlp.
    """

    model: str | None = setting(reference, None)
    loss: str | None = setting(reference, None)
    task: str | None = setting(text, None)
    network: str | None = setting(one_of(*NETWORKS), None)
    hidden: tuple[int, ...] | None = setting(widths, None)

    def __post_init__(self) -> None:
        given = [each for each in (self.model, self.task, self.network) if each is not None]
        if len(given) != 1 or (self.model is None) != (self.loss is None):
            raise InputError(
                'a model needs either model and loss = "module:function", or task = "a built-in task", or network = '
                '"linear" for a table'
            )
        if self.hidden is not None and self.network != "mlp":
            raise InputError(f'hidden={list(self.hidden)} needs network = "mlp"')


def _columns(name: str, value: object) -> tuple[str, ...]:
    """Names of columns, or "all"."""
    return (ALL_COLUMNS,) if value == ALL_COLUMNS else list_of(text)(name, value)


@dataclass(frozen=True)
class RequestSection:
    """`[requests]`: what the silo answers besides training, from its table. Without the section nothing.

    Attributes:
        statistics: The columns that statistics may use, or "all".
        evaluation: The name of the model that may be evaluated on held-out records: the test records of the schema's
            split. They then need budgets and accounts like all others, and are never trained on.
    """

    statistics: tuple[str, ...] | None = setting(_columns, None)
    evaluation: str | None = setting(text, None)


@dataclass(frozen=True)
class LimitSection:
    """`[policy]`: the silo's limits, and when its answers leave. Limits of the training recipe have defaults.

    Attributes:
        max_share_per_run: The largest share of a lifetime budget that one run may take. Without it, runs that were
            admitted before continue, and new ones are refused.
        max_epsilon_per_run: The largest ε of one run alone.
        reserved: Shares of lifetime budgets that are kept for purposes, such as {evaluation = 0.2}.
        silos_per_person: In how many silos of the federation a person may ever have an account; as in the ledger.
        max_hold: For how many seconds a run may hold budgets before its first round.
        max_concurrent_runs: How many unfinished runs the agent carries at the same time. Their rounds take turns.
        allowed_plans: Fingerprints of the plans that may run here. Without it, any plan within the limits may run, and
            book budgets.
        min_learning_rate: The smallest learning rate, in the last round as well.
        max_learning_rate: The largest learning rate.
        max_momentum: The largest momentum.
        min_micro_batch: The smallest micro-batch.
        max_proximal: The largest strength of FedProx.
        max_cells: The largest number of cells of a request.
    """

    max_rounds: int = setting(require_count, meaning="the largest T this silo agrees to")
    max_local_steps: int = setting(require_count, meaning="the largest τ")
    max_participation: float = setting(require_fraction, meaning="the largest λ, or k/T")
    max_clip_norm: float = setting(require_positive, meaning="the largest L")
    min_noise_multiplier: float = setting(require_positive, meaning="the smallest σ")
    lifetime_delta: float = setting(require_delta, meaning="δ that records without one of their own allow for life")
    max_runs: int = setting(require_count, meaning="how many runs in all")
    release_after: float | None = setting(
        either(
            ((int, float), require_positive),
            (str, one_of(READY)),
            otherwise=f'seconds, or "{READY}"',
        ),
        meaning=f'seconds after an announcement at which answers leave; "{READY}" if their timing may be visible',
    )
    max_share_per_run: float | None = setting(require_fraction, None)
    max_epsilon_per_run: float | None = setting(require_positive, None)
    reserved: Mapping[Purpose, float] | None = setting(reserves, None)
    silos_per_person: int = setting(partial(require_count, most=MOST_SILOS_PER_PERSON), 1)
    max_hold: int = setting(partial(require_count, most=LONGEST_HOLD), ONE_DAY)
    max_concurrent_runs: int = setting(partial(require_count, most=MOST_CONCURRENT_RUNS), CONCURRENT_RUNS)
    allowed_plans: tuple[str, ...] | None = setting(_fingerprints, None)

    min_learning_rate: float = setting(require_positive, 1e-6)
    max_learning_rate: float = setting(require_positive, 10.0)
    max_momentum: float = setting(partial(require_least, least=0.0), 0.99)
    min_micro_batch: int = setting(require_count, 256)
    max_proximal: float = setting(partial(require_least, least=0.0), 10.0)
    max_cells: int = setting(require_count, 100_000)

    def __post_init__(self) -> None:
        if isinstance(self.release_after, str):
            object.__setattr__(self, "release_after", None)

    def policy(self) -> Policy:
        """The policy that the silo enforces."""
        from rpdp.federation import Policy

        limits = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _OF_THE_AGENT}
        return Policy(**limits | {"reserved": self.reserved or {}})

    def largest_plan(self, account: AccountKind) -> PublicPlan:
        """The plan of the largest run that these limits admit: the most rounds and steps, the least noise."""
        from rpdp.accounting import Schedule
        from rpdp.planning import PublicPlan

        return PublicPlan(
            Schedule(self.max_rounds, self.max_local_steps, participation=self.max_participation),
            noise_multiplier=self.min_noise_multiplier,
            delta=self.lifetime_delta,
            clip_norm=self.max_clip_norm,
            normaliser=1.0,
            weights=1.0,
            silos_per_person=self.silos_per_person,
            account=account,
            lifetime_delta=self.lifetime_delta,
        )


@dataclass(frozen=True)
class MetricsSection:
    """`[metrics]`: public numbers for a monitoring system. Everybody on the machine can read the file.

    Attributes:
        file: Written by the agent after each of its answers, for the textfile collector of node_exporter: *.prom.
    """

    file: str = setting(_prometheus_file, meaning="the file that the agent writes, such as /var/lib/…/rpdp.prom")


@dataclass(frozen=True)
class SimulationSection:
    """`[simulation]`: a seed, for tests. It needs a ledger made with --simulation, and protects nobody."""

    seed: int = setting(partial(require_count, least=0), meaning="the seed of the simulation")


_SECTIONS: dict[str, type[Any]] = {"silo": SiloSection, "data": DataSection, "policy": LimitSection}
_KNOWN = [*_SECTIONS, "models", "requests", "metrics", "simulation"]


@dataclass(frozen=True)
class SiloFile:
    """A silo file that was read and checked."""

    path: Path
    silo: SiloSection
    data: DataSection
    policy: LimitSection
    models: Mapping[str, ModelSection]
    simulation: SimulationSection | None
    requests: RequestSection = RequestSection()
    metrics: MetricsSection | None = None

    @classmethod
    def read(cls, path: str | Path) -> SiloFile:
        """Read and check; every error names the file, the key and its value."""
        path = Path(path)
        try:
            return cls._of(path, tomllib.loads(path.read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not a TOML file: {error}") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def _of(cls, path: Path, values: dict[str, Any]) -> SiloFile:
        for name in values:
            if name not in _KNOWN:
                raise InputError(f"[{name}] is not a section of a silo file{nearest(name, _KNOWN)}")
        for name in (*_SECTIONS, "models"):
            if name not in values:
                raise InputError(f"the section [{name}{'.NAME' if name == 'models' else ''}] is missing")
        models = values["models"]
        if not isinstance(models, Mapping) or not models:
            raise InputError("models must be sections, written [models.NAME]")
        parts = {name: read_section(kind, name, values[name]) for name, kind in _SECTIONS.items()}
        allowed = {name: read_section(ModelSection, f"models.{name}", each) for name, each in models.items()}
        simulation = values.get("simulation")
        for name, each in allowed.items():
            if each.network is not None and parts["data"].table is None:
                raise InputError(
                    f"models.{name}.network={each.network!r} is for a table: give data.table and data.schema"
                )
        seeded = None if simulation is None else read_section(SimulationSection, "simulation", simulation)
        requests = read_section(RequestSection, "requests", values.get("requests", {}))
        if requests != RequestSection() and parts["data"].table is None:
            raise InputError("[requests] is for a table: give data.table and data.schema, or leave the section out")
        if requests.evaluation is not None and requests.evaluation not in allowed:
            raise InputError(
                f"requests.evaluation={requests.evaluation!r} must be one of the models: {', '.join(allowed)}"
            )
        metrics = read_section(MetricsSection, "metrics", values["metrics"]) if "metrics" in values else None
        return cls(path, **parts, models=allowed, simulation=seeded, requests=requests, metrics=metrics)

    @property
    def directory(self) -> Path:
        """The directory of the file; other files and modules are found from there."""
        return self.path.resolve().parent

    def file(self, name: str) -> Path:
        """The path of a file that it names."""
        return self.directory / name
