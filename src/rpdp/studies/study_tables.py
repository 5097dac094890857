"""`[table]` and `[model]` of a study file: tables by a declared schema, and models for them, without any code.

One table can hold all silos, divided by a column; or every silo has a table of its own. Either way each row becomes a
record by the schema alone (`rpdp.tables`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.checks import require_count, require_fraction, require_number
from rpdp.errors import InputError
from rpdp.setting_fields import nearest, one_of, plain_name, read_section, setting, table_of, text
from rpdp.tables import TableSchema, find_table, read_table
from rpdp.tables.table_columns import levels
from rpdp.tables.table_schema import KEYS

if TYPE_CHECKING:
    from rpdp.studies.private_scale import PrivateScale
    from rpdp.tables import EncodedTable

NETWORKS = ("linear", "mlp")

SCHEMA_COPY = "schema.toml"
"""The schema beside the copy of a study file, in the directory of a run or a deployment."""

_width = partial(require_count, most=100_000)


def widths(name: str, value: object) -> tuple[int, ...]:
    """Check the widths of hidden layers."""
    if not isinstance(value, list) or not value:
        raise InputError(f"{name}={value!r} must be a list of widths, such as [32] or [64, 32]")
    return tuple(_width(name, each) for each in value)


@dataclass(frozen=True)
class TableSection:
    """`[table]`: the user's own tables by a declared schema; the keys of the schema can stand here, too.

    Attributes:
        file: One table for all silos: CSV (also .csv.gz) or Parquet, beside the study file or below RPDP_DATA.
        files: Instead of file: the table of every silo.
        schema: The schema file; without it, the schema stands here.
        silo: With file: the column that divides the table into silos.
        silos: With silo: the values that are silos of their own; other rows go to `rest`, or are left out.
        rest: With silos: the name of the silo of all other rows.
        scale: declared: by the ranges of the schema; or private: by statistics that are asked and charged before
            training, within these ranges.
        scale_by: With scale = "private": moments (means and deviations), or quantiles, for very wide ranges.
        scale_share: With scale = "private": its share of every lifetime budget.
    """

    file: str | None = setting(text, None)
    files: Mapping[str, str] | None = setting(table_of(text), None)
    schema: str | None = setting(text, None)
    silo: str | None = setting(text, None)
    silos: tuple[str, ...] | None = setting(levels, None)
    rest: str | None = setting(plain_name, None)
    scale: str = setting(one_of("declared", "private"), "declared")
    scale_by: str = setting(one_of("moments", "quantiles"), "moments")
    scale_share: float = setting(require_fraction, 0.05)

    def __post_init__(self) -> None:
        if (self.file is None) == (self.files is None):
            raise InputError('table needs either file = "patients.csv", or files = { north = "north.csv", … }')
        if self.files is not None and self.silo is not None:
            raise InputError(f"table.silo={self.silo!r} divides one file; with table.files, remove it")
        if self.silos is not None and self.silo is None:
            raise InputError("table.silo is missing: with table.silos, name the column that holds these values")
        if self.rest is not None and self.silos is None:
            raise InputError(f"table.rest={self.rest!r} needs table.silos, the values that are silos of their own")
        if self.rest is not None and self.rest in (self.silos or ()):
            raise InputError(f"table.rest={self.rest!r} is one of table.silos; give it another name")


@dataclass(frozen=True)
class NetworkSection:
    """`[model]`: the model for a table.

    Attributes:
        name: linear, or mlp: a network with hidden layers.
        hidden: The widths of the hidden layers of mlp.
        start: Where the weights of a linear model begin, by feature; those that are not named begin at 0, as does the
            intercept. For numbers that were published or are known otherwise: no promise covers what was fitted to the
            records of the study.
    """

    name: str = setting(one_of(*NETWORKS), "linear")
    hidden: tuple[int, ...] | None = setting(widths, None)
    start: Mapping[str, float] | None = setting(table_of(require_number), None)

    def __post_init__(self) -> None:
        if (self.hidden is not None) and self.name != "mlp":
            raise InputError(f'model.hidden={list(self.hidden)} needs name = "mlp"; a linear model has no hidden layer')
        if self.start is not None and self.name != "linear":
            raise InputError(f"model.start is for a linear model; a network of name = {self.name!r} starts at random")


@dataclass(frozen=True)
class StudyTable:
    """The tables of a study, their schema, and the model for them.

    Attributes:
        section: The settings of `[table]`.
        schema: The schema.
        schema_text: The contents of the schema file, if it is a file of its own.
        network: The model.
        scale: The private statistics by which the schema's ranges were changed, once they were asked.
    """

    section: TableSection
    schema: TableSchema
    schema_text: str | None
    network: NetworkSection
    scale: PrivateScale | None = None

    @classmethod
    def of(cls, values: object, model: object, directory: Path) -> StudyTable:
        """Check `[table]` and `[model]`."""
        if not isinstance(values, Mapping):
            raise InputError(f"table={values!r} must be a section, written [table]")
        own = {key: each for key, each in values.items() if key not in KEYS}
        declared = {key: each for key, each in values.items() if key in KEYS}
        for key in own:
            known = [*TableSection.__dataclass_fields__, *KEYS]
            if key not in known:
                raise InputError(f"table.{key} is not a setting{nearest(key, known, 'table.')}")
        section = read_section(TableSection, "table", own)
        network = read_section(NetworkSection, "model", model)
        if section.schema is None:
            return cls(section, _starting(TableSchema.of(declared, "table."), network), None, network)
        if declared:
            raise InputError(
                f"table.{next(iter(declared))} belongs to the schema, which is in {section.schema}: change it there"
            )
        path = schema_file(section.schema, directory)
        return cls(section, _starting(TableSchema.read(path), network), path.read_text(encoding="utf-8"), network)

    @property
    def wants_scale(self) -> bool:
        """Whether a private scale is to be asked for, and was not yet."""
        return self.section.scale == "private" and self.scale is None

    @property
    def described(self) -> str:
        """What is learnt from what, in a line."""
        files = self.section.file or ", ".join((self.section.files or {}).values())
        return f"{files}: {self.schema.target.kind.replace('_', '-')} of {', '.join(self.schema.target.sources)}"

    def load(self, directory: Path, seed: int) -> dict[str, EncodedTable]:
        """The rows of every silo."""
        files = self.section.files
        if files is not None:
            return {silo: self._encode(find_table(file, directory), seed) for silo, file in files.items()}
        assert self.section.file is not None
        whole = self._encode(find_table(self.section.file, directory), seed)
        return {"all": whole} if self.section.silo is None else self._divided(whole)

    def _encode(self, path: Path, seed: int) -> EncodedTable:
        try:
            return self.schema.encode(read_table(path), seed=seed, silo=self.section.silo)
        except InputError as error:
            raise InputError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None

    def _divided(self, whole: EncodedTable) -> dict[str, EncodedTable]:
        section, found = self.section, whole.silos
        assert found is not None
        present = sorted(set(found.tolist()))
        names = present if section.silos is None else list(section.silos)
        for name in names:
            if name not in present:
                raise InputError(f"table.silos: no row has {section.silo} = {name!r}{nearest(name, present)}")
        silos = {silo_name(name): whole.take(found == name) for name in names}
        if len(silos) < len(names):
            raise InputError(f"table.silo={section.silo!r}: two of its values give the same name of a silo; rename one")
        others = ~np.isin(found, names)
        if section.rest is not None and others.any():
            silos[section.rest] = whole.take(others)
        return silos

    def digests(self, directory: Path) -> dict[str, str]:
        """A hash of every file with records, to notice when one changes."""
        files = self.section.files or {"": str(self.section.file)}
        found = {silo: find_table(file, directory) for silo, file in files.items()}
        return {silo: hashlib.sha256(path.read_bytes()).hexdigest() for silo, path in found.items()}

    def essence(self, directory: Path) -> dict[str, Any]:
        """Everything on which a result depends."""
        split = None if self.schema.split is None else vars(self.schema.split)
        parts = {"section": vars(self.section), "model": vars(self.network), "split": split}
        named = {"record": self.schema.record, "subject": self.schema.subject}
        return {**parts, **named, "schema": self.schema.fingerprint, "tables": self.digests(directory)}


def _starting(schema: TableSchema, network: NetworkSection) -> TableSchema:
    """Return the schema if a model for it can start from the declared weights."""
    if network.start is not None and schema.target.outputs != 1:
        raise InputError(
            "model.start is for models with one output: a number, or one of two classes; this target has "
            f"{schema.target.outputs}"
        )
    for name in network.start or ():
        if name not in schema.feature_names:
            raise InputError(f"model.start: no feature is named {name!r}{nearest(name, list(schema.feature_names))}")
    return schema


def schema_file(name: str, directory: Path) -> Path:
    """Return the path of a schema file. In the directory of a run its copy has a name of its own."""
    given, copy = directory / name, directory / SCHEMA_COPY
    return copy if copy.is_file() and not given.is_file() else given


def silo_name(value: str) -> str:
    """Return the name of the silo of a value; its name becomes a directory.

    >>> silo_name("New Zealand")
    'New-Zealand'
    """
    return re.sub(r"[^\w.-]", "-", value)
