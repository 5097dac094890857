"""Recurrent layers with recorded gates: RNN, LSTM and GRU, and their cells.

torch passes the weights of these layers to one fused function, so hooks see none of their uses. While recording, their
`forward` is replaced by one that computes the same result and records where the gradient of the gates arrives. From
there all uses follow: that of the input weights with the sequence, that of the hidden weights with the states.

Any number of layers, both directions, `batch_first` or not, dropout between layers, given first states. Not supported:
`proj_size`, packed sequences (their rows belong to no record; the time that they take depends on values, too).
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.training.ghost.layer_rules import LinearRule, Rule, Slot, by_position
from rpdp.training.ghost.parameter_uses import DirectUse, FactorUse
from rpdp.training.ghost.recorder import UnsupportedModelError
from rpdp.training.ghost.recurrent_sequences import GatedUnit, LongShortTerm, Simple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rpdp.training.ghost.layer_rules import SlotUse
    from rpdp.training.ghost.recorder import Call, Recorder

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class GatesRule(Rule):
    """The gates of one direction of a layer: x W_ihᵀ + b_ih + h W_hhᵀ + b_hh, at every time step.

    `call.extra` has the hidden states before each step and, for a GRU, its reset gate: the last third of the hidden
    product is multiplied by it.
    """

    def uses(self, call: Call, gradient: Tensor, count: int) -> Iterator[SlotUse]:
        """Positions are time steps."""
        assert call.extra is not None
        states, reset = call.extra
        left = by_position(gradient, count)
        hidden = left
        if reset.numel():
            size = reset.shape[-1]
            hidden = torch.cat([left[..., :-size], left[..., -size:] * by_position(reset, count)], dim=-1)
        if slot := self._of("weight_ih"):
            yield slot, FactorUse(left, by_position(call.inputs, count))
        if slot := self._of("weight_hh"):
            yield slot, FactorUse(hidden, by_position(states, count))
        if slot := self._of("bias_ih"):
            yield slot, DirectUse(left.sum(1))
        if slot := self._of("bias_hh"):
            yield slot, DirectUse(hidden.sum(1))


class RecordedRecurrent:
    """The forward pass of one `nn.RNN`, `nn.LSTM` or `nn.GRU`, with recorded gates."""

    def __init__(self, module: nn.RNNBase) -> None:
        self._module = module
        directions = ("", "_reverse") if module.bidirectional else ("",)
        self._parts = [
            [_Direction(module, f"_l{layer}{suffix}") for suffix in directions] for layer in range(module.num_layers)
        ]

    @staticmethod
    def supports(module: nn.Module) -> bool:
        """Whether this forward pass supports a module and its options."""
        return type(module) in (nn.RNN, nn.LSTM, nn.GRU) and not cast("nn.RNNBase", module).proj_size

    def __call__(
        self, recorder: Recorder, inputs: Tensor, hx: Any = None
    ) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
        """Like the module's own `forward`."""
        module = self._module
        if not isinstance(inputs, Tensor) or inputs.dim() != 3:
            raise UnsupportedModelError(
                f"{type(module).__name__} gets no batch of sequences of one length; pad sequences instead of packing "
                "them, and give records in the first dimension"
            )
        values = inputs if module.batch_first else inputs.transpose(0, 1)
        first = self._first(values, hx)
        last: list[list[Tensor]] = []
        for layer, directions in enumerate(self._parts):
            if layer and module.dropout and module.training:
                values = F.dropout(values, module.dropout)
            outputs = []
            for direction in directions:
                output, ends = direction.run(recorder, values, [state[len(last)] for state in first])
                outputs.append(output)
                last.append(ends)
            values = torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]
        ended = [torch.stack(states) for states in zip(*last, strict=True)]
        output = values if module.batch_first else values.transpose(0, 1)
        return output, (ended[0], ended[1]) if len(ended) > 1 else ended[0]

    def _first(self, values: Tensor, given: Any) -> tuple[Tensor, ...]:
        """The first states: hidden and, for an LSTM, cell; (layers · directions, records, size)."""
        if given is not None:
            return given if isinstance(given, tuple) else (given,)
        rows = sum(len(directions) for directions in self._parts)
        zeros = values.new_zeros(rows, values.shape[0], self._module.hidden_size)
        return (zeros, zeros) if type(self._module) is nn.LSTM else (zeros,)


