"""`rpdp init`: a new study from a table, from a template or from a built-in task.

Everything is written into one directory, and nothing is overwritten. Whatever names records (the templates of budget
files) can be read by its owner only.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError
from rpdp.private_files import private_file
from rpdp.setting_fields import nearest
from rpdp.studies.study_tables import silo_name
from rpdp.tables import TableSchema, find_table, read_table
from rpdp.tables.cell_text import column_texts
from rpdp.tables.schema_proposal import Roles, find_record, late_features, propose_schema
from rpdp.tables.table_files import ENDINGS
from rpdp.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

TEMPLATES = {
    "tabular": "made-up patients of two hospitals in a CSV, with a declared schema; no code",
    "images": "made-up images and a small network, in a module of your own",
    "text": "made-up messages and a bag of words, in a module of your own",
    "flower": "a study to deploy over Flower",
}

_MOST_SILOS = 500
_PRIVATE_RANGES = """
scale = "private"             # ask for ranges of numbers before training, in private …
scale_by = "quantiles"        # … by quartiles within the wide ranges of the schema …
scale_share = 0.05            # … for this share of every lifetime budget"""
_DECLARE = "Read `schema.toml`: what was read from private data is not covered until you declare it from knowledge."


@dataclass(frozen=True)
class NewStudy:
    """What was written.

    Attributes:
        directory: Where it is.
        files: The files in it.
        from_data: Whether ranges and levels were read from the data.
        late: Columns that may be known only after the decision, and why. It tells of rows: for their holder.
    """

    directory: Path
    files: tuple[str, ...]
    from_data: bool
    late: Mapping[str, str] = field(default_factory=dict)


def new_study(source: str, directory: Path, roles: Roles, wide: tuple[float, float] | None = None) -> NewStudy:
    """Write a study for a table, a template or a built-in task.

    With a wide public range, no range of a feature is read from the table: the study asks for them in private.
    """
    _require_new(directory)
    if source.lower().endswith(ENDINGS):
        return _of_table(source, directory, roles, wide)
    if wide is not None:
        raise InputError(f"--private-ranges goes with a table; {source!r} is none, by its ending")
    given = [f"--{name}" for name, value in vars(roles).items() if value]
    if given:
        raise InputError(f"{given[0]} goes with a table; {source!r} is none, by its ending")
    if source in TEMPLATES:
        return _of_template(source, directory)
    if source in TASKS:
        return _of_task(source, directory)
    known = [*TEMPLATES, *TASKS]
    raise InputError(
        f"{source!r} is neither a table ({', '.join(ENDINGS)}), nor a template or built-in task{nearest(source, known)}"
    )


def _require_new(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory} is not an empty directory; choose another one with --out")


def _of_table(source: str, directory: Path, roles: Roles, wide: tuple[float, float] | None) -> NewStudy:
    path = find_table(source, Path.cwd())
    table = read_table(path)
    if not roles.target:
        names = ", ".join(table.column_names)
        raise InputError(f"--target is missing: which column is to be learnt? {source} has {names}")
    roles.check(table.column_names)
    if roles.record is None:
        roles = replace(roles, record=find_record(table))
    schema_text = propose_schema(table, roles, path.name, wide=wide)
    written = _Writer(directory)
    written.text("schema.toml", schema_text)
    schema = TableSchema.read(directory / "schema.toml")
    silos = _budget_templates(written, table, schema, roles)
    near = source if not Path(source).is_file() else os.path.relpath(path, directory)
    study = _starter("table_study.template").format(
        title=f"{path.name}: {schema.target.kind} of {roles.target}",
        file=json.dumps(near, ensure_ascii=False),
        silo=_silo_lines(roles) + ("" if wide is None else _PRIVATE_RANGES),
        records=_rounded(len(table) / (len(set(column_texts(table.column(roles.silo)))) if roles.silo else 1)),
        first=silos[0] if silos else "all",
    )
    written.text("study.toml", study)
    more = "5. `budgets/` has the ids of all training records: people's ε go into the empty column.\n" if silos else ""
    written.text("README.md", _readme(f"A study of {path.name}", _DECLARE, more))
    return replace(written.done(from_data=True), late=late_features(table, roles))


def _silo_lines(roles: Roles) -> str:
    if roles.silo is None:
        return '# silo = "HOSPITAL"         # the column that divides the table into silos; else all in one'
    return f"silo = {json.dumps(roles.silo, ensure_ascii=False)}"


