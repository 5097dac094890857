"""The check of `rpdp doctor` about metrics: do they fit outputs and targets, and will accuracy mislead?"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from rpdp.studies.doctor import DoctorFinding as Finding
from rpdp.studies.study_data import make_evaluation
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from rpdp.federation import Evaluation
    from rpdp.studies.study_data import Source
    from rpdp.studies.study_file import StudyFile

_IMBALANCED = 0.8
"""With so large a share of one class, accuracy says little."""


def metrics(spec: StudyFile, module: nn.Module, source: Source) -> Iterator[Finding]:
    """Evaluate the untrained model on a batch of every silo's test records. Misfits are raised, in words."""
    tests = {name: held.test for name, held in source.silos.items()}
    if not any(map(len, tests.values())):
        return
    evaluation = make_evaluation(spec, tests).checked(module)
    names = [metric.name for metric in evaluation.named]
    chosen = "" if spec.evaluation.metrics else " (the study file names none, so they follow from the targets)"
    yield Finding("ok", "metrics", f"{', '.join(names)}{chosen}; {names[0]} decides")
    flat = FlatModel(copy.deepcopy(module))
    if _looks_like_probabilities(evaluation, flat):
        message = "the model's outputs look like probabilities, but metrics read logits: above 0 counts as class 1"
        yield Finding("warning", "metrics", message, "leave out the last sigmoid or softmax, and use a loss of logits")
    share = evaluation.measure(flat).majority_share
    if share is not None and share > _IMBALANCED and names[0] == "accuracy":
        message = f"{share:.1%} of the test records are of one class: a model that never leaves it has this accuracy"
        yield Finding("warning", "metrics", message, 'name another metric first, such as metrics = ["auc", "accuracy"]')


def _looks_like_probabilities(evaluation: Evaluation, flat: FlatModel) -> bool:
    """Whether outputs for classes or labels lie within 0 and 1; several of one record must also add up to 1."""
    held = next(records for records in evaluation.test.values() if len(records))
    outputs = evaluation.predict(flat, held).outputs
    reads_logits = any(metric.needs in ("classes", "probabilities", "labels") for metric in evaluation.named)
    if outputs is None or not reads_logits or outputs.ndim > 2:
        return False
    rows = outputs.reshape(len(outputs), -1)
    within = bool((rows > 0.0).all() and (rows < 1.0).all())
    about_classes = any(metric.needs in ("classes", "probabilities") for metric in evaluation.named)
    return within and (rows.shape[1] == 1 or not about_classes or bool(np.allclose(rows.sum(axis=1), 1.0, atol=1e-3)))
