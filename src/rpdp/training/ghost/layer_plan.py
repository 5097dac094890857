"""Which way each layer of a model gets its per-record gradients.

| layer | way |
|---|---|
| with a rule (`layer_rules`) | closed form, from what a hook keeps |
| attention and recurrent layers | closed form, from a forward pass of our own |
| any other with parameters of its own | record by record, that layer alone (`odd_layers`) |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import nn

from rpdp.training.ghost.attention import RecordedAttention
from rpdp.training.ghost.layer_rules import Slot, rule_for
from rpdp.training.ghost.odd_layers import OddLayer
from rpdp.training.ghost.recorder import UnsupportedModelError
from rpdp.training.ghost.recurrent import RecordedCell, RecordedRecurrent

if TYPE_CHECKING:
    from collections.abc import Collection

    from rpdp.training.flat_model import FlatModel
    from rpdp.training.ghost.layer_rules import Rule
    from rpdp.training.ghost.recorder import RecordedForward


class LayerPlan:
    """The way of each layer of one model.

    Args:
        model: The model.
        strays: Ids of parameters that are also used outside of their layer: they belong to the whole model.

    Attributes:
        rules: Layers with a closed form.
        forwards: Layers whose forward pass is replaced while recording.
        odd: Layers of which some parameters have none.
        shared: Layers of `rules` whose input has no row for each record, such as position embeddings: their output is
            repeated for every record, so that each record's gradient arrives by itself.
    """

    def __init__(self, model: FlatModel, strays: Collection[int] = ()) -> None:
        self.rules: dict[nn.Module, Rule] = {}
        self.forwards: dict[nn.Module, RecordedForward] = {}
        self.odd: dict[nn.Module, OddLayer] = {}
        self.shared: set[nn.Module] = set()
        inside: set[nn.Module] = set()
        for name, module in model.module.named_modules():
            if module in inside or not _own(module, strays):
                continue
            if (forward := _recorded_forward(module)) is not None:
                if len(_own(module)) > len(_own(module, strays)):
                    raise UnsupportedModelError(f"the weights of {name} are also used outside of it")
                self.forwards[module] = forward
                inside.update(module.modules())
            elif (rule := rule_for(module, strays)) is not None:
                self.rules[module] = rule
            else:
                self.odd[module] = OddLayer(name, module, _slots(module.named_parameters(recurse=False), strays))
        if strays:
            self._add_to_the_whole(model, strays)

    @property
    def odd_parameters(self) -> dict[int, nn.Parameter]:
        """The parameters without a closed form, by id."""
        return {id(slot.parameter): slot.parameter for layer in self.odd.values() for slot in layer.slots.values()}

    def _add_to_the_whole(self, model: FlatModel, strays: Collection[int]) -> None:
        whole = self.odd.setdefault(model.module, OddLayer("", model.module, {}))
        for name, parameter in zip(model.names, model.parameters, strict=True):
            if id(parameter) in strays:
                whole.slots[name] = Slot(parameter)


def _slots(named: object, strays: Collection[int]) -> dict[str, Slot]:
    return {
        name: Slot(value)
        for name, value in cast("list[tuple[str, nn.Parameter]]", named)
        if value.requires_grad and id(value) not in strays
    }


def _own(module: nn.Module, strays: Collection[int] = ()) -> list[nn.Parameter]:
    """Trainable parameters of the module itself, not of a submodule; attention includes its output layer."""
    recurse = type(module) is nn.MultiheadAttention
    return [value for value in module.parameters(recurse=recurse) if value.requires_grad and id(value) not in strays]


def _recorded_forward(module: nn.Module) -> RecordedForward | None:
    """The forward pass that records a layer whose weights hooks cannot see, or None for all other layers."""
    if module._forward_hooks or module._forward_pre_hooks:
        return None
    if type(module) is nn.MultiheadAttention and RecordedAttention.supports(module):
        return RecordedAttention(module)
    if RecordedRecurrent.supports(module):
        return RecordedRecurrent(cast("nn.RNNBase", module))
    if RecordedCell.supports(module):
        return RecordedCell(cast("nn.RNNCellBase", module))
    return None
