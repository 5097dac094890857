"""The data, model, loss and metrics of a run: those of a built-in task, or the user's own.

A data factory returns `rpdp.tasks.dataset.FederatedData`, or a mapping from silo to (training records, their ids, test
records), with the records as `rpdp.training.Records`. A model factory returns an `nn.Module`. A loss returns one value
per record, and `correct`, if given, returns one truth value per record from outputs and targets. A metric of one's own
is a `rpdp.Metric`, or a function from all outputs and targets to a number of which more is better.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.federation import Evaluation
from rpdp.metrics import Metric, metric_named
from rpdp.setting_fields import nearest
from rpdp.statistics import Levels, declared_columns
from rpdp.studies.table_models import TARGET_METRICS, table_loss, table_model
from rpdp.studies.user_code import call_factory, load_function
from rpdp.tasks.dataset import FederatedData
from rpdp.training import Records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rpdp.studies.study_file import StudyFile
    from rpdp.tables import EncodedTable
    from rpdp.tables.encoded_table import TableSurvey
    from rpdp.tasks.dataset import Dataset

    Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

BY_SILO = "silo"
"""In place of a column of groups: every silo."""

_NAME = re.compile(r"[\w][\w.-]{0,99}")


@dataclass(frozen=True)
class SiloSource:
    """The data of one silo; of a table also the persons behind the records, and how its cells were read."""

    train: Records
    ids: list[str]
    test: Records
    subjects: list[str] | None = None
    survey: TableSurvey | None = None
    test_ids: list[str] | None = None
    test_subjects: list[str] | None = None
    held_out: NDArray[np.bool_] | None = None
    groups: NDArray[np.object_] | None = None
    test_groups: NDArray[np.object_] | None = None

    __repr__ = counts_repr

    def with_held_out(self) -> SiloSource:
        """The same silo with its test records enrolled after the others, for private evaluation."""
        if self.test_ids is None:
            raise InputError(
                "evaluation.share: test records need ids to have budgets, and these have none; use a [table] with a "
                "split, or give the test records ids (Records.of(…, ids=…))"
            )
        both = _joined([self.train, self.test])
        subjects = None if self.subjects is None else [*self.subjects, *(self.test_subjects or ())]
        held_out = np.arange(len(both)) >= len(self.train)
        groups = None
        if self.groups is not None and self.test_groups is not None:
            groups = np.concatenate([self.groups, self.test_groups])
        ids = [*self.ids, *self.test_ids]
        return replace(self, train=both, ids=ids, subjects=subjects, held_out=held_out, groups=groups)


@dataclass(frozen=True)
class Source:
    """The data of a run, with its loss.

    Attributes:
        name: The name of the task.
        silos: The data of the silos, by name.
        notes: Notes about the data for the public plan.
        loss: Returns one value per record.
        features: The names of the features of a table.
    """

    name: str
    silos: Mapping[str, SiloSource]
    notes: tuple[str, ...]
    loss: Function
    features: tuple[str, ...] = ()


def load_source(spec: StudyFile, seed: int) -> Source:
    """Load the data for a seed of the run, with the loss."""
    name, notes, silos = _load_silos(spec, seed if spec.run.split == "by_seed" else 0)
    for silo, held in silos.items():
        _check_silo(silo, held)
    features = () if spec.table is None else spec.table.schema.feature_names
    return Source(name, silos, notes, _loss(spec), features)


def make_model(spec: StudyFile, seed: int) -> nn.Module:
    """Return a new model, initialised with the seed of the run."""
    task = spec.named_task
    if spec.task.model is None and spec.table is not None:
        return table_model(spec.table.schema, spec.table.network, seed)
    if spec.task.model is None:
        assert task is not None
        return task.model(seed=seed)
    with torch.random.fork_rng(devices=[]):  # a factory without a seed argument uses torch's global generator
        torch.manual_seed(seed)
        model = call_factory(spec.task.model, spec.directory, seed=seed)
    if not isinstance(model, nn.Module):
        raise InputError(f"{spec.task.model}() returned {type(model).__name__}; it must return a torch.nn.Module")
    return model


def _load_silos(spec: StudyFile, split: int) -> tuple[str, tuple[str, ...], dict[str, SiloSource]]:
    """Return the name of the data, notes on them, and the silos."""
    if spec.table is not None:
        tables = spec.table.load(spec.directory, split)
        column = group_column(spec)
        return spec.short_name, (), {silo: _of_table(each, column) for silo, each in tables.items()}
    task = spec.named_task
    if task is not None:
        given = task.load(spec.task.partition, seed=split)
    else:
        given = call_factory(str(spec.task.data), spec.directory, seed=split)
    if isinstance(given, FederatedData):
        silos = {silo: _of_datasets(each.train, each.test) for silo, each in given.silos.items()}
        return given.name, given.notes, silos
    return str(spec.task.data), (), _of_mapping(str(spec.task.data), given)


def _loss(spec: StudyFile) -> Function:
    if spec.task.loss is not None:
        return load_function(spec.task.loss, spec.directory)
    if spec.table is not None:
        return table_loss(spec.table.schema)
    assert spec.named_task is not None
    return spec.named_task.loss


def make_evaluation(spec: StudyFile, test: Mapping[str, Records]) -> Evaluation:
    """Return what the study file measures on test records."""
    correct = None if spec.task.correct is None else load_function(spec.task.correct, spec.directory)
    names = spec.evaluation.metrics or ()
    if not names and correct is None and spec.table is not None:
        names = TARGET_METRICS[spec.table.schema.target.kind]
    metrics = [own_metric(name, spec.directory) if ":" in name else name for name in names]
    return Evaluation(test, correct, metrics=metrics)


def deciding_metric(spec: StudyFile, first: str) -> Metric:
    """Return the metric that decides: the first of the study file, or the one that was measured without any."""
    named = (spec.evaluation.metrics or (first,))[0]
    return own_metric(named, spec.directory) if ":" in named else metric_named(named)


def own_metric(reference: str, directory: Path) -> Metric:
    """Return the metric that a reference names: a `rpdp.Metric`, or a function of which a larger value is better."""
    found = load_function(reference, directory)
    if isinstance(found, Metric):
        return found
    words = (inspect.getdoc(found) or reference).splitlines()[0]
    return Metric(reference.rpartition(":")[2], words, found)


def pooled(silos: Mapping[str, SiloSource]) -> SiloSource:
    """The training records of all silos in one place."""
    train = _joined([held.train for held in silos.values()])
    ids = [f"{name}/{each}" for name, held in silos.items() for each in held.ids]
    return SiloSource(train, ids, train.rows(0, 0))


def _joined(parts: Sequence[Records]) -> Records:
    inputs = zip(*(part.inputs for part in parts), strict=True)
    return Records(tuple(map(torch.cat, inputs)), torch.cat([part.targets for part in parts]))


def _of_datasets(train: Dataset, test: Dataset) -> SiloSource:
    ids = [part.record_ids.tolist() for part in (train, test)]
    return SiloSource(records_of(train), ids[0], records_of(test), test_ids=ids[1])


def _of_table(table: EncodedTable, column: GroupColumn | None) -> SiloSource:
    train, test = table.take(~table.is_test), table.take(table.is_test)
    subjects = [None if part.subjects is None else part.subjects.tolist() for part in (train, test)]
    groups = [None if column is None else column.of(part) for part in (train, test)]
    parts = table_records(train), train.ids.tolist(), table_records(test), subjects[0], table.survey
    tested = {"test_ids": test.ids.tolist(), "test_subjects": subjects[1]}
    return SiloSource(*parts, **tested, groups=groups[0], test_groups=groups[1])


@dataclass(frozen=True)
class GroupColumn:
    """A column of a table whose public levels are groups."""

    name: str
    levels: tuple[str, ...]

    def of(self, table: EncodedTable) -> NDArray[np.object_]:
        """The level of every row; empty where it is missing, or another value."""
        names, places = np.array([*self.levels, ""], dtype=object), table.values[self.name]
        known = np.isfinite(places) & (places < len(self.levels))
        return np.asarray(names[np.where(known, places, len(self.levels)).astype(np.int64)])


def is_by_silo(spec: StudyFile, by: str | None) -> bool:
    """Whether groups are silos: each releases sums of its own in any case, so that costs nothing more."""
    return by is not None and by in (BY_SILO, None if spec.table is None else spec.table.section.silo)


def group_column(spec: StudyFile) -> GroupColumn | None:
    """The column of `evaluation.by`; None without one, and for silos."""
    name = spec.evaluation.by
    if name is None or is_by_silo(spec, name):
        return None
    declared = {} if spec.table is None else declared_columns(spec.table.schema)
    facts = None if spec.table is None or name not in spec.table.schema.columns else declared.get(name)
    if not isinstance(facts, Levels):
        known = [each for each, one in declared.items() if isinstance(one, Levels)]
        raise InputError(
            f"evaluation.by={name!r} must be {BY_SILO!r}, or a column of a [table] with public levels"
            f"{nearest(name, known)}"
        )
    return GroupColumn(name, facts.levels)


def table_records(table: EncodedTable) -> Records:
    """Return the rows of a table as records."""
    return Records.of(torch.from_numpy(table.features), torch.from_numpy(table.targets))


def records_of(dataset: Dataset) -> Records:
    """Return features and labels as records."""
    if dataset.features.dtype == object:
        raise InputError(f"data set {dataset.name}: its features are texts; encode them as numbers for a model")
    features = np.ascontiguousarray(dataset.features, dtype=np.float32)
    return Records.of(torch.from_numpy(features), torch.from_numpy(dataset.labels))


def _of_mapping(reference: str, given: object) -> dict[str, SiloSource]:
    wanted = "FederatedData, or silo → (training records, their ids, test records)"
    if not isinstance(given, Mapping) or not given:
        raise InputError(f"{reference}() returned {type(given).__name__}; it must return {wanted}")
    silos = {}
    for silo, held in given.items():
        if not isinstance(held, tuple | list) or len(held) != 3:
            raise InputError(f"{reference}(): silo {silo!r} has {type(held).__name__}; it must return {wanted}")
        train, ids, test = held
        if not isinstance(train, Records) or not isinstance(test, Records):
            raise InputError(f"{reference}(): silo {silo!r} must have rpdp.training.Records for training and test")
        test_ids = None if test.ids is None else [str(one) for one in test.ids]
        silos[str(silo)] = SiloSource(train, [str(one) for one in ids], test, test_ids=test_ids)
    return silos


def _check_silo(name: str, held: SiloSource) -> None:
    if not _NAME.fullmatch(name):
        raise InputError(f"silo {name!r}: its name becomes a directory; use only letters, digits, '.', '-' and '_'")
    if len(held.train) == 0:
        raise InputError(f"silo {name}: it has no training records; leave it out of the federation")
    if len(held.ids) != len(held.train):
        raise InputError(
            f"silo {name}: {len(held.ids):,} record ids for {len(held.train):,} training records; give one id for each"
        )
    if len(set(held.ids)) != len(held.ids):
        raise InputError(
            f"silo {name}: {len(held.ids) - len(set(held.ids)):,} record ids occur more than once; make them unique"
        )