class _Direction:
    """One direction of one layer."""

    def __init__(self, module: nn.RNNBase, suffix: str) -> None:
        self._kind = type(module)
        self._is_relu = module.mode == "RNN_RELU"
        self._reverse = suffix.endswith("_reverse")
        found = [getattr(module, name + suffix, None) for name in _NAMES]
        self._weight_ih, self._weight_hh, self._bias_ih, self._bias_hh = found
        slots = zip(_NAMES, found, strict=True)
        self._rule = GatesRule(**{name: None if value is None else Slot(value) for name, value in slots})

    def run(self, recorder: Recorder, values: Tensor, first: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The outputs of all time steps, and the last states."""
        gates = F.linear(values, cast("Tensor", self._weight_ih), self._bias_ih)
        forward = gates.flip(1) if self._reverse else gates
        states, ends, reset = self._sequence(forward, first)
        if (call := recorder.record(self._rule, values, gates)) is not None:
            before = states.detach()[:, :-1]
            call.extra = (before.flip(1), reset.flip(1)) if self._reverse else (before, reset)
        output = states[:, 1:]
        return (output.flip(1) if self._reverse else output), [states[:, -1], *ends]

    def _sequence(self, gates: Tensor, first: list[Tensor]) -> tuple[Tensor, list[Tensor], Tensor]:
        """All hidden states, the last cell state of an LSTM, and the reset gate of a GRU (else nothing)."""
        weight, bias, none = cast("Tensor", self._weight_hh), self._bias_hh, gates.new_empty(*gates.shape[:2], 0)
        if self._kind is nn.LSTM:
            states, cell = _applied(LongShortTerm, gates, first[0], first[1], weight, bias)
            return states, [cell], none
        if self._kind is nn.GRU:
            states, reset = _applied(GatedUnit, gates, first[0], weight, bias)
            return states, [], reset
        return _applied(Simple, gates, first[0], weight, bias, self._is_relu), [], none


class RecordedCell:
    """The forward pass of one `nn.RNNCell`, `nn.LSTMCell` or `nn.GRUCell`, with both products recorded."""

    def __init__(self, module: nn.RNNCellBase) -> None:
        self._module = module
        slots = {name: None if (value := getattr(module, name)) is None else Slot(value) for name in _NAMES}
        self._inputs = LinearRule(weight=slots["weight_ih"], bias=slots["bias_ih"])
        self._hidden = LinearRule(weight=slots["weight_hh"], bias=slots["bias_hh"])

    @staticmethod
    def supports(module: nn.Module) -> bool:
        """Whether this forward pass supports a module."""
        return type(module) in (nn.RNNCell, nn.LSTMCell, nn.GRUCell)

    def __call__(self, recorder: Recorder, inputs: Tensor, hx: Any = None) -> Any:
        """Like the module's own `forward`, for a batch."""
        module = self._module
        if inputs.dim() != 2:
            raise UnsupportedModelError(f"{type(module).__name__} gets no batch of rows")
        if hx is None:
            zeros = inputs.new_zeros(inputs.shape[0], module.hidden_size)
            hx = (zeros, zeros) if type(module) is nn.LSTMCell else zeros
        hidden = hx[0] if isinstance(hx, tuple) else hx
        ours = F.linear(inputs, module.weight_ih, module.bias_ih)
        recorder.record(self._inputs, inputs, ours)
        theirs = F.linear(hidden, module.weight_hh, module.bias_hh)
        recorder.record(self._hidden, hidden, theirs)
        if type(module) is nn.LSTMCell:
            opened, forgot, new, output = (ours + theirs).chunk(4, dim=1)
            cell = torch.sigmoid(forgot) * hx[1] + torch.sigmoid(opened) * torch.tanh(new)
            return torch.sigmoid(output) * torch.tanh(cell), cell
        if type(module) is nn.GRUCell:
            parts = [*ours.chunk(3, dim=1), *theirs.chunk(3, dim=1)]
            reset, update = torch.sigmoid(parts[0] + parts[3]), torch.sigmoid(parts[1] + parts[4])
            return torch.lerp(torch.tanh(parts[2] + reset * parts[5]), hidden, update)
        together = ours + theirs
        return torch.relu(together) if cast("nn.RNNCell", module).nonlinearity == "relu" else torch.tanh(together)


@contextmanager
def records_first(module: nn.Module) -> Iterator[None]:
    """A context in which dropout between recurrent layers sees the records in the first dimension.

    Inside torch it sees time first, and then nobody can say whose mask a row is.
    """
    replaced = [layer for layer in module.modules() if RecordedRecurrent.supports(layer) and _drops(layer)]
    for layer in replaced:
        layer.__dict__["forward"] = partial(_layer_by_layer, cast("nn.RNNBase", layer))
    try:
        yield
    finally:
        for layer in replaced:
            layer.__dict__.pop("forward", None)


def _drops(layer: nn.Module) -> bool:
    return layer.training and bool(cast("nn.RNNBase", layer).dropout)


def _layer_by_layer(module: nn.RNNBase, inputs: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
    """Like the module's own `forward`, by torch's own functions for one layer each, with dropout in between."""
    function: Any = getattr(torch, module.mode.lower())
    directions = 2 if module.bidirectional else 1
    values = inputs if module.batch_first else inputs.transpose(0, 1)
    if hx is None:
        zeros = values.new_zeros(module.num_layers * directions, values.shape[0], module.hidden_size)
        hx = (zeros, zeros) if module.mode == "LSTM" else zeros
    last = []
    for layer in range(module.num_layers):
        if layer:
            values = F.dropout(values, module.dropout)
        rows = slice(layer * directions, (layer + 1) * directions)
        first = tuple(state[rows] for state in hx) if isinstance(hx, tuple) else hx[rows]
        suffixes = (f"_l{layer}", f"_l{layer}_reverse")[:directions]
        weights = [getattr(module, name + suffix) for suffix in suffixes for name in _NAMES[: 4 if module.bias else 2]]
        values, *ends = function(
            values, first, weights, module.bias, 1, 0.0, module.training, module.bidirectional, True
        )
        last.append(ends)
    ended = [torch.cat(states) for states in zip(*last, strict=True)]
    output = values if module.batch_first else values.transpose(0, 1)
    return output, tuple(ended) if len(ended) > 1 else ended[0]


def _applied(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    apply: Callable[..., Any] = function.apply
    return apply(*arguments)
