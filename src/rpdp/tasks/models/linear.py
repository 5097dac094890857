"""Logistic regression, binary and multinomial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.tasks.models.perceptron import zero_linear

if TYPE_CHECKING:
    from torch import nn


def logistic_regression(features: int, classes: int = 2) -> nn.Linear:
    """A linear model with bias that starts at zero. For two classes it has a single logit, for `binary_loss`.

    Heart-Disease has 13 features and hence 14 parameters; the paper's table of data sets says 20.

    >>> sum(parameter.numel() for parameter in logistic_regression(13).parameters())
    14
    """
    if features < 1:
        raise InputError(f"features={features} must be at least 1")
    if classes < 2:
        raise InputError(f"classes={classes} must be at least 2")
    return zero_linear(features, 1 if classes == 2 else classes)
