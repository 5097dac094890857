"""Losses that return one value per record, as private training needs, and predicted classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from torch.nn import functional

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

Loss: TypeAlias = "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"


def binary_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Logistic loss of a single logit per record, (records, 1) or (records,), against labels 0 and 1."""
    logits = _single_logit(outputs)
    return functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of (records, classes) logits against class numbers."""
    return functional.cross_entropy(outputs, targets.long(), reduction="none")


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Half the squared error of one number per record."""
    return 0.5 * (_single_logit(outputs) - targets) ** 2


def multi_label_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean logistic loss over the labels of a record; outputs and targets are (records, labels)."""
    losses = functional.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none")
    return losses.mean(dim=1)


def hazard_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of discrete-time hazards, from (records, intervals) logits.

    Targets are (records, 2): the number of intervals survived as a whole, and 1 if the event happened in the next one.
    A record says nothing about later intervals.
    """
    interval = torch.arange(outputs.shape[1], device=outputs.device)
    survived = (interval < targets[:, :1]).to(outputs.dtype)
    event = (interval == targets[:, :1]).to(outputs.dtype) * targets[:, 1:].to(outputs.dtype)
    # log(1 - hazard) = -softplus(logit), and log(hazard) = -softplus(-logit)
    return (survived * functional.softplus(outputs) + event * functional.softplus(-outputs)).sum(dim=1)


def predicted_classes(outputs: torch.Tensor) -> torch.Tensor:
    """The predicted class of each record: from the sign of a single logit, or the largest of several."""
    if outputs.dim() == 2 and outputs.shape[1] > 1:
        return outputs.argmax(dim=1)
    return (_single_logit(outputs) > 0).long()


def _single_logit(outputs: torch.Tensor) -> torch.Tensor:
    if outputs.dim() == 2 and outputs.shape[1] == 1:
        return outputs[:, 0]
    if outputs.dim() == 1:
        return outputs
    raise InputError(
        f"outputs of shape {tuple(outputs.shape)} must be one logit per record: (records, 1) or (records,)"
    )
