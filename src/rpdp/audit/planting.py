"""Planting canaries in a run's model: as easy to see in a release as a record can be, one coordinate for each.

The model of the run gets an extra parameter vector θ with one coordinate per canary. The loss of canary k is c·θ_k with
c far above the clip norm L, and does not depend on anything else; ordinary records do not touch θ. So canary k, when it
is drawn, adds exactly L(1 − 1e-4) to coordinate k of the clipped sum and nothing to any other coordinate, whatever the
model has become, and nobody else adds to coordinate k.

A canary person has several records with the same number; each adds as much to the person's coordinate when it is drawn.

Why many canaries in one run are as good as many runs. Given the rounds that the silo joined, the release of step t on
coordinate k is a function of canary k's coin, its own draws and the noise on its own coordinate. Coins are flipped
independently; a Poisson sampler draws records independently; the noise is independent between coordinates and steps;
and clipping a record looks at that record alone, whose gradient lies along its own coordinate alone. So the
observations of different canaries are independent, those of one group are identically distributed, and exact binomial
bounds hold. The observations of a group do not depend on θ, on the ordinary records or on the optimiser, because the
gradient of a linear loss is a constant.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.training import Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.audit.canaries import Canaries
    from rpdp.training import PerRecordLoss

_STRENGTH = 1e3
"""A canary's gradient over the clip norm; in a linear model also its feature, beside which the bias vanishes (5e-7)."""

_MOST_FEATURES = 2**26
"""Numbers in the features of a linear model with canaries (256 MB)."""


@dataclass(frozen=True)
class Planted:
    """A model with canaries, ready for a silo.

    Attributes:
        model: With a coordinate for each canary.
        loss: The run's own for ordinary records, linear in the canary's coordinate for canaries.
        records: The silo's records, and after them the canaries that are in.
        where: The canaries' coordinates in the flat parameters.
    """

    model: nn.Module
    loss: PerRecordLoss
    records: Records
    where: slice

    __repr__ = counts_repr

    def observed(self, flat: Tensor) -> NDArray[np.float64]:
        """What a flat vector, such as an update, holds on the canaries' coordinates."""
        return np.asarray(flat.detach()[self.where].cpu().numpy(), dtype=np.float64)


def plant(
    canaries: Canaries,
    clip_norm: float,
    model: nn.Module | None = None,
    loss: PerRecordLoss | None = None,
    records: Records | None = None,
) -> Planted:
    """Give a model coordinates for canaries, in a way that keeps its kernel.

    | model | canaries are | kernel |
    |---|---|---|
    | none: canaries alone | rows of an embedding | ghost |
    | one linear layer, class labels, canaries that fit in memory as features | features of their own | affine |
    | any other | rows of an embedding beside the model | ghost, vmap or loop, as the model without them |
    """
    if model is None or loss is None or records is None:
        if not (model is None and loss is None and records is None):
            raise InputError("give model, loss and records, or none of them")
        numbers = torch.from_numpy(canaries.owners) + 1
        alone = Records.of(numbers, torch.zeros(len(numbers)))
        return Planted(_Beside(None, len(canaries)), _beside_loss(None, clip_norm), alone, slice(-len(canaries), None))
    if _is_linear(model, records, canaries):
        return _in_linear(canaries, clip_norm, model, loss, records)
    wrapped = _Beside(model, len(canaries))
    return Planted(
        wrapped, _beside_loss(loss, clip_norm), _beside_records(canaries, records), slice(-len(canaries), None)
    )


