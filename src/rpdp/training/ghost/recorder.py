"""Records what the closed forms need: the input and the output gradient of every layer.

A forward hook keeps the detached input (without a copy), its version counter (to detect a later in-place change), and
a `GradientEdge` of the output. The edge stays valid when the output itself is overwritten, for example by an in-place
ReLU. One call of `torch.autograd.grad` on the edges then gives all output gradients without computing any weight
gradient.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, get_gradient_edge

from rpdp.display import counts_repr
from rpdp.errors import InputError, RpdpError
from rpdp.training.ghost.recurrent_sequences import SEQUENCES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from torch.autograd.graph import Node

    from rpdp.training.ghost.layer_plan import LayerPlan
    from rpdp.training.ghost.layer_rules import Rule, SlotUse
    from rpdp.training.ghost.odd_layers import OddCall, OddLayer
    from rpdp.training.record_masks import RecordMasks


class UnsupportedModelError(RpdpError):
    """The ghost kernel does not support this model; the message says why. Another kernel does."""


class StrayParametersError(UnsupportedModelError):
    """No closed form fits how these parameters are used, though their layers have one.

    Attributes:
        parameters: Their ids.
    """

    def __init__(self, message: str, parameters: Iterable[int]) -> None:
        super().__init__(message)
        self.parameters = frozenset(parameters)


@dataclass(slots=True)
class Call:
    """One call of a layer: its input, where its output gradient arrives, and the uses that follow from both.

    `edge` is None for a call that is settled as soon as its gradient passes by; only its `uses` are kept.
    """

    rule: Rule
    inputs: Tensor
    version: int
    edge: GradientEdge | None
    extra: tuple[Tensor, Tensor] | None
    uses: list[SlotUse] | None = None

    __repr__ = counts_repr

    def settle(self, gradient: Tensor, count: int) -> None:
        """Turn input and output gradient into uses, and free both."""
        if self.inputs._version != self.version:
            raise InputError(
                "a layer's input was changed in place after the layer used it, so gradients would be wrong; use the "
                "out-of-place operation"
            )
        try:
            self.uses = list(self.rule.uses(self, gradient, count))
        except UnsupportedModelError as error:
            raise StrayParametersError(str(error), [id(slot.parameter) for slot in self.rule.slots]) from None
        self.inputs, self.extra = self.inputs.new_empty(0), None


class RecordedForward(Protocol):
    """A forward pass that records its own uses of weights, in place of a module's."""

    def __call__(self, recorder: Recorder, /, *arguments: Any, **named: Any) -> Any:
        """Like the module's own `forward`."""


class Recorder:
    """A context manager that records the calls of trainable layers and leaves the model as it was."""

    def __init__(self, plan: LayerPlan, count: int, masks: RecordMasks | None = None) -> None:
        self._plan = plan
        self._count = count
        self._masks = masks
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self.calls: list[Call] = []
        self.odd_calls: dict[nn.Module, list[OddCall]] = {module: [] for module in plan.odd}
        self.odd_uses: list[SlotUse] = []

    def __enter__(self) -> Self:
        for module, rule in self._plan.rules.items():
            self._handles.append(module.register_forward_hook(partial(self._hook, rule), with_kwargs=True))
        for module, layer in self._plan.odd.items():
            before, after = partial(self._entered, layer), self._left
            self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(after))
        for module, forward in self._plan.forwards.items():
            module.__dict__["forward"] = partial(forward, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        for module in self._plan.forwards:
            module.__dict__.pop("forward", None)

    def _hook(
        self, rule: Rule, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], output: Tensor
    ) -> Tensor | None:
        inputs, *others = (*arguments, *named.values())
        if any(value is not None for value in others):
            raise UnsupportedModelError(f"{type(module).__name__} is called with several arguments")
        if module not in self._plan.shared:
            self.record(rule, inputs, output)
            return None
        inputs, repeated = (_for_each(value, inputs.shape[0] == 1, self._count) for value in (inputs, output))
        self.record(rule, inputs, repeated)
        return repeated

    def _entered(self, layer: OddLayer, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls = self.odd_calls[module]
        calls.append(layer.call(len(calls), arguments, named, self._masks))

    def _left(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        self.odd_calls[module][-1].returned(output)

    def record(self, rule: Rule, inputs: Tensor, output: Tensor) -> Call | None:
        """Record one call. A call without gradient (inside `torch.no_grad`) is ignored."""
        if not output.requires_grad:
            return None
        detached = inputs.detach()
        # The gradient of an eager layer passes by on its way to the layers below it, so a hook can catch it. At the
        # lowest layers nothing passes: their gradient must be requested through an edge.
        passing = rule.eager and inputs.requires_grad
        edge = None if passing else get_gradient_edge(output)
        call = Call(rule, detached, detached._version, edge, rule.remember(output))
        if passing:
            count = self._count  # the hook must not refer to the recorder, or the graph would keep itself alive
            hook: Any = output.register_hook
            hook(lambda gradient: call.settle(gradient, count))
        self.calls.append(call)
        return call

    def settle(self, losses: Tensor, weights: Tensor) -> list[Call]:
        """Run the backward pass from Σ weights · losses; return the calls that the gradient reached, all settled."""
        waiting = [call for call in self.calls if call.edge is not None]
        edges = [call.edge for call in waiting if call.edge is not None]
        odd = [call for calls in self.odd_calls.values() for call in calls]
        edges += [edge for call in odd for _, edge in call.edges]
        gradients = list(torch.autograd.grad(losses, edges, weights, allow_unused=True)) if edges else []
        for returned in reversed(odd):
            first = len(gradients) - len(returned.edges)
            found, gradients = gradients[first:], gradients[:first]
            self.odd_uses += returned.layer.uses(returned, found, self._count, self._masks)
        while waiting:  # pop both, so that each gradient is freed once it is used
            call, gradient = waiting.pop(), gradients.pop()
            if gradient is not None:
                call.settle(gradient, self._count)
        return [call for call in self.calls if call.uses is not None]


def _for_each(value: Tensor, has_row: bool, count: int) -> Tensor:
    """The value repeated for each record, without a copy."""
    return (value if has_row else value.unsqueeze(0)).expand(count, *value.shape[1 if has_row else 0 :])


def count_edges(losses: Tensor, parameters: Iterable[nn.Parameter]) -> Counter[int]:
    """How often the graph of the losses uses each parameter (by `id`); refuses custom autograd functions.

    More uses than recorded calls mean that a weight is also used outside its layer, for example in a functional call.
    """
    wanted = {id(parameter) for parameter in parameters}
    counts: Counter[int] = Counter()
    root = losses.grad_fn
    seen: set[Node | None] = {None, root}
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        forward: Any = getattr(node, "_forward_cls", None)
        if isinstance(node, BackwardCFunction) and forward not in SEQUENCES:
            raise UnsupportedModelError(
                f"{type(node).__name__} is a custom autograd function, whose backward could mix records"
            )
        for following, _ in node.next_functions:
            variable = getattr(following, "variable", None)
            if variable is not None:
                counts[id(variable)] += id(variable) in wanted
            elif following not in seen:
                seen.add(following)
                stack.append(following)
    return counts
