"""Layers without a closed form: their per-record gradients, while all other layers keep theirs.

Such a layer runs in the model as it is. A hook keeps what goes in and where its output gradient arrives. Afterwards the
layer, and it alone, runs once more for every record: `torch.func.vmap` over the records of a vector-Jacobian product
with the record's rows of the gradient. If a layer cannot run in vmap, it runs once more record by record.

A parameter that a model uses directly (a class token, a scale, tied weights in a functional call) belongs to the module
that holds it, in the last resort to the whole model. That module then runs twice, and no layer inside it loses its own
closed form.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, vjp, vmap
from torch.utils import _pytree as pytree

from rpdp.errors import InputError
from rpdp.training.ghost.parameter_uses import DirectUse
from rpdp.training.ghost.recorder import UnsupportedModelError
from rpdp.training.record_masks import MaskedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rpdp.training.ghost.layer_rules import Slot, SlotUse
    from rpdp.training.record_masks import RecordMasks


@dataclass(eq=False)
class OddCall:
    """One call of a layer without a closed form.

    Attributes:
        number: How many calls of the layer came before, in this run of the model.
        place: How many masks the model had drawn before.
        edges: Where the gradients of the outputs arrive, as far as anything can arrive there.
    """

    layer: OddLayer
    number: int
    values: list[Any]
    form: Any
    place: int
    versions: list[int]
    edges: list[tuple[int, GradientEdge]] = field(default_factory=list)

    def returned(self, output: Any) -> None:
        """Note the outputs."""
        leaves, _ = pytree.tree_flatten(output)
        self.edges = [
            (index, get_gradient_edge(leaf))
            for index, leaf in enumerate(leaves)
            if isinstance(leaf, Tensor) and leaf.requires_grad
        ]


class OddLayer:
    """A module of which some parameters get their gradients record by record.

    Args:
        name: Of the module in the model, "" for the model itself.
        module: It must keep records apart; the probe compares with plain autograd.
        slots: The trainable parameters, by their names in the module.
    """

    def __init__(self, name: str, module: nn.Module, slots: dict[str, Slot]) -> None:
        self.name = name
        self.module = module
        self.slots = slots
        self.by_record = False
        """Whether records run one after another: in vmap the layer fails."""
        self.is_learned = False
        """Whether the probe is over. During the probe a layer that fails in vmap changes to record by record."""
        self._per_record: list[list[bool]] = []

    def call(
        self, number: int, arguments: tuple[Any, ...], named: dict[str, Any], masks: RecordMasks | None
    ) -> OddCall:
        """What goes in, before the layer can change it in place."""
        leaves, form = pytree.tree_flatten((arguments, named))
        values = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        versions = [leaf._version if isinstance(leaf, Tensor) else 0 for leaf in values]
        return OddCall(self, number, values, form, 0 if masks is None else masks.draws, versions)

    def learn(self, alone: Sequence[OddCall], pair: Sequence[OddCall]) -> None:
        """Find out which inputs have a row for each record: those that double when there are two records."""
        if len(alone) != len(pair):
            raise UnsupportedModelError(f"{self.name or 'the model'} is called more often for more records")
        self._per_record = [
            [_rows(two) == 2 * _rows(one) > 0 for one, two in zip(first.values, second.values, strict=True)]
            for first, second in zip(alone, pair, strict=True)
        ]

    def uses(
        self, call: OddCall, gradients: Sequence[Tensor | None], count: int, masks: RecordMasks | None
    ) -> Iterator[SlotUse]:
        """The use of every parameter in one call."""
        versions = [leaf._version if isinstance(leaf, Tensor) else 0 for leaf in call.values]
        if versions != call.versions:
            raise InputError(
                f"the input of {self.name or 'the model'} was changed in place, so its gradients would be wrong; use "
                "the out-of-place operation"
            )
        if call.number >= len(self._per_record):
            raise UnsupportedModelError("what goes into odd layers was not learned: call require_sound first")
        found = [(index, gradient) for (index, _), gradient in zip(call.edges, gradients, strict=True)]
        arrived = [(index, gradient) for index, gradient in found if gradient is not None]
        if not arrived:
            return
        for name, gradient in self._gradients(call, arrived, count, masks).items():
            yield self.slots[name], DirectUse(gradient.reshape(count, -1))

    def _gradients(
        self, call: OddCall, arrived: list[tuple[int, Tensor]], count: int, masks: RecordMasks | None
    ) -> dict[str, Tensor]:
        split = self._per_record[call.number]
        rows = [_by_record(value, count) for value, each in zip(call.values, split, strict=True) if each]
        outputs = [index for index, _ in arrived]
        gradients = [_by_record(gradient, count) for _, gradient in arrived]
        weights = {name: slot.parameter.detach() for name, slot in self.slots.items()}

        def of_one(rows: list[Tensor], gradients: list[Tensor]) -> dict[str, Tensor]:
            given = iter(rows)
            values = [next(given) if each else value for value, each in zip(call.values, split, strict=True)]
            arguments, named = pytree.tree_unflatten(values, call.form)

            def forward(weights: dict[str, Tensor]) -> list[Tensor]:
                leaves, _ = pytree.tree_flatten(functional_call(self.module, weights, arguments, named))
                return [leaves[index] for index in outputs]

            pull: Callable[[list[Tensor]], tuple[dict[str, Tensor]]] = vjp(forward, weights)[1]
            return pull(gradients)[0]

        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            if not self.by_record:
                try:
                    with _again(masks, call.place):
                        return vmap(of_one, randomness="different")(rows, gradients)
                except (RuntimeError, ValueError, NotImplementedError):
                    if self.is_learned:
                        raise
                    self.by_record = True
            parts = []
            for row in range(count):
                with _again(None if masks is None else masks.select([row]), call.place):
                    parts.append(of_one([value[row] for value in rows], [value[row] for value in gradients]))
            return {name: torch.stack([part[name] for part in parts]) for name in weights}


def _again(masks: RecordMasks | None, place: int) -> Any:
    """A context in which the masks are drawn again that were drawn from this place on."""
    return torch.no_grad() if masks is None else MaskedRun(masks.select(slice(None)), place)


def _rows(value: Any) -> int:
    return value.shape[0] if isinstance(value, Tensor) and value.dim() else 0


def _by_record(value: Tensor, count: int) -> Tensor:
    """(records · copies, …) → (records, copies, …)."""
    if value.dim() == 0 or value.shape[0] % count:
        raise UnsupportedModelError(f"a layer sees {_rows(value)} rows for {count} records: records must come first")
    return value.reshape(count, -1, *value.shape[1:])