def _budget_templates(written: _Writer, table: pa.Table, schema: TableSchema, roles: Roles) -> list[str]:
    """Write the ids of the training records of every silo, with an empty ε each, if records have ids."""
    if schema.record is None:
        return []
    encoded = schema.encode(table, silo=roles.silo)
    train = encoded.take(~encoded.is_test)
    names = np.full(len(train), "all") if train.silos is None else train.silos
    found = sorted(set(names.tolist()))
    if len(found) > _MOST_SILOS:
        raise InputError(f"--silo {roles.silo}: {len(found):,} values; a study has at most {_MOST_SILOS} silos here")
    for name in found:
        rows = train.take(names == name)
        subjects = [] if rows.subjects is None else [rows.subjects.tolist()]
        lines = [",".join(map(_csv, each)) for each in zip(rows.ids.tolist(), [""] * len(rows), *subjects, strict=True)]
        header = "record,epsilon,subject" if subjects else "record,epsilon"
        written.private(f"budgets/{silo_name(name)}.csv", "\n".join([header, *lines]) + "\n")
    return [silo_name(name) for name in found]


def _csv(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(each in cell for each in ',"\n') else cell


def _rounded(size: float) -> int:
    """A size with one digit, as a rough public one."""
    power = 10 ** max(0, len(str(int(size))) - 1)
    return max(1, int(round(size / power) * power))


def _of_template(name: str, directory: Path) -> NewStudy:
    written = _Writer(directory)
    for each in sorted(_starters().joinpath(name).iterdir(), key=lambda one: one.name):
        written.text(each.name.removesuffix(".template"), each.read_text(encoding="utf-8"))
    check = "Replace the made-up data by your own."
    more = ""
    if name == "tabular":
        written.text("patients.csv", _made_up_patients())
        title = "patients.csv: who has a stroke?"
        silo = 'silo = "HOSPITAL"           # the column that divides the table into silos'
        study = _starter("table_study.template").format(
            title=title, file='"patients.csv"', silo=silo, records=200, first="north"
        )
        written.text("study.toml", study)
    if name == "flower":
        check = "`study.toml` names a built-in task, to try everything at once."
        more = (
            "5. `rpdp deploy init study.toml --silos silo-00,silo-01 --out federation --trial`, then "
            "`rpdp deploy up federation --run-id trial-1`:\n   a whole federation here, with TLS and ledgers.\n"
        )
    written.text("README.md", _readme(f"A study from the template {name}", check, more))
    return written.done()


def _of_task(name: str, directory: Path) -> NewStudy:
    written, task = _Writer(directory), TASKS[name]
    schedule = task.schedule
    written.text(
        "study.toml",
        _starter("task_study.template").format(
            name=name,
            summary=task.summary,
            partition="".join(f'partition = "{each}"\n' for each in list(task.partitions)[:1]),
            rounds=schedule.rounds,
            steps=schedule.local_steps,
            participation=schedule.participation,
            delta=schedule.delta,
        ),
    )
    written.text("README.md", _readme(f"A study of {name}", f"The data come with rpdp: {task.summary}", ""))
    return written.done()


def _made_up_patients(count: int = 600) -> str:
    """Patients of two hospitals who do not exist; old smokers with a high pressure have more strokes."""
    generator = random.Random(0)  # noqa: S311  # no secret: made-up data
    lines = ["PATIENT,HOSPITAL,AGE,PRESSURE,SEX,SMOKER,ADMITTED,STROKE"]
    for number in range(count):
        age, pressure, smoker = generator.randint(18, 100), generator.gauss(135, 20), generator.random() < 0.3
        risk = 0.06 * (age - 65) + 0.04 * (pressure - 135) + 1.5 * smoker + generator.gauss(0, 1.5)
        shown = "NA" if generator.random() < 0.05 else str(round(pressure))
        hospital = generator.choice(["north", "south"])
        day = f"20{generator.randint(20, 25)}-{generator.randint(1, 12):02d}-{generator.randint(1, 28):02d}"
        cells = [f"p{number:04d}", hospital, str(age), shown, generator.choice("FM"), "yes" if smoker else "no", day]
        lines.append(",".join([*cells, "yes" if risk > 0 else "no"]))
    return "\n".join(lines) + "\n"


def _readme(title: str, check: str, more: str) -> str:
    return _starter("README.template").format(title=title, check=check, more=more)


def _starters() -> Path:
    return Path(str(files("rpdp.studies") / "starters"))


def _starter(name: str) -> str:
    return (_starters() / name).read_text(encoding="utf-8")


class _Writer:
    """Writes files into a new directory and remembers their names."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: list[str] = []

    def text(self, name: str, text: str) -> None:
        self._path(name).write_text(text, encoding="utf-8")

    def private(self, name: str, text: str) -> None:
        with private_file(self._path(name), overwrite=False) as file:
            file.write(text.encode())

    def done(self, *, from_data: bool = False) -> NewStudy:
        return NewStudy(self._directory, tuple(sorted(self._names)), from_data)

    def _path(self, name: str) -> Path:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._names.append(name)
        return path
