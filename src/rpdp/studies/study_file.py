"""The study file: one TOML file that describes a whole run, checked as a whole before anything is loaded."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rpdp.accounting import Schedule
from rpdp.budgets import ACCOUNT_KINDS, distribution
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation.stated_limits import PolicySection
from rpdp.planning import Recipe
from rpdp.setting_fields import nearest, read_section, table_of
from rpdp.setting_fields import text as named
from rpdp.studies.study_sections import (
    METHOD_NAMES,
    BudgetSection,
    EvaluationSection,
    MethodSection,
    PrivacySection,
    RunSection,
    ScheduleSection,
    TaskSection,
    TrainingSection,
)
from rpdp.studies.study_tables import SCHEMA_COPY, StudyTable
from rpdp.studies.toml_text import toml_text
from rpdp.studies.tuning_sections import TuningSection
from rpdp.studies.user_code import task_named
from rpdp.studies.yardsticks import require_yardsticks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.budgets import Distribution
    from rpdp.tasks import Task

_SECTIONS: dict[str, type[Any]] = {
    "task": TaskSection,
    "schedule": ScheduleSection,
    "privacy": PrivacySection,
    "budgets": BudgetSection,
    "training": TrainingSection,
    "evaluation": EvaluationSection,
    "run": RunSection,
    "policy": PolicySection,
}
_DISTRIBUTION = re.compile(r"""^(\s*distribution\s*=\s*)(["'])\w+\2""", re.MULTILINE)
_KNOWN = [*_SECTIONS, "table", "model", "methods", "tuning", "ledgers"]


@dataclass(frozen=True)
class MethodSettings:
    """The settings of one method.

    Attributes:
        method: The name of the method.
        learning_rate: The learning rate of the local optimiser.
        clip_norm: The clip norm L.
        level: The ε of a method that uses one level for all records.
        tuned: Whether learning rate or clip norm were chosen by results on the silos' records.
    """

    method: str
    learning_rate: float
    clip_norm: float
    level: float | None = None
    tuned: bool = False


@dataclass(frozen=True)
class StudyFile:
    """A study file that has been checked; `text` is its contents."""

    path: Path
    text: str = field(repr=False)
    task: TaskSection
    schedule: ScheduleSection
    privacy: PrivacySection
    budgets: BudgetSection
    training: TrainingSection
    evaluation: EvaluationSection
    run: RunSection
    policy: PolicySection
    methods: Mapping[str, MethodSection]
    tuning: TuningSection | None
    ledgers: Mapping[str, str] | None
    table: StudyTable | None = None

    @classmethod
    def read(cls, path: str | Path) -> StudyFile:
        """Read and check a study file. Every error names the file, the key and its value."""
        path = Path(path)
        try:
            return cls._of(path, path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not a TOML file: {error}") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def _of(cls, path: Path, text: str) -> StudyFile:
        values = tomllib.loads(text)
        for name in values:
            if name not in _KNOWN:
                raise InputError(f"[{name}] is not a section of a study file{nearest(name, _KNOWN)}")
        for name in (*(() if "table" in values else ("task",)), "privacy", "budgets", "training"):
            if name not in values:
                raise InputError(f"the section [{name}] is missing; add it")
        task = values.get("task", {})
        if "table" not in values and isinstance(task, Mapping) and not {"name", "data"} & set(task):
            raise InputError(
                'task needs either name = "a built-in task" or data = "package.module:factory"; a table of your own '
                "goes into [table] instead"
            )
        parts = {name: read_section(kind, name, values.get(name, {})) for name, kind in _SECTIONS.items()}
        tuning = read_section(TuningSection, "tuning", values["tuning"]) if "tuning" in values else None
        ledgers = table_of(named)("ledgers", values["ledgers"]) if "ledgers" in values else None
        methods = _methods(values.get("methods", {}))
        table = None
        if "table" in values:
            table = StudyTable.of(values["table"], values.get("model", {}), path.resolve().parent)
        elif "model" in values:
            raise InputError("[model] is the model for a [table]; with [task], give task.model")
        made = cls(path, text, **parts, methods=methods, tuning=tuning, ledgers=ledgers, table=table)
        made._check()
        return made

    def _check(self) -> None:
        """Check what no section can check by itself."""
        task = self.named_task
        if task is not None:
            _check_task(self.task, task)
        if self.table is not None:
            self._check_table(self.table)
        if self.evaluation.yardsticks is not None:
            require_yardsticks(self.table, self.evaluation.yardsticks, self.evaluation.metrics)
        _ = self.public_schedule, self.delta, self.recipe(self.training.learning_rate)
        if self.policy.silos_per_person > 1 and self.privacy.account is None:
            raise InputError(
                f"privacy.account is missing: with policy.silos_per_person={self.policy.silos_per_person} a person's "
                f"accounts in all silos must fit together; give one of {', '.join(ACCOUNT_KINDS)}"
            )
        try:
            self.declared_distribution.sample(10, 0)
        except InputError as error:
            raise InputError(f"budgets.overrides: {error}") from None
        if not self.run.is_production:
            self.check_seeds(self.run.seeds)

    def _check_table(self, table: StudyTable) -> None:
        for key in ("name", "data", "partition"):
            if getattr(self.task, key) is not None:
                raise InputError(f"task.{key}={getattr(self.task, key)!r} and [table] exclude each other; remove one")
        if self.run.split == "by_seed" and (table.schema.split is None or table.schema.split.column is not None):
            raise InputError(
                'run.split="by_seed" needs table.split with test_share: only a split by a key differs between seeds'
            )
        if self.run.is_production and table.schema.record is None:
            raise InputError(
                "table.record is missing: a real run books by the ids of records, so name the column that holds them"
            )

    def with_distribution(self, name: str) -> StudyFile:
        """The same study with budgets drawn from another distribution."""
        if self.budgets.distribution is None:
            raise InputError(f"{self.path}: budgets come from files, so no distribution can take their place")
        text, changed = _DISTRIBUTION.subn(rf'\g<1>"{name}"', self.text)
        if changed != 1:
            raise InputError(f"{self.path}: write distribution = … once, on a line of its own, to replace it")
        try:
            return self._of(self.path, text)
        except InputError as error:
            raise InputError(f"{self.path}, with distribution {name}: {error}") from None

    def with_values(self, values: Mapping[str, Any]) -> StudyFile:
        """The study that the same file would describe with these values."""
        try:
            return self._of(self.path, toml_text(values))
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None

    @property
    def described_task(self) -> str:
        """What is learnt from what, in a line."""
        if self.table is not None:
            return self.table.described
        task = self.named_task
        return str(self.task.data) if task is None else f"{task.name}: {task.summary}"

    @property
    def short_name(self) -> str:
        """The name of the task, or of what holds the data."""
        return str(self.table.described if self.table is not None else self.task.name or self.task.data)

    @property
    def schema_fingerprint(self) -> str | None:
        """The fingerprint of the schema of the tables; None without tables."""
        return None if self.table is None else self.table.schema.fingerprint

    def write_copy(self, path: str | Path) -> None:
        """Write the study file, and beside it the schema file that it names."""
        Path(path).write_text(self.text, encoding="utf-8")
        if self.table is not None and self.table.schema_text is not None:
            Path(path).with_name(SCHEMA_COPY).write_text(self.table.schema_text, encoding="utf-8")

    @property
    def named_task(self) -> Task | None:
        """The task that `task.name` names; None if the user brings data and a model."""
        return None if self.task.name is None else task_named(self.task.name, self.directory)

    @property
    def own_code(self) -> list[str]:
        """The functions of the user's own that the file names."""
        task, metrics = self.task, self.evaluation.metrics or ()
        named = [task.data, task.model, task.loss, task.correct, *[one for one in metrics if ":" in one]]
        return [reference for reference in named if reference is not None]

    @property
    def directory(self) -> Path:
        """The directory of the study file, relative to which budget files and modules are found."""
        return self.path.resolve().parent

    @property
    def output(self) -> Path:
        """The output directory, relative to the current directory."""
        return Path(self.run.output) if self.run.output is not None else Path("runs") / self.path.stem

    @property
    def public_schedule(self) -> Schedule:
        """The schedule, with the task's own values for what the file leaves out."""
        given, task = self.schedule, self.named_task
        values = vars(given).copy()
        if task is not None:
            values["rounds"] = given.rounds or task.schedule.rounds
            values["local_steps"] = given.local_steps or task.schedule.local_steps
            if given.participation is None and given.participations is None:
                values["participation"] = task.schedule.participation
        for key in ("rounds", "local_steps"):
            if values[key] is None:
                raise InputError(f"schedule.{key} is missing: give it in [schedule]")
        if values["participation"] is None and values["participations"] is None:
            raise InputError("schedule.participation is missing: give λ, or participations = k for exactly k rounds")
        try:
            return Schedule(**values)
        except InputError as error:
            raise InputError(f"schedule.{error}") from None

    @property
    def delta(self) -> float:
        """The δ of the run; by default the task's."""
        if self.privacy.delta is not None:
            return self.privacy.delta
        if self.named_task is None:
            raise InputError("privacy.delta is missing: the δ of the run, common to all records")
        return self.named_task.schedule.delta

    @property
    def lifetime_delta(self) -> float | None:
        """The lifetime δ that the public plan states: if persons may be in several silos, all use the same."""
        if self.policy.silos_per_person == 1:
            return None
        return self.delta if self.policy.lifetime_delta is None else self.policy.lifetime_delta

    @property
    def declared_distribution(self) -> Distribution:
        """The distribution from which public settings are computed."""
        budgets = self.budgets
        name = budgets.distribution or budgets.declared
        assert name is not None
        return distribution(name, budgets.parameters, budgets.overrides)

    def recipe(self, learning_rate: float) -> Recipe:
        """Return how silos train and the server averages."""
        training = self.training
        try:
            return Recipe(
                learning_rate=learning_rate,
                decay=training.decay,
                optimiser=training.optimiser,
                momentum=training.momentum,
                micro_batch=training.micro_batch,
                averaged_rounds=training.averaged_rounds,
                backbone=training.backbone,
                backbone_settings=dict(training.backbone_settings or {}),
            )
        except InputError as error:
            raise InputError(f"training.{error}") from None

    def settings(self, method: str) -> MethodSettings:
        """Return the settings of a method: the common ones, unless it has its own."""
        own = self.methods.get(method, MethodSection())
        return MethodSettings(
            method,
            self.training.learning_rate if own.learning_rate is None else own.learning_rate,
            self.privacy.clip_norm if own.clip_norm is None else own.clip_norm,
            own.level,
            self.training.tuned,
        )

    def check_seeds(self, seeds: Sequence[int]) -> None:
        """Refuse to report seeds on which settings were tuned."""
        both = sorted(set(seeds) & set(self.tuning.seeds)) if self.tuning is not None else []
        if both:
            raise InputError(
                f"tuning.seeds={list(self.tuning.seeds) if self.tuning else []} must not be reported as well: "
                f"{', '.join(map(str, both))} would be in both. Report other seeds"
            )

    def require_simulation(self) -> None:
        """Refuse seeds together with ledgers, whose promise needs randomness that nobody can repeat."""
        if self.ledgers is not None:
            raise PrivacyRefusal(
                f"{self.path}: a run with seeds is a simulation, which protects nobody, but [ledgers] names ledgers of "
                "real runs. For a simulation, remove [ledgers]; for a real run, remove run.seeds and give no --seed"
            )

    def same_run(self, other: StudyFile) -> bool:
        """Return whether two files describe the same computation, whatever their outputs, workers and seeds."""
        return self._essence() == other._essence()

    def _essence(self) -> StudyFile:
        run = replace(self.run, seeds=(0,), first_seed=None, output=None, workers=None, method="rpdp")
        return replace(self, path=Path(), text="", run=run, tuning=None, ledgers=None)


def _methods(values: object) -> Mapping[str, MethodSection]:
    if not isinstance(values, Mapping):
        raise InputError(f"methods={values!r} must be sections, written [methods.minimum]")
    for name in values:
        if name not in METHOD_NAMES:
            raise InputError(f"methods.{name} is not a method{nearest(name, list(METHOD_NAMES), 'methods.')}")
    return MappingProxyType(
        {name: read_section(MethodSection, f"methods.{name}", each) for name, each in values.items()}
    )


def _check_task(given: TaskSection, task: Task) -> None:
    if given.partition is not None and given.partition not in task.partitions:
        offered = ", ".join(task.partitions) or "none: its data come in silos already"
        raise InputError(
            f"task.partition={given.partition!r} is not a partition of task {task.name} (it has {offered})"
        )
