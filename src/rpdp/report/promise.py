"""The sentences and numbers of the promise that need more than a template: see `templates/promise.html.j2`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rpdp.planning import words_for
from rpdp.report.rendering import Column, Table

if TYPE_CHECKING:
    from rpdp.planning import PublicPlan

_REFERENCE_PROBABILITIES = (0.001, 0.01, 0.1, 1.0)
_MOST_WEIGHTS = 12

_ACCOUNTANTS = {
    "pld": "privacy-loss distributions, and the Rényi bound where that is smaller",
    "rdp": "Rényi moments with the tight conversion",
}
_EXACT = "exact: the price of a Gaussian that a record of weight w moves by w√T/s standard deviations"
_NAMES = {
    "sgd": "SGD",
    "adam": "Adam",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "fedavgm": "FedAvgM",
    "fedadam": "FedAdam",
}


def promise_values(public: PublicPlan, *, is_protected: bool) -> dict[str, Any]:
    """What the template of the promise shows beside the plan itself."""
    accountant = _EXACT if public.request else f"{public.accountant}: {_ACCOUNTANTS[public.accountant]}"
    values = {"recipe": _recipe(public), "weights": _weights(public), "accountant": accountant}
    return {**values, "accountant_bounds": accountant_bounds(public)} if is_protected else values


def accountant_bounds(public: PublicPlan) -> Table:
    """How far the accountant's bounds lie apart, at a few probabilities."""
    bounds = public.curve.bounds(_REFERENCE_PROBABILITIES)
    rows = [
        [f"{q:g}", f"{lower:.4g}", f"{upper:.4g}"]
        for q, lower, upper in zip(_REFERENCE_PROBABILITIES, bounds.lower, bounds.upper, strict=True)
    ]
    words = words_for(public.purpose)
    caption = (
        f"The accountant's error: the true cost of a record with {words.q} {words.symbol} lies between these bounds."
    )
    return Table([Column(words.symbol), Column("ε at least"), Column("ε at most")], rows, caption, stack=False)


def _recipe(public: PublicPlan) -> str:
    recipe = public.recipe
    momentum = f" with momentum {recipe.momentum:g}" if recipe.momentum else ""
    settings = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in recipe.backbone_settings.items())
    return (
        f"{_NAMES[recipe.optimiser]}{momentum} in the silos, learning rate {recipe.learning_rate:g}; "
        f"{_NAMES[recipe.backbone]} at the server{f' ({settings})' if settings else ''}."
    )


def _weights(public: PublicPlan) -> str:
    if not isinstance(public.weights, Mapping):
        return "The same for all."
    if len(public.weights) > _MOST_WEIGHTS:
        return f"From {min(public.weights.values()):g} to {max(public.weights.values()):g}; see the table of the silos."
    return ", ".join(f"{silo}: {weight:g}" for silo, weight in public.weights.items())
