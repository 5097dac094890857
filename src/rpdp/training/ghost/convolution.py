"""Convolutions in closed form: a convolution is a weight matrix that is used at every patch.

A convolution multiplies W (p × C·k) with the patch at every output position. Two things keep this cheap. First, the
Gram matrix of the patches is a sum of shifted copies of the Gram matrix of the input *pixels*, so no patch is copied
for it (k² times fewer multiplications). Second, kernel taps that see only padding (with 3×3 on a 1×1 map, eight of
nine) have gradient zero and are cut away first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from rpdp.training.ghost.parameter_uses import DirectUse, FactorUse, Norms, Use, gram_norms, squared_rows, zero_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

KEPT_RATIO = 3
"""Per-record gradients of a convolution are kept if they take at most this many times the layer's activations."""

COPY = 16
"""Copying a number into a patch takes about as long as this many multiplications."""

SMALL_MAP = 4
"""Up to this many positions, one product per tap is faster than the library's weight gradient."""

PATCH_BYTES = 2**20
"""Patches are copied for as many records at a time as fit here, which keeps them in cache and bounds the memory."""


Window = tuple[int, slice, slice]
"""A tap along one axis: its number, the outputs at which it sees input, and the pixels it sees there."""


@dataclass(frozen=True)
class Geometry:
    """The shape of a convolution in every spatial dimension, without the taps that see only padding."""

    kernel: tuple[int, ...]
    first_tap: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    size: tuple[int, ...]
    outputs: tuple[int, ...]
    pads: tuple[int, ...]
    windows: tuple[tuple[Window, ...], ...]
    groups: int

    @property
    def complete(self) -> bool:
        """Whether every tap of the kernel sees some input."""
        return self.taps == self.kernel

    @property
    def symmetric(self) -> bool:
        """Whether padding `before` on both sides, as the library does, gives exactly these outputs."""
        return self.outputs == tuple(
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, pad, dilation, kernel, stride in zip(
                self.size, self.before, self.dilation, self.kernel, self.stride, strict=True
            )
        )


def geometry(module: nn.modules.conv._ConvNd, size: tuple[int, ...], outputs: tuple[int, ...]) -> Geometry:
    """The geometry of one call, from its spatial input size and output size."""
    return _geometry(
        tuple(module.kernel_size),
        tuple(module.stride),
        tuple(module.dilation),
        _padding_before(module),
        module.groups,
        size,
        outputs,
    )


@lru_cache(maxsize=1024)
def _geometry(
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    groups: int,
    size: tuple[int, ...],
    outputs: tuple[int, ...],
) -> Geometry:
    first, taps, pads, windows = [], [], [], []
    for axis in range(len(kernel)):
        seen = tuple(_windows(kernel[axis], stride[axis], dilation[axis], before[axis], size[axis], outputs[axis]))
        live = [tap for tap, _, _ in seen] or [0]
        windows.append(seen)
        first.append(live[0])
        taps.append(live[-1] - live[0] + 1)
        left = before[axis] - live[0] * dilation[axis]
        extent = (outputs[axis] - 1) * stride[axis] + (taps[-1] - 1) * dilation[axis] + 1
        pads.append((left, extent - left - size[axis]))
    flat_pads = tuple(value for pair in reversed(pads) for value in pair)
    return Geometry(
        kernel, tuple(first), tuple(taps), stride, dilation, before, size, outputs, flat_pads, tuple(windows), groups
    )


