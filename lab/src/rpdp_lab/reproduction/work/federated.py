"""One federated run, described like a study file, and what it reached."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rpdp.budgets import distribution
from rpdp.studies.building import build
from rpdp.studies.execution import execute
from rpdp.studies.study_file import MethodSettings, StudyFile
from rpdp.training import FlatModel
from rpdp_lab.data.mnist import load_mnist
from rpdp_lab.features.features import scattered_mnist
from rpdp_lab.reproduction.work.measures import accuracy, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    from rpdp.federation import RunResult
    from rpdp.tasks.dataset import Dataset

BINS = 24
UNSEEN: dict[str, Callable[[Literal["test"]], Dataset]] = {
    "mnist": load_mnist,
    "rpdp_lab.features.features:mnist_iid": scattered_mnist,
    "rpdp_lab.features.features:mnist_five_classes": scattered_mnist,
}
SECTIONS = ("task", "schedule", "privacy", "budgets", "training")


def one_run(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """A method on a seed: accuracy by round, records over budget, and accuracy of the records of each budget group."""
    spec = run_file(settings)
    chosen = MethodSettings(
        settings["method"],
        spec.training.learning_rate,
        spec.privacy.clip_norm,
        settings.get("level"),
        tuned=True,
    )
    built = build(spec, chosen, settings["seed"], device=device)
    result = execute(built, workers=1)
    assert result.score is not None
    return {
        "accuracy": result.score.accuracy,
        "mean_over_silos": result.score.mean_over_silos,
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
    """Accuracy on records that are in no silo and chose no setting of these runs: the published test images of MNIST.

    The silos are made from the 60,000 training images alone. None for tasks without such records.
    """
    load = UNSEEN.get(task.get("data") or task.get("name", ""))
    if load is None:
        return None
    model = FlatModel(copy.deepcopy(module))
    model.values.data.copy_(values)
    return accuracy(model, records_of(load("test")))


def run_file(settings: Mapping[str, Any]) -> StudyFile:
    """The settings as a checked study file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "cell.toml"
        path.write_text(run_file_text(settings), encoding="utf-8")
        return StudyFile.read(path)


def run_file_text(settings: Mapping[str, Any]) -> str:
    """The study file of a cell: `rpdp train` does the same with it."""
    lines = []
    for section in SECTIONS:
        lines.append(f"[{section}]")
        lines += [f"{key} = {_value(value)}" for key, value in settings[section].items()]
    lines += ["[run]", f"seeds = [{settings['seed']}]", f'split = "{settings["split"]}"']
    if settings.get("level") is not None:
        lines += [f"[methods.{settings['method']}]", f"level = {settings['level']}"]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {_value(each)}" for key, each in value.items()) + " }"
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


def budget_sample(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """A histogram of budgets of a distribution: the first column of figure 8."""
    chosen = distribution(settings["distribution"], settings["parameters"])
    budgets = chosen.sample(settings["records"], settings["seed"])
    edges = np.geomspace(0.09, 10.5, BINS + 1)
    counts, _ = np.histogram(budgets, edges)
    return {
        "centres": [float(f"{value:.4g}") for value in np.sqrt(edges[1:] * edges[:-1])],
        "counts": counts.tolist(),
        "mean": float(budgets.mean()),
        "median": float(np.median(budgets)),
    }