class _Beside(nn.Module):
    """A model, and an embedding with a row for each canary at the end of the flat parameters.

    It takes the inputs of the model and, last, a number for each record: 0 for an ordinary record, k + 1 for canary k.
    For an embedding the ghost kernel has a closed form: a hundred thousand canaries cost as much as they are drawn.
    """

    def __init__(self, base: nn.Module | None, count: int) -> None:
        super().__init__()
        kinds = [] if base is None else [value.dtype for value in base.parameters() if value.requires_grad]
        self.base = None if base is None else copy.deepcopy(base)
        kind = kinds[0] if kinds else torch.float32
        table = nn.Embedding(count + 1, 1, padding_idx=0, device="meta", dtype=kind)  # uses no random number
        self.canaries = table.to_empty(device="cpu")
        nn.init.zeros_(self.canaries.weight)

    def forward(self, *inputs: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """The model's output, θ of each record, and which records are canaries."""
        *own, numbers = inputs
        output = None if self.base is None else self.base(*own)
        return output, self.canaries(numbers).squeeze(-1), numbers > 0


def _beside_loss(loss: PerRecordLoss | None, clip_norm: float) -> PerRecordLoss:
    def planted(output: Any, targets: Tensor) -> Tensor:
        own, values, is_canary = output
        of_canaries: Tensor = values * (_STRENGTH * clip_norm)
        return of_canaries if loss is None else torch.where(is_canary, of_canaries, loss(own, targets))

    return planted


def _beside_records(canaries: Canaries, records: Records) -> Records:
    """The other inputs of canaries are those of a sound record; they have no effect."""
    owners = torch.from_numpy(canaries.owners) + 1
    copies = records.select(torch.full((len(owners),), _sound_record(records)))
    numbers = torch.cat([torch.zeros(len(records), dtype=torch.int64), owners])
    inputs = [torch.cat([own, copied]) for own, copied in zip(records.inputs, copies.inputs, strict=True)]
    return Records.of([*inputs, numbers], torch.cat([records.targets, copies.targets]))


def _sound_record(records: Records) -> int:
    """The first record whose inputs are finite: a damaged one would make the canaries' gradients NaN."""
    sound = torch.ones(len(records), dtype=torch.bool)
    for tensor in records.inputs:
        if tensor.is_floating_point():
            sound &= tensor.flatten(1).isfinite().all(1).cpu() if tensor.dim() > 1 else tensor.isfinite().cpu()
    return int(sound.int().argmax())


def _is_linear(model: nn.Module, records: Records, canaries: Canaries) -> bool:
    """Whether the affine kernel would train this model, and canaries can be features of it."""
    if type(model) is not nn.Linear or len(records.inputs) != 1 or records.inputs[0].dim() != 2:
        return False
    size = (len(records) + len(canaries.owners)) * (model.in_features + len(canaries))
    whole = not records.targets.is_floating_point() and records.targets.dim() == 1
    return whole and bool((records.targets >= 0).all()) and size <= _MOST_FEATURES


def _in_linear(
    canaries: Canaries, clip_norm: float, model: nn.Linear | nn.Module, loss: PerRecordLoss, records: Records
) -> Planted:
    """More features, one for each canary; θ_k is the weight from feature k to the first output; their label is −1."""
    assert isinstance(model, nn.Linear)
    features, owners = model.in_features, torch.from_numpy(canaries.owners)
    sizes, has_bias = (features + len(canaries), model.out_features), model.bias is not None
    wider = nn.Linear(*sizes, bias=has_bias, device="meta", dtype=model.weight.dtype).to_empty(device="cpu")
    with torch.no_grad():
        wider.weight.zero_()
        wider.weight[:, :features] = model.weight
        if has_bias:
            wider.bias.copy_(model.bias)
    rows = len(records)
    inputs = torch.zeros(rows + len(owners), wider.in_features, dtype=records.inputs[0].dtype)
    inputs[:rows, :features] = records.inputs[0]
    inputs[rows + torch.arange(len(owners)), features + owners] = _STRENGTH

    def planted(output: Tensor, targets: Tensor) -> Tensor:
        return torch.where(targets < 0, output[:, 0] * clip_norm, loss(output, targets.clamp(min=0)))

    targets = torch.cat([records.targets, torch.full((len(owners),), -1, dtype=records.targets.dtype)])
    return Planted(wider, planted, Records.of(inputs, targets), slice(features, wider.in_features))
