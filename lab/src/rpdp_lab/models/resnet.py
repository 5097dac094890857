"""ResNet-18 with group instead of batch normalisation (He et al. 2016, arXiv 1512.03385; Wu & He 2018).

Batch statistics couple the records of a batch, so a bound on one record's gradient would say nothing; group
normalisation works within a record.
"""

from __future__ import annotations

import torch
from torch import nn

from rpdp.errors import InputError
from rpdp.tasks.models.initialisation import initialised_from

GROUPS = 32  # Wu & He 2018, the default; divides every width of ResNet-18
_WIDTHS = (64, 128, 256, 512)


class _Block(nn.Module):
    """Two 3×3 convolutions and a shortcut; the first may halve height and width."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(GROUPS, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(GROUPS, outputs)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.GroupNorm(GROUPS, outputs)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.relu(self.first_norm(self.first(images)))
        hidden = self.second_norm(self.second(hidden))
        result: torch.Tensor = self.relu(hidden + self.shortcut(images))
        return result


def resnet18_groupnorm(classes: int = 10, *, seed: int = 0) -> nn.Sequential:
    """ResNet-18 for colour images; 11,181,642 parameters for ten classes, the number in the paper's table.

    That number belongs to the variant with the stem made for ImageNet (7×7 convolution with stride 2, then
    pooling); the usual CIFAR variant with a 3×3 stem has 11,173,962. Images of 32×32 therefore arrive at the
    last blocks as a single position.
    """
    if classes < 2:
        raise InputError(f"classes={classes} must be at least 2")
    with initialised_from(seed):
        stem = [
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.GroupNorm(GROUPS, 64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        top = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_WIDTHS[-1], classes)]
        model = nn.Sequential(*stem, *_blocks(), *top)
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _blocks() -> list[_Block]:
    blocks = []
    inputs = _WIDTHS[0]
    for width in _WIDTHS:
        blocks += [_Block(inputs, width, stride=1 if width == inputs else 2), _Block(width, width, stride=1)]
        inputs = width
    return blocks
