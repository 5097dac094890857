"""The paper's network, started from made-up pen strokes instead of at random: public, and the same for every seed.

With 26,010 parameters and a thousand records, noise and signal are about equal, and where training starts decides how
far it gets. Layer by layer, the weights of the convolutions and of the first linear layer become the principal
directions of what reaches that layer when strokes are drawn (`strokes`, no real image involved), each unit scaled to
the same spread; the last layer starts at zero. What reaches a layer is first centred by its mean over the strokes, a
constant: the number of parameters stays the paper's, and all of them are trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from rpdp.tasks.models.convolutional import paper_cnn
from rpdp_lab.features.strokes import draw_strokes

if TYPE_CHECKING:
    from torch import Tensor

IMAGES = 1500
SPREAD = 0.5
"""The standard deviation of every unit before its tanh, over the strokes."""

_SEED = 7
_INK = (0.1, 0.3)
"""Mean and deviation of pixels in [0, 1]: round numbers near those that are known of MNIST, not computed."""


class Centred(nn.Module):
    """Subtracts a constant and multiplies by another; neither is trained."""

    centre: Tensor

    def __init__(self, centre: Tensor, scale: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.scale = scale

    def forward(self, values: Tensor) -> Tensor:
        """Centred and scaled."""
        shifted: Tensor = (values - self.centre) * self.scale
        return shifted


def tanh_cnn(seed: int) -> nn.Module:
    """The paper's network with tanh, which suits clipping better than ReLU, and its usual random start."""
    return paper_cnn(activation="tanh", seed=seed)


def scaled_cnn(*, seed: int) -> nn.Sequential:
    """The paper's network with tanh and its usual random start, for images in [−1, 1]."""
    return nn.Sequential(_scaling(), *paper_cnn(activation="tanh", seed=seed))


def _scaling() -> Centred:
    mean, deviation = _INK
    return Centred(torch.tensor(2 * mean - 1), 0.5 / deviation)


def stroke_started_cnn() -> nn.Sequential:
    """The paper's network with tanh, for images in [−1, 1]; takes some seconds."""
    layers = list(paper_cnn(activation="tanh"))
    last = layers[-1]
    found: list[nn.Module] = [_scaling()]
    with torch.no_grad():
        values: Tensor = found[0](torch.from_numpy(draw_strokes(IMAGES, _SEED)))
        for layer in layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                axes = (0, 2, 3) if isinstance(layer, nn.Conv2d) else (0,)
                centre = Centred(values.mean(axes, keepdim=True))
                found.append(centre)
                values = centre(values)
                if layer is last:
                    nn.init.zeros_(layer.weight)
                    _set_bias(layer, torch.zeros(layer.weight.shape[0]))
                else:
                    _start(layer, values, axes)
            found.append(layer)
            values = layer(values)
    return nn.Sequential(*found)


def _start(layer: nn.Conv2d | nn.Linear, values: Tensor, axes: tuple[int, ...]) -> None:
    """Principal directions as weights; over the strokes every unit has the mean 0 and the same spread."""
    layer.weight.copy_(_directions(_seen_by(layer, values), layer.weight.shape[0]).reshape(layer.weight.shape))
    _set_bias(layer, torch.zeros(layer.weight.shape[0]))
    spread = layer(values).std(axes)
    layer.weight.mul_((SPREAD / spread).reshape(-1, *[1] * (layer.weight.dim() - 1)))
    _set_bias(layer, -layer(values).mean(axes))


def _set_bias(layer: nn.Conv2d | nn.Linear, values: Tensor) -> None:
    assert layer.bias is not None
    layer.bias.copy_(values)


def _seen_by(layer: nn.Conv2d | nn.Linear, values: Tensor) -> Tensor:
    """What each unit of a layer sees, a row each: whole inputs, or patches that are not blank."""
    if isinstance(layer, nn.Linear):
        return values
    patches = functional.unfold(values, layer.kernel_size, padding=layer.padding, stride=layer.stride)  # type: ignore[arg-type]
    rows = patches.transpose(1, 2).flatten(0, 1)
    return rows[rows.var(1) > 1e-6]


def _directions(rows: Tensor, count: int) -> Tensor:
    """The first principal directions, with fixed signs."""
    centred = (rows - rows.mean(0)).double()
    _, vectors = torch.linalg.eigh(centred.T @ centred / len(rows))
    chosen = vectors[:, -count:].T
    signs = chosen.gather(1, chosen.abs().argmax(1, keepdim=True)).sign()
    directions: Tensor = (chosen * signs).float()
    return directions
