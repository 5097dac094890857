"""One federated run, described by a study file, and what it reached. Imports torch."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rpdp.studies.building import build
from rpdp.studies.execution import execute
from rpdp.studies.study_file import MethodSettings, StudyFile
from rpdp.training import FlatModel
from rpdp_lab.data.mnist import load_mnist
from rpdp_lab.features.mnist_features import scattered_mnist
from rpdp_lab.models.model_scores import accuracy, records_of
from rpdp_lab.reproduction.suites.task_names import task_section

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    from rpdp.federation import RunResult
    from rpdp.tasks.dataset import Dataset
    from rpdp_lab.reproduction.cell import Numbers, Settings

UNSEEN: dict[str, Callable[[Literal["test"]], Dataset]] = {
    "mnist": load_mnist,
    "mnist-features-iid": scattered_mnist,
    "mnist-features-five-classes": scattered_mnist,
}
"""Records that are in no silo, by the stable name of the task or its data."""

SECTIONS = ("task", "schedule", "privacy", "budgets", "training")


def one_run(settings: Settings, device: str) -> Numbers:
    """A method on a seed: accuracy by round, records over budget, and accuracy of the records of each budget group."""
    study = study_file(settings)
    chosen = MethodSettings(
        settings["method"],
        study.training.learning_rate,
        study.privacy.clip_norm,
        settings.get("level"),
        tuned=True,
    )
    built = build(study, chosen, settings["seed"], device=device)
    result = execute(built, workers=1)
    assert result.score is not None
    return {
        "accuracy": result.score.accuracy,
        "mean_over_silos": result.score.mean_over_silos["accuracy"],
        "by_round": [round(log.score.accuracy, 4) for log in result.rounds if log.score is not None],
        "overdrawn": sum(view.overdrawn for view in result.silos.values()),
        "records": sum(len(view.plan) for view in result.silos.values()),
        "expected_batch": float(np.mean([view.plan.expected_batch for view in result.silos.values()])),
        "normaliser": result.public.normaliser,
        "noise_multiplier": result.public.noise_multiplier,
        "groups": _groups(result),
        "unseen": _on_unseen(settings["task"], built.model, result.values),
        "seconds": result.seconds,
    }


def _on_unseen(task: Mapping[str, Any], module: nn.Module, values: Tensor) -> float | None:
    """Accuracy on records that are in no silo and by which no setting was chosen: the published test images of MNIST.

    The silos are made from the 60,000 training images alone. None for tasks without such records.
    """
    load = UNSEEN.get(task.get("data") or task.get("name", ""))
    if load is None:
        return None
    model = FlatModel(copy.deepcopy(module))
    model.values.data.copy_(values)
    return accuracy(model, records_of(load("test")))


def study_file(settings: Settings) -> StudyFile:
    """The settings as a checked study file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "cell.toml"
        path.write_text(study_text(settings), encoding="utf-8")
        return StudyFile.read(path)


def study_text(settings: Settings) -> str:
    """The study file of a cell; `rpdp train` runs the same from it."""
    sections = {name: settings[name] for name in SECTIONS}
    sections["task"] = task_section(settings["task"])
    lines = []
    for name, values in sections.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
    lines += ["[run]", f"seeds = [{settings['seed']}]", f'split = "{settings["split"]}"']
    if settings.get("level") is not None:
        lines += [f"[methods.{settings['method']}]", f"level = {settings['level']}"]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def _groups(result: RunResult) -> dict[str, float]:
    """Accuracy on the training records of each budget level, when there are few levels."""
    views = [view for view in result.silos.values() if view.correct is not None]
    if not views:
        return {}
    budgets = np.concatenate([view.plan.budget for view in views])
    correct = np.concatenate([view.correct for view in views if view.correct is not None])
    levels = np.unique(budgets)
    if levels.size > 10 or not np.isfinite(levels).all():
        return {}
    return {f"{level:g}": float(correct[budgets == level].mean()) for level in levels}
