"""The study file: every field wrong in turn, every key misspelled, and what a good one means."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from rpdp import studies as runs
from rpdp.accounting import Schedule
from rpdp.budgets import BoundedPareto, ThreeLevels
from rpdp.errors import InputError
from rpdp.federation.stated_limits import PolicySection
from rpdp.methods import METHODS
from rpdp.studies.study_file import StudyFile
from rpdp.studies.study_sections import (
    METHOD_NAMES,
    BudgetSection,
    MethodSection,
    PrivacySection,
    RunSection,
    ScheduleSection,
    TaskSection,
    TrainingSection,
)
from rpdp.studies.tuning_sections import TuningSection
from tests.studies.toy import Change, write_run

SECTIONS: dict[str, type[Any]] = {
    "task": TaskSection,
    "schedule": ScheduleSection,
    "privacy": PrivacySection,
    "budgets": BudgetSection,
    "training": TrainingSection,
    "methods.minimum": MethodSection,
    "run": RunSection,
    "tuning": TuningSection,
    "policy": PolicySection,
}
KEYS = [f"{section}.{one.name}" for section, kind in SECTIONS.items() for one in fields(kind) if one.init]


def refusal(directory: Path, *changes: Change) -> str:
    path = write_run(directory, *changes)
    with pytest.raises(InputError) as caught:
        StudyFile.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", ["[[]]", "2020-01-01", "-1", '""'])
def test_every_field_wrong_in_turn(tmp_path: Path, key: str, value: str) -> None:
    if (key, value) == ("training.momentum", "-1"):  # its range is the recipe's to check, see below
        value = "false"
    changes: list[Change] = [(key, value)]
    if key.startswith("tuning.") and key != "tuning.seeds":
        changes.insert(0, ("tuning.seeds", "[9]"))
    message = refusal(tmp_path, *changes)
    assert message.startswith(f"{key}=")
    assert " must " in message


@pytest.mark.parametrize("key", KEYS)
def test_every_key_misspelled(tmp_path: Path, key: str) -> None:
    section, _, name = key.rpartition(".")
    wrong = f"{section}.{name[:-1]}x{name[-1]}"
    message = refusal(tmp_path, (wrong, "1"))
    assert f"{wrong} is not a setting; did you mean {key}?" in message


@pytest.mark.parametrize("section", ["task", "schedule", "privacy", "budgets", "training", "methods", "run", "tuning"])
def test_every_section_misspelled(tmp_path: Path, section: str) -> None:
    wrong = f"{section[:-1]}x{section[-1]}"
    message = refusal(tmp_path, (f"{wrong}.a", "1"))
    assert message.startswith(f"[{wrong}] is not a section of a study file; did you mean {section}?")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("privacy.share", "1.5")], "privacy.share=1.5 must be above 0 and at most 1"),
        ([("privacy.account", '"renji"')], "privacy.account='renji' must be one of sums, renyi; did you mean 'renyi'?"),
        ([("run.purpose", '"tuning"')], "run.purpose='tuning' must be one of training, evaluation, statistics"),
        ([("run.study", "3")], "run.study=3 must be a text that is not empty"),
        ([("policy.max_share_per_run", "0.0")], "policy.max_share_per_run=0.0 must be above 0 and at most 1"),
        ([("policy.reserved", "{ tuning = 0.1 }")], "policy.reserved='tuning' must be one of training, evaluation"),
        ([("policy.reserved", "{ training = 2 }")], "policy.reserved.training=2.0 must be above 0 and at most 1"),
        (
            [("policy.reserved", "{ training = 0.6, evaluation = 0.6 }")],
            "policy.reserved={'training': 0.6, 'evaluation': 0.6} adds up to more than the whole budget",
        ),
        ([("policy.silos_per_person", "101")], "policy.silos_per_person=101 must be between 1 and 100"),
        ([("policy.silos_per_person", "2")], "privacy.account is missing: with policy.silos_per_person=2 a person's"),
        ([("task.data", None)], 'task needs either name = "a built-in task" or data ='),
        ([("task.name", '"mnist"')], "task needs either name"),
        ([("task.model", None)], "task.model is missing: with task.data, give model"),
        ([("task.loss", None)], "task.loss is missing"),
        ([("task.partition", '"iid"')], "task.partition='iid' needs task.name"),
        ([("task.model", '"module.py"')], "task.model='module.py' must look like \"package.module:function\""),
        ([("task", ""), ("task.name", '"breast_canser"')], "did you mean breast_cancer?"),
        (
            [("task", ""), ("task.name", '"breast_cancer"'), ("task.partition", '"dirichlet"')],
            "task.partition='dirichlet' is not a partition of task breast_cancer (it has iid)",
        ),
        (
            [("task", ""), ("task.name", '"rpdp_lab.tasks:heart_disease"'), ("task.partition", '"iid"')],
            "(it has none: its data come in silos already)",
        ),
        ([("schedule.rounds", None)], "schedule.rounds is missing"),
        ([("schedule.local_steps", None)], "schedule.local_steps is missing"),
        ([("schedule.participation", None)], "schedule.participation is missing: give λ, or participations = k"),
        ([("schedule.participations", "2")], "exclude each other"),
        ([("schedule.participation", "1.5")], "schedule.participation=1.5 must be above 0 and at most 1"),
        ([("schedule.max_participations", "4")], "schedule.max_participations=4 must be between 1 and 3"),
        (
            [("schedule.participation", None), ("schedule.participations", "4")],
            "schedule.participations=4 must be between 1 and 3",
        ),
        (
            [("schedule.participation", None), ("schedule.participations", "2"), ("schedule.max_participations", "2")],
            "schedule.max_participations=2 limits schedule.participation; with schedule.participations, remove it",
        ),
        ([("privacy.delta", None)], "privacy.delta is missing"),
        ([("privacy.delta", "1.0")], "privacy.delta=1.0 must lie strictly between 0 and 1"),
        ([("privacy.delta", "nan")], "privacy.delta=nan must be finite"),
        ([("privacy.clip_norm", None)], "privacy.clip_norm is missing: L, the largest influence"),
        ([("privacy.max_epsilon", "10")], "privacy needs either max_epsilon"),
        ([("privacy.noise_multiplier", None)], "privacy needs either max_epsilon"),
        ([("privacy.accountant", '"rpd"')], "privacy.accountant='rpd' must be one of pld, rdp"),
        ([("privacy.estimator", '"certifed"')], "did you mean 'certified'?"),
        ([("budgets.distribution", None)], "budgets needs either distribution"),
        ([("budgets.distribution", '"Pareto"')], "did you mean 'BoundedPareto'?"),
        ([("budgets.files", '{ a = "a.csv" }')], "budgets needs either distribution"),
        (
            [("budgets.distribution", None), ("budgets.files", '{ a = "a.csv" }')],
            "budgets.declared is missing: with files, name the distribution from which public settings",
        ),
        ([("budgets.declared", '"ThreeLevels"')], "budgets.declared='ThreeLevels' needs budgets.files"),
        ([("budgets.overrides", "{ level = 1 }")], "did you mean 'levels'?"),
        ([("budgets.overrides", "{ levels = [1, 2] }")], "shares=(0.7, 0.2, 0.1) must be 2 numbers"),
        ([("budgets.overrides", '{ levels = ["a"] }')], "budgets.overrides.levels='a' must be a number"),
        (
            [("training.learning_rate", None)],
            "training.learning_rate is missing: the learning rate of the local optimiser",
        ),
        ([("training.learning_rate", '"tuned"')], "training.learning_rate='tuned' must be a number"),
        ([("training.momentum", "1.0")], "training.momentum=1.0 must be at least 0 and below 1"),
        ([("training.momentum", "0.5"), ("training.optimiser", '"adam"')], "momentum=0.5 needs optimiser='sgd'"),
        ([("training.backbone", '"fedprocs"')], "did you mean 'fedprox'?"),
        ([("training.backbone_settings", '{ proximal = "a" }')], "training.backbone_settings.proximal='a' must be a"),
        ([("training.weights", '"equals"')], "training.weights='equals' must be one of equal"),
        ([("methods.minimun.level", "1")], "methods.minimun is not a method; did you mean methods.minimum?"),
        ([("run.method", '"min"')], "run.method='min' must be one of rpdp"),
        ([("run.seeds", "[1, 1]")], "run.seeds=[1, 1] must not name anything twice"),
        ([("run.seeds", "[]")], "run.seeds=[] must be a list with at least one entry"),
        ([("run.seeds", "[-1]")], "run.seeds=-1 must be at least 0"),
        (
            [("evaluation.metrics", '["acuracy"]')],
            "'acuracy' is not a metric; did you mean accuracy?",
        ),
        ([("evaluation.metrics", '["my code:f"]')], 'must look like "package.module:function"'),
        ([("evaluation.metrics", '["auc", "auc"]')], "must not name anything twice"),
        ([("evaluation.metric", '["auc"]')], "did you mean evaluation.metrics?"),
        ([("run.first_seed", "3")], "run.first_seed=3 needs a number of seeds"),
        ([("tuning.seeds", "[2, 1]")], "tuning.seeds=[2, 1] must not be reported as well: 1 would be in both"),
        ([("tuning.learning_rates", "[0.1]")], "tuning needs seeds for `rpdp compare --tune`"),
        ([("task", None)], "the section [task] is missing"),
        ([("privacy", None)], "the section [privacy] is missing"),
        ([("budgets", None)], "the section [budgets] is missing"),
        ([("training", None)], "the section [training] is missing"),
    ],
)
def test_what_no_value_alone_can_tell(tmp_path: Path, changes: list[Change], expected: str) -> None:
    assert expected in refusal(tmp_path, *changes)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a = ", "not a TOML file"),
        (b"\xff\xfe", "not a TOML file"),
        (b"methods = 3\n[task]\n[privacy]\n[budgets]\n[training]", "task needs either name"),
        (b"task = 3\nprivacy = 1\nbudgets = 1\ntraining = 1", "task=3 must be a section of settings, written [task]"),
    ],
)
def test_files_that_are_no_run_files(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"run\.toml: ") as caught:
        StudyFile.read(path)
    assert expected in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.toml: cannot be read: No such file"):
        StudyFile.read(tmp_path / "no.toml")


def test_a_named_task_brings_its_schedule_and_delta(tmp_path: Path) -> None:
    path = write_run(tmp_path, ("task", ""), ("task.name", '"mnist_5k"'), ("schedule", None), ("privacy.delta", None))
    spec = StudyFile.read(path)
    assert spec.public_schedule == Schedule(15, 20, participation=0.5)
    assert spec.delta == 1e-4
    capped = write_run(tmp_path, ("task", ""), ("task.name", '"mnist_5k"'), ("schedule", ""),
                       ("schedule.participations", "8"))  # fmt: skip
    assert StudyFile.read(capped).public_schedule == Schedule(15, 20, participations=8)


def test_distributions(tmp_path: Path) -> None:
    assert StudyFile.read(write_run(tmp_path)).declared_distribution == ThreeLevels(levels=(0.3, 1.0, 5.0))
    pareto = [("budgets.distribution", '"BoundedPareto"'), ("budgets.parameters", '"authors"')]
    path = write_run(tmp_path, *pareto, ("budgets.overrides", "{ shape = 2, bounds = [0.1, 5] }"))
    assert StudyFile.read(path).declared_distribution == BoundedPareto(2.0, 0.1, 1.0, (0.1, 5.0))


def test_methods_have_their_own_settings(tmp_path: Path) -> None:
    path = write_run(tmp_path, ("methods.threshold.level", "1"), ("methods.threshold.learning_rate", "0.25"))
    spec = StudyFile.read(path)
    assert (spec.settings("rpdp").learning_rate, spec.settings("rpdp").level) == (0.5, None)
    own = spec.settings("threshold")
    assert (own.learning_rate, own.clip_norm, own.level) == (0.25, 1.0, 1.0)


def test_seeds_as_a_count(tmp_path: Path) -> None:
    assert StudyFile.read(write_run(tmp_path, ("run.seeds", "3"))).run.seeds == (1, 2, 3)
    assert StudyFile.read(write_run(tmp_path, ("run.seeds", "3"), ("run.first_seed", "0"))).run.seeds == (0, 1, 2)


def test_where_results_go(tmp_path: Path) -> None:
    assert StudyFile.read(write_run(tmp_path, name="mine.toml")).output == Path("runs/mine")
    assert StudyFile.read(write_run(tmp_path, ("run.output", '"out/here"'))).output == Path("out/here")


def test_the_same_run_wherever_its_results_go(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    text = path.read_text()
    spec = StudyFile.read(path)
    path.write_text(text.replace("seeds = [1]\nworkers = 1", 'seeds = 7\noutput = "elsewhere"'))
    assert StudyFile.read(path).same_run(spec)
    path.write_text(text.replace("learning_rate = 0.5", "learning_rate = 0.4"))
    assert not StudyFile.read(path).same_run(spec)


def test_another_distribution_takes_the_place_of_the_files(tmp_path: Path) -> None:
    spec = StudyFile.read(write_run(tmp_path, ("budgets.overrides", None)))
    other = spec.with_distribution("BoundedPareto")
    assert isinstance(other.declared_distribution, BoundedPareto)
    assert other.text == spec.text.replace('"ThreeLevels"', '"BoundedPareto"')  # so the copy of the file is true
    assert spec.same_run(other.with_distribution("ThreeLevels"))
    assert not spec.same_run(other)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("budgets.overrides", "{ levels = [1.0], shares = [1.0] }")], "overrides"),
        ([("budgets", '{ distribution = "ThreeLevels" }')], "on a line of its own"),
        (
            [
                ("budgets.distribution", None),
                ("budgets.files", '{ a = "a.csv" }'),
                ("budgets.declared", '"ThreeLevels"'),
            ],
            "files",
        ),
    ],
)
def test_another_distribution_that_cannot(tmp_path: Path, changes: list[Change], said: str) -> None:
    path = write_run(tmp_path, *[each for each in changes if each[0] != "budgets"])
    if changes[0][0] == "budgets":
        path.write_text(f"budgets = {changes[0][1]}\n" + re.sub(r"\[budgets\]\n(?:\w+ = .*\n)+", "", path.read_text()))
    with pytest.raises(InputError, match=said):
        StudyFile.read(path).with_distribution("BoundedPareto")


def test_method_names_are_those_of_the_baselines() -> None:
    assert set(METHOD_NAMES) == set(METHODS)


def test_every_public_name_resolves() -> None:
    assert all(callable(getattr(runs, name)) for name in runs.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = runs.trian


def test_reading_loads_no_torch(tmp_path: Path) -> None:
    code = f"import sys; from rpdp.studies import StudyFile; StudyFile.read({str(write_run(tmp_path))!r})"
    code += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_run_file_of_the_docs_can_be_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "study-file.md").read_text()
    path = tmp_path / "run.toml"
    path.write_text(text.partition("```toml\n")[2].partition("```")[0])
    assert StudyFile.read(path).settings("threshold").level == 1.0
    assert [key for key in KEYS if key.rpartition(".")[2] not in text] == []


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "examples").glob("*.toml")), ids=lambda path: path.name
)
def test_the_examples_can_be_read(path: Path) -> None:
    assert StudyFile.read(path).named_task is not None
