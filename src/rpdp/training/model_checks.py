"""Static checks: is a model suitable for private training? They look at its modules, before anything runs.

`model_probe` finds what shows only when the model runs: buffers that change, records that influence each other.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from rpdp.errors import PrivacyRefusal

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class ModelIssue:
    """A problem, or a note, about a model.

    Attributes:
        level: "refuse" if private training would break the promise, "note" for information.
        module: Name of the module, "" for the whole model.
        message: What is wrong and how to fix it.
    """

    level: Literal["refuse", "note"]
    module: str
    message: str

    def __str__(self) -> str:
        return f"{self.module or 'model'}: {self.message}"


def check_model(model: nn.Module) -> list[ModelIssue]:
    """All issues that the modules of a model show, refusals first.

    | issue | level | why |
    |---|---|---|
    | BatchNorm | refuse | a record's output depends on the whole batch: `to_groupnorm` converts |
    | InstanceNorm with running statistics | refuse | buffers carry data of records past the noise |
    | Embedding with `max_norm` | refuse | looking up a record changes the weights without noise |
    | frozen parameters | note | only trainable parameters are clipped, noised and counted |
    """
    issues = [issue for name, module in model.named_modules() for issue in _check_module(name, module)]
    issues.extend(_check_parameters(model))
    return sorted(issues, key=lambda issue: issue.level == "note")


def require_private(model: nn.Module) -> None:
    """Refuse a model with an issue of level "refuse"."""
    refusals = [str(issue) for issue in check_model(model) if issue.level == "refuse"]
    if refusals:
        raise PrivacyRefusal("the model is not fit for private training: " + "; ".join(refusals))


def to_groupnorm(model: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of the model with every BatchNorm replaced by a GroupNorm of (a divisor of) `groups` groups.

    Scale and shift are kept and running statistics are dropped, so the outputs change: convert before training.

    >>> to_groupnorm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))[1].num_groups
    8
    """
    if isinstance(model, _BatchNorm):
        return _group_norm(model, groups)
    converted = copy.deepcopy(model)
    for module in list(converted.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(module, name, _group_norm(child, groups))
    return converted


def _group_norm(norm: _BatchNorm, groups: int) -> nn.GroupNorm:
    channels = norm.num_features
    converted = nn.GroupNorm(gcd(groups, channels), channels, eps=norm.eps, affine=norm.affine)
    if norm.affine:
        converted.weight.data.copy_(norm.weight.data)
        converted.bias.data.copy_(norm.bias.data)
        converted.weight.requires_grad_(norm.weight.requires_grad)
        converted.bias.requires_grad_(norm.bias.requires_grad)
        converted.to(norm.weight.device, norm.weight.dtype)
    return converted


def _check_module(name: str, module: nn.Module) -> Iterator[ModelIssue]:
    kind = type(module).__name__
    if isinstance(module, _BatchNorm):
        yield ModelIssue(
            "refuse",
            name,
            f"{kind} normalises a record with the statistics of its batch, so one record moves all gradients; "
            "use rpdp.training.to_groupnorm(model) to get the same model with GroupNorm",
        )
    elif isinstance(module, _InstanceNorm) and module.track_running_stats:
        yield ModelIssue(
            "refuse", name, f"{kind} keeps running statistics of the records; use track_running_stats=False"
        )
    elif isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        yield ModelIssue(
            "refuse", name, f"{kind} with max_norm rescales rows when they are looked up; use max_norm=None"
        )


def _check_parameters(model: nn.Module) -> Iterator[ModelIssue]:
    frozen = sum(value.numel() for value in model.parameters() if not value.requires_grad)
    if frozen:
        total = sum(value.numel() for value in model.parameters())
        yield ModelIssue(
            "note",
            "",
            f"{frozen:,} of {total:,} parameters are frozen: they get no update, and values learned from private data "
            "before this run are not covered by it",
        )
