"""What a private evaluation found out: its file in the directory of a run, and its lines on a terminal.

    evaluation.json       the metrics with intervals, or why nothing was evaluated

All of it is public: the server computes it from the noisy sums that silos release.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError
from rpdp.metrics import title_of
from rpdp.report.evaluation_figures import CHOSEN_BY_VALUE
from rpdp.statistics.estimate import LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping

EVALUATION = "evaluation.json"


def evaluation_lines(facts: Mapping[str, Any]) -> list[str]:
    """The result in words; what was not evaluated says why."""
    if facts["not_evaluated"] is not None:
        return [f"private evaluation: {facts['not_evaluated']}"]
    several = len(facts["models"]) > 1
    lines = []
    for model in facts["models"] if several else ():
        first = model["scores"][0]["metrics"][0]
        chosen = ", chosen" if model["name"] == facts["chosen"] else ""
        lines.append(f"{model['name']}: private {title_of(first['name'])} {_with_interval(first)}{chosen}")
    for score in facts["scores"]:
        of = f" of group {score['group']}" if score["group"] else ""
        lines += [f"private {title_of(one['name'])}{of}: {_with_interval(one)}" for one in score["metrics"]]
    if several:
        lines.append(f"chosen among {len(facts['models'])} models: {CHOSEN_BY_VALUE}")
    return [*lines, f"this speaks of {facts['scores'][0]['metrics'][0]['speaks_of']}"]


def _with_interval(one: Mapping[str, Any]) -> str:
    return f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f} at {100 * LEVEL:g} %)"


def write_evaluation(directory: str | Path, facts: Mapping[str, Any]) -> None:
    """Write the result of the evaluation into the directory of a run."""
    text = json.dumps(facts, indent=2, ensure_ascii=False)
    (Path(directory) / EVALUATION).write_text(text + "\n", encoding="utf-8")


def read_evaluation(directory: str | Path) -> dict[str, Any] | None:
    """Read the result of the evaluation; None if the run has none."""
    path = Path(directory) / EVALUATION
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known: dict[str, Any] = {"models": [], "chosen": None}  # what evaluations of one model were written without
        return {**known, **found} | {name: found[name] for name in ("expected", "scores", "not_evaluated")}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged: {type(error).__name__}: {error}") from None
