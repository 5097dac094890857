"""The model and the loss for a table, from its schema alone: no code is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.tasks.models.losses import (
    binary_loss,
    cross_entropy,
    hazard_loss,
    multi_label_loss,
    squared_error,
)
from rpdp.tasks.models.perceptron import perceptron, zero_linear

if TYPE_CHECKING:
    from torch import nn

    from rpdp.studies.study_tables import NetworkSection
    from rpdp.tables import TableSchema
    from rpdp.tasks.models.losses import Loss

HIDDEN = (32,)
"""The hidden layers of `mlp` if the study file names none."""

_LOSSES = {
    "regression": squared_error,
    "multi_label": multi_label_loss,
    "survival": hazard_loss,
}

TARGET_METRICS = {
    "classification": ("accuracy", "auc"),
    "regression": ("rmse", "mae", "r2"),
    "multi_label": ("multilabel_f1", "auc"),
    "survival": ("concordance",),
}
"""What is measured of each kind of target where the study file names no metrics."""


def table_model(schema: TableSchema, network: NetworkSection, seed: int) -> nn.Module:
    """Return a new model that fits the features and the target of a schema."""
    features, outputs = len(schema.feature_names), schema.target.outputs
    if network.name == "linear":
        model = zero_linear(features, outputs)
        for name, weight in (network.start or {}).items():
            model.weight.data[0, schema.feature_names.index(name)] = weight
        return model
    return perceptron(features, network.hidden or HIDDEN, outputs, seed=seed)


def table_loss(schema: TableSchema) -> Loss:
    """Return the loss of a target, one value per record."""
    if schema.target.kind == "classification":
        return binary_loss if schema.target.outputs == 1 else cross_entropy
    return _LOSSES[schema.target.kind]
