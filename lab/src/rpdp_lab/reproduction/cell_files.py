"""Results of cells on disk: one JSON file per cell while suites run, one per suite in the repository (`lab/cells`).

Format 2 names the results version and the rpdp version of each cell. Format 1 had a hash of the code instead, and named
data and models by their modules; reading it gives those their stable names. What it holds is results version 1.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp_lab.reproduction.cell import CellResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = "rpdp-reproduction/2"
FORMAT_1 = "rpdp-reproduction/1"

_RPDP_OF_FORMAT_1 = "0.1.0"
_STABLE_NAMES = {
    f"rpdp.reproduction.data.{reference}": name
    for reference, name in {
        "features:mnist_iid": "mnist-features-iid",
        "features:mnist_five_classes": "mnist-features-five-classes",
        "features:linear_model": "linear-on-mnist-features",
        "features:pixel_model": "linear-on-pixels",
        "features:tanh_network": "cnn-tanh",
        "features:loss": "cross-entropy",
        "public_start:stroke_started_cnn": "cnn-from-strokes",
        "larger:cifar10": "cifar10-images",
        "larger:small_network": "small-network",
        "larger:snli": "snli-hidden-states",
        "larger:text_top": "text-encoder-top",
        "larger:snli_sentences": "snli-sentence-features",
        "larger:sentence_head": "linear-on-sentence-features",
    }.items()
}


def write_result(result: CellResult, path: Path) -> None:
    """Write one result; a reader sees a whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")
    partial.write_text(json.dumps({"format": FORMAT, **plain(result)}, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def read_result(path: Path) -> CellResult | None:
    """Read one result; None if the file is missing, damaged or of an unknown format."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return _result(values, values["format"])
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        return None


def bundle_text(results: Iterable[CellResult]) -> str:
    """All results of a suite, one per line and in a fixed order, so that a diff shows which cells changed."""
    ordered = sorted(results, key=lambda result: (result.profile, result.part, result.name))
    lines = ",\n".join(json.dumps(plain(result), ensure_ascii=False, sort_keys=True) for result in ordered)
    return f'{{"format": "{FORMAT}", "cells": [\n{lines}\n]}}\n'


def read_bundles(directory: Path) -> list[CellResult]:
    """The results of all suites in a directory."""
    bundles = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]
    return [_result(values, bundle["format"]) for bundle in bundles for values in bundle["cells"]]


def plain(result: CellResult) -> dict[str, Any]:
    """Plain values for JSON."""
    return {**asdict(result), "settings": dict(result.settings)}


def _result(values: Mapping[str, Any], form: str) -> CellResult:
    if form not in (FORMAT, FORMAT_1):
        raise KeyError(form)
    fields = {name: value for name, value in values.items() if name not in ("format", "key", "code")}
    if form == FORMAT_1:
        fields["settings"] = _with_stable_names(fields["settings"])
        fields |= {"results_version": 1, "rpdp_version": _RPDP_OF_FORMAT_1}
    return CellResult(**fields)


def _with_stable_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    task = settings.get("task")
    if not isinstance(task, dict):
        return dict(settings)
    return {**settings, "task": {key: _STABLE_NAMES.get(value, value) for key, value in task.items()}}
