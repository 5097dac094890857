"""Fixed features that need no training data: a scattering transform of grey images (Bruna & Mallat 2013).

Tramèr & Boneh (ICLR 2021, arXiv 2011.11660) showed that for private training a linear model on such features beats a
network that has to learn its own: the noise falls on fewer directions that matter. Everything here is a fixed function
of one image, chosen without looking at any: two orders of Morlet wavelets on two scales, a modulus after each, and
local averages. Features of a record depend on that record alone, so the promise is that of the training on top.

Each group of channels is centred and scaled within the record (their "group normalisation"), then the record has
length 1: a gradient of a linear model is then at most √2 · √(1 + 1) long, and hardly any is clipped.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

SIDE = 32
"""Images of 28×28 in a frame of background."""

SCALES = 2
ORIENTATIONS = 8
CHANNELS = 1 + SCALES * ORIENTATIONS + ORIENTATIONS**2
GRID = 7
FEATURES = CHANNELS * GRID**2
"""81 channels on a grid of 7×7."""

_STRIDE = 2**SCALES
_BATCH = 200
_BANDWIDTH, _FREQUENCY, _SLANT = 0.8, 0.75 * math.pi, 4.0 / ORIENTATIONS  # as in Kymatio


def scatter(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Features (records, 3969) of length 1 from images (records, 1, 28, 28) with background −1 and ink up to 1."""
    out = np.empty((len(images), FEATURES), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            batch = torch.from_numpy(np.ascontiguousarray(images[start : start + _BATCH, 0])).add(1.0).mul(0.5)
            out[start : start + _BATCH] = _normalised(_coefficients(batch)).numpy()
    return out


def _coefficients(images: Tensor) -> Tensor:
    """(records, channels, 7, 7): averages of the image, of |image ★ ψ| and of ||image ★ ψ| ★ ψ'|."""
    margin = (SIDE - images.shape[-1]) // 2
    spectrum = torch.fft.fft2(torch.nn.functional.pad(images, (margin,) * 4))[:, None]
    wavelets, average = _filters()
    parts = [_averaged(spectrum, average)]
    coarse = _spectrum_of_modulus(spectrum * wavelets[1])
    fine = _spectrum_of_modulus(spectrum * wavelets[0])
    parts += [_averaged(fine, average), _averaged(coarse, average)]
    for orientation in range(ORIENTATIONS):  # a scale is followed by a coarser one only: finer ones are nearly empty
        second = _spectrum_of_modulus(fine[:, orientation : orientation + 1] * wavelets[1])
        parts.append(_averaged(second, average))
    return torch.cat(parts, dim=1)


def _spectrum_of_modulus(spectrum: Tensor) -> Tensor:
    found: Tensor = torch.fft.fft2(torch.fft.ifft2(spectrum).abs())
    return found


def _averaged(spectrum: Tensor, average: Tensor) -> Tensor:
    """A local average on every fourth pixel: low-pass, then the spectrum folded to the smaller grid."""
    low = spectrum * average
    size = SIDE // _STRIDE
    folded = low.reshape(*low.shape[:-2], _STRIDE, size, _STRIDE, size).mean(dim=(-4, -2))
    found: Tensor = torch.fft.ifft2(folded).real[..., 1:, 1:]  # the first row and column lie outside the image
    return found


def _normalised(channels: Tensor) -> Tensor:
    """Each group of channels centred and scaled within the record; the whole of length 1."""
    sizes = [1, ORIENTATIONS, ORIENTATIONS, ORIENTATIONS**2]
    groups = [torch.nn.functional.layer_norm(part, part.shape[1:]) for part in torch.split(channels, sizes, dim=1)]
    return torch.nn.functional.normalize(torch.cat(groups, dim=1).flatten(1), dim=1)


@lru_cache(maxsize=1)
def _filters() -> tuple[Tensor, Tensor]:
    """Spectra of the wavelets (scales, orientations, side, side) and of the local average."""
    wavelets = np.stack(
        [
            np.stack([_morlet(scale, math.pi * number / ORIENTATIONS) for number in range(ORIENTATIONS)])
            for scale in range(SCALES)
        ]
    )
    average = _periodic(_BANDWIDTH * 2 ** (SCALES - 1), 0.0, 1.0, 0.0)
    return (
        torch.from_numpy(np.fft.fft2(wavelets)).to(torch.complex64),
        torch.from_numpy(np.fft.fft2(average / average.sum()).real).to(torch.float32),
    )


def _morlet(scale: int, angle: float) -> NDArray[np.complex128]:
    """A plane wave in a Gaussian window, less what makes its sum 0."""
    width, frequency = _BANDWIDTH * 2**scale, _FREQUENCY / 2**scale
    wave, window = (_periodic(width, angle, _SLANT, each) for each in (frequency, 0.0))
    area = 2.0 * math.pi * width**2 / _SLANT
    found: NDArray[np.complex128] = (wave - wave.sum() / window.sum() * window) / area
    return found


def _periodic(width: float, angle: float, slant: float, frequency: float) -> NDArray[np.complex128]:
    """exp(i f u − (u² + s² v²)/2w²) on the torus, u along `angle`; copies from the neighbouring tiles are added."""
    total = np.zeros((SIDE, SIDE), dtype=np.complex128)
    for tile_x in range(-2, 3):
        for tile_y in range(-2, 3):
            y, x = np.mgrid[tile_y * SIDE : (tile_y + 1) * SIDE, tile_x * SIDE : (tile_x + 1) * SIDE].astype(np.float64)
            u, v = x * math.cos(angle) + y * math.sin(angle), -x * math.sin(angle) + y * math.cos(angle)
            total += np.exp(1j * frequency * u - (u**2 + (slant * v) ** 2) / (2.0 * width**2))
    return total