def _windows(kernel: int, stride: int, dilation: int, before: int, size: int, outputs: int) -> Iterator[Window]:
    """The windows of all taps along one axis that see any input."""
    for tap in range(kernel):
        offset = tap * dilation - before
        start = max(0, -(offset // stride))
        stop = min(outputs, (size - 1 - offset) // stride + 1)
        if start < stop:
            yield tap, slice(start, stop), slice(start * stride + offset, (stop - 1) * stride + offset + 1, stride)


def _padding_before(module: nn.modules.conv._ConvNd) -> tuple[int, ...]:
    """The number of zeros in front of each spatial dimension; none if the module pads in its own mode beforehand."""
    if module.padding == "valid" or module.padding_mode != "zeros":
        return (0,) * len(module.kernel_size)
    if module.padding == "same":
        pairs = zip(module.dilation, module.kernel_size, strict=True)
        return tuple(dilation * (size - 1) // 2 for dilation, size in pairs)
    return tuple(int(value) for value in module.padding)


class ConvolutionUse(FactorUse):
    """A convolution weight used at T = prod(outputs) positions per record, with G groups.

    `left` is the output gradient (B, G, T, p), `pixels` the padded input (B, *padded, C), and `right` the patches,
    which are computed only when needed.
    """

    def __init__(self, inputs: Tensor, gradient: Tensor, shape: Geometry) -> None:
        groups = shape.groups
        self.shape = shape
        self.inputs = inputs
        self.gradient = gradient
        batch, channels = gradient.shape[:2]
        self.left = gradient.reshape(batch, groups, channels // groups, -1).transpose(2, 3)

    @property
    def pixels(self) -> Tensor:
        """The padded input with the channel last: (B, *padded, C)."""
        padded = F.pad(self.inputs, self.shape.pads) if any(self.shape.pads) else self.inputs
        return padded.movedim(1, -1).contiguous()

    def patches(self, pixels: Tensor) -> Tensor:
        """Copy the patches of some records: (B, G, T, taps · channels per group)."""
        shape, strides = self.shape, pixels.stride()
        spatial = strides[1:-1]
        steps = [step * by for step, by in zip(spatial, shape.stride, strict=True)]
        inside = [step * by for step, by in zip(spatial, shape.dilation, strict=True)]
        channels = pixels.shape[-1] // shape.groups
        view = pixels.as_strided(
            (len(pixels), shape.groups, *shape.outputs, *shape.taps, channels),
            (strides[0], channels, *steps, *inside, 1),
            pixels.storage_offset(),
        )
        return view.reshape(len(pixels), shape.groups, prod(shape.outputs), -1)

    @property
    def right(self) -> Tensor:  # type: ignore[override]
        """The patches of all records."""
        return self.patches(self.pixels)

    def norms(self) -> Norms:
        """A product for one position; for more, the Gram form, from pixels or patches, whichever is cheaper."""
        if self.left.shape[2] == 1:
            squared = squared_rows(self.left.flatten(0, 1)) * squared_rows(self.right.flatten(0, 1))
            squared = squared.view(len(self.left), -1).sum(1)
            return Norms(squared, torch.zeros_like(squared))
        return self.gram()

    def gram(self) -> Norms:
        """The Gram form, group by group."""
        left = self.left.flatten(0, 1)
        norms = gram_norms(torch.bmm(left, left.transpose(1, 2)), self._patch_gram())
        groups = self.shape.groups
        return Norms(norms.squared.view(-1, groups).sum(1), norms.scale.view(-1, groups).sum(1))

    def _patch_gram(self) -> Tensor:
        """Products of patches (B·G, T, T)."""
        shape = self.shape
        positions, places, taps = prod(shape.outputs), prod(shape.size), prod(shape.taps)
        channels = self.inputs.shape[1] // shape.groups
        shifted = places**2 * channels + positions**2 * taps
        if taps > 1 and shifted < positions * taps * channels * (positions + COPY):
            return self._shifted_gram()
        patches = self.patches(self.pixels).flatten(0, 1)
        return torch.bmm(patches, patches.transpose(1, 2))

    def _shifted_gram(self) -> Tensor:
        """Σ over taps k of (pixel t+k)·(pixel s+k), from the Gram matrix of the pixels, summed axis by axis."""
        shape, size = self.shape, self.shape.size
        rows = self.inputs.reshape(len(self.inputs) * shape.groups, -1, prod(size))
        gram = torch.bmm(rows.transpose(1, 2), rows).view(len(rows), *size, *size)
        axes = len(size)
        for axis, outputs in enumerate(shape.outputs):
            first, second = 1 + axis, 1 + axes + axis
            form = list(gram.shape)
            form[first] = form[second] = outputs
            total = gram.new_zeros(form)
            for _, target, source in shape.windows[axis]:
                part = total[_at(target, first)][_at(target, second)]
                part += gram[_at(source, first)][_at(source, second)]
            gram = total
        return gram.view(len(rows), prod(shape.outputs), -1)

    def left_gram(self, other: FactorUse) -> Tensor:
        """Products of output gradients, the groups side by side: (B, G·T, G·T')."""
        return _blocks(torch.matmul(self.left, other.left.transpose(2, 3)))

    def right_gram(self, other: FactorUse) -> Tensor:
        """Products of patches, the groups side by side."""
        return _blocks(torch.matmul(self.right, other.right.transpose(2, 3)))

    def per_record(self, rows: Tensor) -> Tensor:
        """The direct form for a few records, with zeros for taps without input."""
        right = self.patches(self.pixels[rows])
        return self.place(torch.matmul(self.left[rows].transpose(2, 3), right)).flatten(1)

    def settled(self) -> Use:
        """The cheaper form: the direct one if gradients are not much larger than the activations."""
        weights = self.left.shape[3] * prod(self.shape.taps) * self.inputs.shape[1]
        activations = self.inputs[0].numel() + self.gradient[0].numel()
        if self.left.shape[2] > 1 and weights <= KEPT_RATIO * activations:
            return self.direct()
        return self

    def direct(self) -> DirectUse:
        """The direct form for all records, with the patches of a few records at a time."""
        pixels, left = self.pixels, self.left
        batch, groups, positions, rows = left.shape
        columns = prod(self.shape.taps) * pixels.shape[-1] // groups
        gradients = left.new_empty(batch, groups, rows, columns)
        size = max(1, PATCH_BYTES // (groups * positions * columns * left.element_size()))
        for start in range(0, batch, size):
            part = slice(start, start + size)
            patches = self.patches(pixels[part]).flatten(0, 1)
            transposed = left[part].flatten(0, 1).transpose(1, 2)
            torch.bmm(transposed, patches, out=gradients[part].flatten(0, 1))
        return KeptConvolutionUse(gradients, self)

    def place(self, gradients: Tensor) -> Tensor:
        """From (…, G, p, taps · c) to the shape of the weight (…, G·p, c, *kernel)."""
        shape = self.shape
        lead = gradients.shape[:-3]
        split = gradients.reshape(*lead, shape.groups * gradients.shape[-2], *shape.taps, -1).movedim(-1, len(lead) + 1)
        if shape.complete:
            return split
        full = split.new_zeros(*split.shape[: len(lead) + 2], *shape.kernel)
        self._live(full).copy_(split)
        return full

    def _live(self, weight: Tensor) -> Tensor:
        """The part of a weight whose taps see input."""
        axes = len(self.shape.taps)
        for axis, (start, length) in enumerate(zip(self.shape.first_tap, self.shape.taps, strict=True)):
            weight = weight.narrow(weight.dim() - axes + axis, start, length)
        return weight

    def add_sum(self, factors: Tensor, out: Tensor) -> None:
        """Use the library's weight gradient for large maps, and one product per tap for small ones."""
        if self.shape.complete and self.left.shape[2] > SMALL_MAP:
            self._add_by_library(factors, out)
        else:
            self._add_by_tap(factors, out)

    def _add_by_tap(self, factors: Tensor, out: Tensor) -> None:
        """Multiply only at positions where a tap sees input: 16 of 36 for 3×3 taps on a 2×2 map."""
        shape = self.shape
        axes = len(shape.kernel)
        weighted = _positions_first(self.gradient * factors.view(-1, 1, *[1] * axes), shape.groups)
        pixels = _positions_first(self.inputs, shape.groups)
        for windows in product(*shape.windows):
            taps, targets, sources = zip(*windows, strict=True)
            left = weighted[:, *targets].flatten(1, -2)
            right = pixels[:, *sources].flatten(1, -2)
            out[:, :, *taps].add_(torch.bmm(left.transpose(1, 2), right).flatten(0, 1))

    def _add_by_library(self, factors: Tensor, out: Tensor) -> None:
        axes = len(self.shape.kernel)
        weighted = self.gradient * factors.view(-1, 1, *[1] * axes)
        native = self.shape.symmetric
        _, gradient, _ = torch.ops.aten.convolution_backward(
            weighted,
            self.inputs if native else F.pad(self.inputs, self.shape.pads),
            out,
            None,
            self.shape.stride,
            self.shape.before if native else [0] * axes,
            self.shape.dilation,
            False,
            [0] * axes,
            self.shape.groups,
            [False, True, False],
        )
        out.add_(gradient)

    def erase(self, rows: Tensor) -> None:
        """Zero both factors."""
        self.left = zero_rows(self.left, rows)
        self.gradient = zero_rows(self.gradient, rows)
        self.inputs = zero_rows(self.inputs, rows)


class KeptConvolutionUse(DirectUse):
    """Kept per-record gradients of a convolution, in the order of the patches (group, output, taps, channel)."""

    def __init__(self, gradients: Tensor, source: ConvolutionUse) -> None:
        super().__init__(gradients.flatten(1))
        self._form = gradients.shape[1:]
        self._source = source

    def per_record(self, rows: Tensor) -> Tensor:
        """The gradients of a few records, in the order of the weight."""
        return self._source.place(self.gradients[rows].view(-1, *self._form)).flatten(1)

    def add_sum(self, factors: Tensor, out: Tensor) -> None:
        """One matrix-vector product, rearranged to the order of the weight."""
        out.add_(self._source.place((factors @ self.gradients).view(self._form)))


def _positions_first(values: Tensor, groups: int) -> Tensor:
    """(B, G·c, *spatial) → (G, *spatial, B, c), so that a subset of positions is a slice."""
    split = values.reshape(len(values), groups, -1, *values.shape[2:])
    return split.permute(1, *range(3, split.dim()), 0, 2).contiguous()


def _at(where: slice, dimension: int) -> tuple[slice, ...]:
    """The index that selects along one dimension."""
    return (*[slice(None)] * dimension, where)


def _blocks(grams: Tensor) -> Tensor:
    """(B, G, T, T') → (B, G·T, T'): only sums over group, row and column are needed, so groups may be stacked."""
    return grams.flatten(1, 2)
