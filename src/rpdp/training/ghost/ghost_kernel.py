"""The ghost kernel, the default: one forward pass, one backward pass, no per-record gradients in memory.

Hooks keep inputs and output gradients (`recorder`). Closed forms turn them into per-record norms (`layer_rules`,
`parameter_uses`, `convolution`, `cancellation`), and the clipped sum is formed from the same tensors, without a second
backward pass.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from rpdp.errors import RpdpError
from rpdp.training.ghost.cancellation import total_norms
from rpdp.training.ghost.layer_plan import LayerPlan
from rpdp.training.ghost.parameter_uses import DirectUse, FactorUse, Use, combine
from rpdp.training.ghost.recorder import Recorder, StrayParametersError, UnsupportedModelError, count_edges
from rpdp.training.ghost.recurrent import records_first
from rpdp.training.kernel import Kernel, PerRecordLoss, Progress, clip_factors

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

    from rpdp.training.flat_model import FlatModel
    from rpdp.training.ghost.layer_rules import SlotUse
    from rpdp.training.ghost.odd_layers import OddLayer
    from rpdp.training.records import Records

GRADIENT_BYTES = 64 * 2**20
"""Memory for the per-record gradients of layers without a closed form; larger batches are cut into chunks."""

PROBE_TOLERANCE = 1e-2
"""A larger relative difference to plain autograd means that a closed form is wrong; a missing use is of order one."""


class GhostKernel(Kernel):
    """Clipped sums in closed form. Raises `UnsupportedModelError` for a model that it does not support.

    Every step compares how often the graph uses each parameter with the number of recorded calls. This detects a weight
    that is also used outside its layer. `rpdp.training.model_probe` checks that records do not influence each other.
    """

    name = "ghost"

    def __init__(self, model: FlatModel, loss: PerRecordLoss, strays: Collection[int] = ()) -> None:
        super().__init__(model, loss)
        self._index = {id(parameter): index for index, parameter in enumerate(model.parameters)}
        self._ends = list(accumulate(model.sizes))
        self._plan = LayerPlan(model, strays)
        self._odd = self._plan.odd_parameters
        self._odd_edges: Counter[int] = Counter()
        size = sum(value.numel() for value in self._odd.values())
        if size == len(model) and model.module in self._plan.odd:
            raise UnsupportedModelError("no layer has a closed form")
        self._chunk = max(1, GRADIENT_BYTES // (size * model.values.element_size())) if size else 0

    @classmethod
    def fitted(cls, model: FlatModel, loss: PerRecordLoss, pair: Records) -> GhostKernel:
        """A kernel that agrees with plain autograd on a pair of records.

        Parameters that are used in a way that no closed form fits get their gradients record by record, all others
        keep their closed forms.
        """
        strays: frozenset[int] = frozenset()
        while True:
            try:
                kernel = cls(model, loss, strays)
                kernel.require_sound(pair)
            except StrayParametersError as found:
                if found.parameters <= strays:
                    raise
                strays |= found.parameters
                if len(strays) == len(model.parameters):
                    raise
            else:
                return kernel

    @property
    def odd_layers(self) -> list[OddLayer]:
        """The layers without a closed form: slower than the others."""
        return list(self._plan.odd.values())

    def _add(self, records: Records, bound: float, total: Tensor, progress: Progress | None) -> Tensor:
        if not 0 < self._chunk < len(records):
            return self._add_piece(records, bound, total, progress)
        return torch.cat([self._add_piece(chunk, bound, total, None) for chunk in records.chunks(self._chunk)])

    def _add_piece(self, records: Records, bound: float, total: Tensor, progress: Progress | None) -> Tensor:
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
        with Recorder(self._plan, len(records), records.masks) as recorder:
            losses = self.record_losses(records)
        edges = count_edges(losses, self.model.parameters)
        calls = recorder.settle(losses, torch.ones_like(losses) if weights is None else weights)
        by_slot: dict[tuple[int, int, int | None], list[SlotUse]] = defaultdict(list)
        recorded: Counter[int] = Counter()
        for call in calls:
            recorded.update(id(slot.parameter) for slot in call.rule.slots)
            for slot, use in call.uses or ():
                by_slot[slot.key].append((slot, use))
        for slot, use in recorder.odd_uses:
            by_slot[slot.key].append((slot, use))
        recorded.update(self._odd_edges)
        self._require_all_recorded(edges, recorded)
        return [(group[0][0], _merge(group)) for group in by_slot.values()]

    def require_sound(self, pair: Records) -> None:
        """Compare with plain autograd on two records; raise `UnsupportedModelError` if the results differ.

        With weight zero on the second loss, no use may show any gradient for the second record. A gradient there means
        a layout in which records do not come first, or a hidden coupling of records.
        """
        with records_first(self.model.module):
            losses = self.record_losses(pair)
        try:
            self._learn(pair)
            self._compare(losses, pair)
        except RpdpError:
            raise
        except Exception as error:  # user code may raise anything when a layer's output has another shape
            raise self._unfit(error) from None
        for layer in self._plan.odd.values():
            layer.is_learned = True

    def _unfit(self, error: Exception) -> UnsupportedModelError:
        first = (str(error) or "no message").splitlines()[0]
        shared = [id(slot.parameter) for layer in self._plan.shared for slot in self._plan.rules[layer].slots]
        if not shared:
            return UnsupportedModelError(f"recording fails with {type(error).__name__}: {first}")
        return StrayParametersError(
            "records must come first: a layer's input has no row for each record, and the model does not work with its "
            f"output repeated for each of them ({type(error).__name__}: {first})",
            shared,
        )

    def _learn(self, pair: Records) -> None:
        """Find out which inputs of layers have a row for each record: those that double with a second record."""
        recorders = []
        for records in (pair.rows(0, 1), pair):
            with Recorder(self._plan, len(records), records.masks) as recorder, records_first(self.model.module):
                losses = self.record_losses(records)
            recorders.append(recorder)
        edges = count_edges(losses, self.model.parameters)
        self._odd_edges = Counter({index: edges[index] for index in self._odd})
        one, two = recorders
        for module, layer in self._plan.odd.items():
            layer.learn(one.odd_calls[module], two.odd_calls[module])
        if len(one.calls) != len(two.calls):
            raise UnsupportedModelError("the model calls its layers more often for more records")
        modules = {rule: module for module, rule in self._plan.rules.items()}
        for first, second in zip(one.calls, two.calls, strict=True):
            if first.rule in modules and first.inputs.shape[0] == second.inputs.shape[0]:
                self._plan.shared.add(modules[first.rule])

    def _compare(self, losses: Tensor, pair: Records) -> None:
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
                raise StrayParametersError(f"the layer of {name} does not keep records apart", [id(slot.parameter)])

    def _require_all_recorded(self, edges: Counter[int], recorded: Counter[int]) -> None:
        for name, parameter in zip(self.model.names, self.model.parameters, strict=True):
            if edges[id(parameter)] != recorded[id(parameter)]:
                raise StrayParametersError(
                    f"parameter {name} is used {edges[id(parameter)]} times in the graph and "
                    f"{recorded[id(parameter)]} times by its layers: it is also used outside of them",
                    [id(parameter)],
                )


def _merge(group: list[SlotUse]) -> Use:
    """All uses of one parameter, or of one block of its rows, as a single use."""
    uses = [use for _, use in group]
    if len(uses) == 1 and isinstance(uses[0], DirectUse):
        return uses[0]
    if all(isinstance(use, DirectUse) for use in uses):
        return DirectUse(torch.stack([use.gradients for use in uses if isinstance(use, DirectUse)]).sum(0))
    factors = [use for use in uses if isinstance(use, FactorUse)]
    if len(factors) < len(uses):
        raise StrayParametersError(
            "a parameter is shared between a matrix and a vector layer", [id(slot.parameter) for slot, _ in group]
        )
    return combine(factors)
