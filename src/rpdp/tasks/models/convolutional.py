"""The two-layer convolutional network of the paper's MNIST experiments."""

from __future__ import annotations

from typing import Literal

from torch import nn

from rpdp.tasks.models.initialisation import initialised_from


def paper_cnn(*, activation: Literal["relu", "tanh"] = "relu", seed: int = 0) -> nn.Sequential:
    """A network from images (records, 1, 28, 28) to ten logits, with 26,010 parameters as in the paper's table.

    It is the network of the MNIST tutorials of TensorFlow Privacy and Opacus: two convolutions (16 filters 8×8 and
    32 filters 4×4, both with stride 2), each followed by 2×2 pooling with stride 1, and two linear layers.
    """
    nonlinearity = nn.Tanh if activation == "tanh" else nn.ReLU
    with initialised_from(seed):
        return nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=8, stride=2, padding=3),
            nonlinearity(),
            nn.MaxPool2d(2, stride=1),
            nn.Conv2d(16, 32, kernel_size=4, stride=2),
            nonlinearity(),
            nn.MaxPool2d(2, stride=1),
            nn.Flatten(),
            nn.Linear(512, 32),
            nonlinearity(),
            nn.Linear(32, 10),
        )
