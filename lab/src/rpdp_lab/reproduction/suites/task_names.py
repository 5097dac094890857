"""Stable names for the tasks, data, models and losses in the settings of cells.

Settings are what results are kept by, so a name here must not change. What it refers to may move: a study file made for
a cell gets the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCES = {
    "heart_disease": "rpdp_lab.tasks:heart_disease",
    "mnist": "rpdp_lab.tasks:mnist",
    "cifar10": "rpdp_lab.tasks:cifar10",
    "mnist-features-iid": "rpdp_lab.features.mnist_features:mnist_iid",
    "mnist-features-five-classes": "rpdp_lab.features.mnist_features:mnist_five_classes",
    "linear-on-mnist-features": "rpdp_lab.features.mnist_features:linear_model",
    "linear-on-pixels": "rpdp_lab.features.mnist_features:pixel_model",
    "cross-entropy": "rpdp_lab.features.mnist_features:loss",
    "cnn-tanh": "rpdp_lab.features.public_start:tanh_cnn",
    "cnn-from-strokes": "rpdp_lab.features.public_start:stroke_started_cnn",
    "cifar10-images": "rpdp_lab.features.reduced_tasks:cifar10",
    "small-network": "rpdp_lab.features.reduced_tasks:small_network",
    "snli-hidden-states": "rpdp_lab.features.reduced_tasks:snli",
    "text-encoder-top": "rpdp_lab.features.reduced_tasks:text_top",
    "snli-sentence-features": "rpdp_lab.features.reduced_tasks:snli_sentences",
    "linear-on-sentence-features": "rpdp_lab.features.reduced_tasks:sentence_head",
}


def task_section(task: Mapping[str, str]) -> dict[str, str]:
    """The `[task]` section of a study file: references for stable names, other values as they are."""
    return {key: REFERENCES.get(value, value) for key, value in task.items()}
