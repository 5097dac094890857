"""The ghost kernel, the default: one forward pass, one backward pass, no per-record gradients in memory.

Hooks keep inputs and output gradients (`recorder`). Closed forms turn them into per-record norms (`layer_rules`,
`parameter_uses`, `convolution`, `cancellation`), and the clipped sum is formed from the same tensors, without a second
backward pass.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from rpdp.training.ghost.attention import RecordedAttention
from rpdp.training.ghost.cancellation import total_norms
from rpdp.training.ghost.layer_rules import SlotUse, rule_for
from rpdp.training.ghost.parameter_uses import DirectUse, FactorUse, Use, combine
from rpdp.training.ghost.recorder import RecordedForward, Recorder, UnsupportedModelError, count_edges
from rpdp.training.ghost.recurrent import RecordedCell, RecordedRecurrent, records_first
from rpdp.training.kernel import Kernel, PerRecordLoss, Progress, clip_factors

if TYPE_CHECKING:
    from torch import Tensor

    from rpdp.training.flat_model import FlatModel
    from rpdp.training.ghost.layer_rules import Rule
    from rpdp.training.records import Records

PROBE_TOLERANCE = 1e-2
"""A larger relative difference to plain autograd means that a closed form is wrong; a missing use is of order one."""


class GhostKernel(Kernel):
    """Clipped sums in closed form. Raises `UnsupportedModelError` for a model that it does not support.

    Every step compares how often the graph uses each parameter with the number of recorded calls. This detects a weight
    that is also used outside its layer. `rpdp.training.model_probe` checks that records do not influence each other.
    """

    name = "ghost"

    def __init__(self, model: FlatModel, loss: PerRecordLoss) -> None:
        super().__init__(model, loss)
        self._rules: dict[nn.Module, Rule] = {}
        self._forwards: dict[nn.Module, RecordedForward] = {}
        self._index = {id(parameter): index for index, parameter in enumerate(model.parameters)}
        self._ends = list(accumulate(model.sizes))
        inside: set[nn.Module] = set()
        for name, module in model.module.named_modules():
            if module in inside or not _trainable(module):
                continue
            if (forward := _recorded_forward(module)) is not None:
                self._forwards[module] = forward
                inside.update(module.modules())
                continue
            rule = rule_for(module)
            if rule is None:
                kind = type(module).__name__
                raise UnsupportedModelError(f"there is no closed form for {name or 'the model'} ({kind})")
            self._rules[module] = rule

    def _add(self, records: Records, bound: float, total: Tensor, progress: Progress | None) -> Tensor:
        uses = self.uses(records)
        squared_norms = total_norms([use for _, use in uses])
        factors, bad = clip_factors(squared_norms, bound)
        if bad is not None:
            for _, use in uses:
                use.erase(bad)
        views = self.model.views(total)
        uses.sort(key=lambda slot_use: self._index[id(slot_use[0].parameter)])
        # Work from the end, where most models have most of their parameters: noise can be added there early. Popping
        # frees the tensors of a use as soon as it is done.
        while uses:
            slot, use = uses.pop()
            index = self._index[id(slot.parameter)]
            if progress is not None:
                progress(self._ends[index])
            use.add_sum(factors, slot.part(views[index]))
        return squared_norms.sqrt_()

    def uses(self, records: Records, weights: Tensor | None = None) -> list[SlotUse]:
        """Run the model forward and backward once, and return how these records use each parameter.

        Args:
            records: At least one record.
            weights: The weight of each record's loss, 1 by default; the probe sets some to zero.
        """
        with Recorder(self._rules, self._forwards, len(records)) as recorder:
            losses = self.record_losses(records)
        edges = count_edges(losses, self.model.parameters)
        calls = recorder.settle(losses, torch.ones_like(losses) if weights is None else weights)
        by_slot: dict[tuple[int, int, int | None], list[SlotUse]] = defaultdict(list)
        recorded: Counter[int] = Counter()
        for call in calls:
            recorded.update(id(slot.parameter) for slot in call.rule.slots)
            for slot, use in call.uses or ():
                by_slot[slot.key].append((slot, use))
        self._require_all_recorded(edges, recorded)
        return [(group[0][0], _merge([use for _, use in group])) for group in by_slot.values()]

    def require_sound(self, pair: Records) -> None:
        """Compare with plain autograd on two records; raise `UnsupportedModelError` if the results differ.

        With weight zero on the second loss, no use may show any gradient for the second record. A gradient there means
        a layout in which records do not come first, or a hidden coupling of records.
        """
        with records_first(self.model.module):
            losses = self.record_losses(pair)
        plain = torch.autograd.grad(losses.sum(), self.model.parameters, allow_unused=True, materialize_grads=True)
        ours = torch.zeros_like(self.model.values.data)
        views = self.model.views(ours)
        weights = ours.new_ones(2)
        for slot, use in self.uses(pair):
            use.add_sum(weights, slot.part(views[self._index[id(slot.parameter)]]))
        theirs = torch.cat([gradient.reshape(-1) for gradient in plain])
        error = torch.linalg.vector_norm(ours - theirs)
        if bool(error > PROBE_TOLERANCE * torch.linalg.vector_norm(theirs)):
            raise UnsupportedModelError("the closed form does not agree with plain autograd")
        for slot, use in self.uses(pair, torch.tensor([1.0, 0.0]).to(ours)):
            if bool(use.per_record(torch.tensor([1], device=ours.device)).any()):
                name = self.model.names[self._index[id(slot.parameter)]]
                raise UnsupportedModelError(f"the layer of {name} does not keep records apart")

    def _require_all_recorded(self, edges: Counter[int], recorded: Counter[int]) -> None:
        for name, parameter in zip(self.model.names, self.model.parameters, strict=True):
            if edges[id(parameter)] != recorded[id(parameter)]:
                raise UnsupportedModelError(
                    f"parameter {name} is used {edges[id(parameter)]} times in the graph and "
                    f"{recorded[id(parameter)]} times by its layers: it is also used outside of them"
                )


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


def _trainable(module: nn.Module) -> bool:
    """Whether the module itself, not a submodule, has a trainable parameter; attention includes its output layer."""
    recurse = type(module) is nn.MultiheadAttention
    return any(value.requires_grad for value in module.parameters(recurse=recurse))


def _merge(uses: list[Use]) -> Use:
    """All uses of one parameter, or of one block of its rows, as a single use."""
    if len(uses) == 1 and isinstance(uses[0], DirectUse):
        return uses[0]
    if all(isinstance(use, DirectUse) for use in uses):
        return DirectUse(torch.stack([use.gradients for use in uses if isinstance(use, DirectUse)]).sum(0))
    factors = [use for use in uses if isinstance(use, FactorUse)]
    if len(factors) < len(uses):
        raise UnsupportedModelError("a parameter is shared between a matrix and a vector layer")
    return combine(factors)
