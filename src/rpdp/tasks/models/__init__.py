"""Small models for the example tasks, and losses with one value per record. Imports torch."""

from __future__ import annotations

from rpdp.tasks.models.convolutional import paper_cnn
from rpdp.tasks.models.linear import logistic_regression
from rpdp.tasks.models.losses import Loss, binary_loss, cross_entropy, predicted_classes

__all__ = ["Loss", "binary_loss", "cross_entropy", "logistic_regression", "paper_cnn", "predicted_classes"]
