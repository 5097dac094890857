"""Recurrent layers over a whole sequence, with the gradient at the gates written out by hand.

A recurrent layer uses its hidden weights once for every time step. Recording each of them as a call of its own would
mean some twenty small operators a step, forward and back. Here a direction of a layer is one function: its input is
what the gates get from the sequence, and its gradient there is all that the closed forms need. It computes no weight
gradient. All tensors are (records, time, features).

The functions treat rows apart: every operator is elementwise or a product with a weight.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class LongShortTerm(torch.autograd.Function):
    """The gates i, f, g, o of an LSTM. Returns all hidden states, the first included, and the last cell state."""

    @staticmethod
    def forward(
        context: Any, gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Run over the sequence; `weight` and `bias` are those of the hidden state."""
        states, cells = _states(gates, hidden), _states(gates, cell)
        size, across = hidden.shape[1], weight.t()
        acted = gates.clone() if bias is None else gates + bias
        for time in range(gates.shape[1]):
            step = acted[:, time].addmm_(states[:, time], across)
            torch.sigmoid_(step[:, : 2 * size])
            torch.tanh_(step[:, 2 * size : 3 * size])
            torch.sigmoid_(step[:, 3 * size :])
            opened, forgot, new, output = step.chunk(4, dim=1)
            torch.addcmul(opened * new, forgot, cells[:, time], out=cells[:, time + 1])
            torch.mul(output, torch.tanh(cells[:, time + 1]), out=states[:, time + 1])
        context.save_for_backward(acted, states, cells, weight)
        return states, cells[:, -1].clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient at the gates and at the first states; none for the weights, see above."""
        acted, _, cells, weight = context.saved_tensors
        shape = (*acted.shape[:2], 4, -1)
        opened, forgot, new, output = acted.view(shape).unbind(2)
        squashed = torch.tanh(cells[:, 1:])
        factors = torch.empty_like(acted).view(shape)
        torch.mul(new, _sigmoid_slope(opened), out=factors[:, :, 0])
        torch.mul(cells[:, :-1], _sigmoid_slope(forgot), out=factors[:, :, 1])
        torch.mul(opened, 1 - new.square(), out=factors[:, :, 2])
        torch.mul(squashed, _sigmoid_slope(output), out=factors[:, :, 3])
        through = output * (1 - squashed.square())
        flowing, remembered = gradients[0][:, -1], gradients[1].clone()
        for time in reversed(range(acted.shape[1])):
            remembered.addcmul_(flowing, through[:, time])
            step = factors[:, time]
            step[:, :3] *= remembered.unsqueeze(1)
            step[:, 3] *= flowing
            remembered *= forgot[:, time]
            flowing = torch.addmm(gradients[0][:, time], step.flatten(1), weight)
        return factors.flatten(2), flowing, remembered, None, None


class GatedUnit(torch.autograd.Function):
    """The gates r, z, n of a GRU. Returns all hidden states, the first included, and r."""

    @staticmethod
    def forward(
        context: Any, gates: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Run over the sequence; `weight` and `bias` are those of the hidden state."""
        states, size, across = _states(gates, hidden), hidden.shape[1], weight.t()
        acted = gates.clone()
        products = gates.new_empty(*gates.shape[:2], size)
        for time in range(gates.shape[1]):
            before = states[:, time]
            product = before @ across if bias is None else torch.addmm(bias, before, across)
            step = acted[:, time]
            step[:, : 2 * size] += product[:, : 2 * size]
            torch.sigmoid_(step[:, : 2 * size])
            reset, update, new = step.chunk(3, dim=1)
            products[:, time] = product[:, 2 * size :]
            torch.tanh_(new.addcmul_(reset, products[:, time]))
            torch.lerp(new, before, update, out=states[:, time + 1])
        context.save_for_backward(acted, states, products, weight)
        reset = acted[:, :, :size].clone()
        context.mark_non_differentiable(reset)
        return states, reset

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient at the gates and at the first state; none for the weights, see above."""
        acted, states, products, weight = context.saved_tensors
        reset, update, new = acted.view(*acted.shape[:2], 3, -1).unbind(2)
        # What the hidden product sees (r, z, and n times r), and last what the gate n itself sees.
        factors = acted.new_empty(*acted.shape[:2], 4, reset.shape[2])
        torch.mul(1 - update, 1 - new.square(), out=factors[:, :, 3])
        torch.mul(factors[:, :, 3], reset, out=factors[:, :, 2])
        torch.mul(states[:, :-1] - new, _sigmoid_slope(update), out=factors[:, :, 1])
        torch.mul(factors[:, :, 3] * products, _sigmoid_slope(reset), out=factors[:, :, 0])
        flowing = gradients[0][:, -1]
        for time in reversed(range(acted.shape[1])):
            step = factors[:, time]
            step *= flowing.unsqueeze(1)
            flowing = torch.addcmul(gradients[0][:, time], flowing, update[:, time])
            flowing.addmm_(step[:, :3].flatten(1), weight)
        return factors[:, :, [0, 1, 3]].flatten(2), flowing, None, None


class Simple(torch.autograd.Function):
    """An RNN with tanh or ReLU. Returns all hidden states, the first included."""

    @staticmethod
    def forward(
        context: Any, gates: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None, is_relu: bool
    ) -> Tensor:
        """Run over the sequence; `weight` and `bias` are those of the hidden state."""
        states, across = _states(gates, hidden), weight.t()
        inputs = gates if bias is None else gates + bias
        for time in range(gates.shape[1]):
            step = torch.addmm(inputs[:, time], states[:, time], across)
            states[:, time + 1] = step.relu_() if is_relu else step.tanh_()
        context.save_for_backward(states, weight)
        context.is_relu = is_relu
        return states

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient at the gates and at the first state; none for the weights, see above."""
        states, weight = context.saved_tensors
        after = states[:, 1:]
        factors = (after > 0).to(after.dtype) if context.is_relu else 1 - after.square()
        flowing = gradients[0][:, -1]
        for time in reversed(range(after.shape[1])):
            step = factors[:, time]
            step *= flowing
            flowing = torch.addmm(gradients[0][:, time], step, weight)
        return factors, flowing, None, None, None


SEQUENCES = (LongShortTerm, GatedUnit, Simple)


def _states(gates: Tensor, first: Tensor) -> Tensor:
    """Room for a state after every step, with the first one before them."""
    states = gates.new_empty(gates.shape[0], gates.shape[1] + 1, first.shape[1])
    states[:, 0] = first
    return states


def _sigmoid_slope(value: Tensor) -> Tensor:
    """The derivative of the sigmoid where it takes this value."""
    return value * (1 - value)
