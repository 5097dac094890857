"""A model that one record can make fail."""

from __future__ import annotations

import torch
from torch import nn


class Stumbling(nn.Module):
    """A linear model that raises on a number, as an embedding does on a word that does not exist."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs; an error if any record has a 13."""
        if (inputs == 13.0).any():
            raise IndexError("no such word")
        outputs: torch.Tensor = self.linear(inputs)
        return outputs
