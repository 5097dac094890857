"""Hospitals with tables of made-up patients, and study files for them, without any code."""

from __future__ import annotations

import random
from pathlib import Path

SCHEMA = """
record = "PATIENT"
[{0}columns]
AGE = {{ kind = "number", range = [20, 100] }}
SEX = {{ kind = "category", levels = ["F", "M"] }}
SMOKER = {{ kind = "yes_no", missing = true }}
[{0}target]
{1}
[{0}split]
test_share = 0.25
"""

ONE_FILE = 'file = "all.csv"\nsilo = "HOSPITAL"'
CLASSES = 'kind = "classification"\ncolumn = "ILL"\nclasses = ["no", "yes"]'
NUMBER = 'kind = "regression"\ncolumn = "DAYS"\nrange = [0, 60]'
LABELS = 'kind = "multi_label"\ncolumns = ["ILL", "SMOKED"]'
SURVIVAL = 'kind = "survival"\ntime = "DAYS"\nevent = "ILL"\nedges = [5, 15, 30]'

REST = """
[schedule]
rounds = 2
local_steps = 3
participation = 1.0
[privacy]
delta = 1e-3
max_epsilon = 10.0
clip_norm = 1.0
[budgets]
distribution = "ThreeLevels"
records_per_silo = 60
[training]
learning_rate = 0.5
[run]
seeds = 2
"""


def write_hospitals(directory: Path, *names: str, rows: int = 80) -> None:
    """One CSV for each hospital, and `all.csv` with all of them."""
    generator = random.Random(5)  # noqa: S311
    header = "PATIENT,AGE,SEX,SMOKER,SMOKED,DAYS,ILL,HOSPITAL\n"
    whole = header
    for name in names:
        lines = [_patient(generator, name, number) for number in range(rows)]
        (directory / f"{name}.csv").write_text(header + "".join(lines), encoding="utf-8")
        whole += "".join(lines)
    (directory / "all.csv").write_text(whole, encoding="utf-8")


def _patient(generator: random.Random, hospital: str, number: int) -> str:
    age, smoker = generator.randint(20, 100), generator.choice(["Y", "N", ""])
    ill = "yes" if age + generator.gauss(0, 10) > 60 else "no"
    days = max(0, round(60 - age / 2 + generator.gauss(0, 5)))
    sex = generator.choice("FM")
    return f"{hospital}-{number},{age},{sex},{smoker},{smoker or 'N'},{days},{ill},{hospital}\n"


def table_study(
    directory: Path,
    *,
    table: str = ONE_FILE,
    target: str = CLASSES,
    rest: str = REST,
    model: str = "",
) -> Path:
    """A study file for the hospitals' tables, with its schema in it."""
    path = directory / "study.toml"
    schema = SCHEMA.format("table.", target)
    path.write_text(f"[table]\n{table}\n{schema}\n{model}\n{rest}", encoding="utf-8")
    return path
