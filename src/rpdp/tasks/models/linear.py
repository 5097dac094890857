"""Logistic regression, binary and multinomial."""

from __future__ import annotations

from torch import nn

from rpdp.errors import InputError


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
    model = nn.Linear(features, 1 if classes == 2 else classes)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model
