"""SGD, momentum and Adam over one flat tensor: to the bit what `torch.optim` computes on one tensor.

The first optimiser of `torch.optim` in a process loads torch's compiler: a second, in every training command. An
optimiser of torch does instead, wherever a caller brings one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from torch import Tensor

ADAM_DECAYS = (0.9, 0.999)
"""How much Adam keeps of its moments in a step: torch's defaults."""
ADAM_EPSILON = 1e-8


class Optimiser(Protocol):
    """What a step needs of an optimiser; those of `torch.optim` have it."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The tensors that it updates, under "params", in one or more groups."""
        ...

    def step(self) -> Any:
        """Update the tensors by their gradients."""
        ...


class Sgd:
    """Stochastic gradient descent, with momentum if asked for."""

    def __init__(self, values: Tensor, rate: float, momentum: float = 0.0) -> None:
        self.values, self.rate, self.momentum = values, rate, momentum
        self._velocity: Tensor | None = None

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The one tensor and the settings."""
        return [{"params": [self.values], "lr": self.rate, "momentum": self.momentum}]

    @torch.no_grad()
    def step(self) -> None:
        """Update the tensor by its gradient."""
        change = self.values.grad
        assert change is not None
        if self.momentum:
            if self._velocity is None:
                self._velocity = change.clone()
            else:
                self._velocity.mul_(self.momentum).add_(change)
            change = self._velocity
        self.values.add_(change, alpha=-self.rate)


class Adam:
    """Adam, with torch's defaults for everything but the rate."""

    def __init__(self, values: Tensor, rate: float) -> None:
        self.values, self.rate = values, rate
        self._first, self._second = torch.zeros_like(values), torch.zeros_like(values)
        self._steps = 0

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The one tensor and the settings."""
        return [{"params": [self.values], "lr": self.rate}]

    @torch.no_grad()
    def step(self) -> None:
        """Update the tensor by its gradient."""
        gradient = self.values.grad
        assert gradient is not None
        self._steps += 1
        keep_first, keep_second = ADAM_DECAYS
        self._first.lerp_(gradient, 1 - keep_first)
        self._second.mul_(keep_second).addcmul_(gradient, gradient, value=1 - keep_second)
        correction = math.sqrt(1 - keep_second**self._steps)
        scale = (self._second.sqrt() / correction).add_(ADAM_EPSILON)
        self.values.addcdiv_(self._first, scale, value=-(self.rate / (1 - keep_first**self._steps)))
