"""A Flower strategy as backbone: it sees released updates only, so it costs no privacy.

Silos flip their own participation coins and the public plan sets their weights. A strategy's client sampling is
ignored: it receives the update of every silo that answered, with the silo's public weight as `num-examples`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from rpdp.errors import InputError
from rpdp.federation.backbones import Backbone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
    from torch import Tensor

    from rpdp.federation.backbones import Weighted

_ARRAYS = "arrays"
_METRICS = "metrics"
_WEIGHT = "num-examples"
_VALUES = "values"
_NODES = 16


class StrategyBackbone(Backbone):
    """Averages with a strategy from `flwr.serverapp.strategy`, or your own.

    The model is one flat array. Checkpoints do not hold a strategy's state (the moments of FedAdam, say): a resumed run
    starts with a fresh one.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.state: dict[str, Tensor] = {}
        self._strategy = strategy
        self._round = 0

    def step(self, values: Tensor, changes: list[Weighted]) -> Tensor:
        """The model that the strategy makes of the silos' models."""
        self._round += 1
        grid = cast("Grid", _NodeIds())
        list(self._strategy.configure_train(self._round, _record(values), ConfigRecord(), grid))
        replies = [_reply(values + change.change, change.weight) for change in changes]
        arrays, _ = self._strategy.aggregate_train(self._round, replies)
        if arrays is None:
            return values
        flat = np.asarray(arrays[_VALUES].numpy())
        if flat.shape != tuple(values.shape) or not np.isfinite(flat).all():
            raise InputError(
                f"strategy {type(self._strategy).__name__} must return {len(values)} finite numbers; it returned an "
                f"array of shape {flat.shape}, {np.isfinite(flat).sum()} of its numbers finite"
            )
        return torch.from_numpy(flat.astype(np.float32).copy()).to(values.dtype)


class _NodeIds:
    """A grid that only lists nodes: strategies ask it before they prepare messages, which are never sent."""

    def get_node_ids(self) -> Iterable[int]:
        return range(1, _NODES + 1)


def _record(values: Tensor) -> ArrayRecord:
    return ArrayRecord({_VALUES: values.clone()})


def _reply(values: Tensor, weight: float) -> Message:
    asked = Message(RecordDict(), dst_node_id=1, message_type="train")
    content = RecordDict({_ARRAYS: _record(values), _METRICS: MetricRecord({_WEIGHT: weight})})
    return Message(content, reply_to=asked)
