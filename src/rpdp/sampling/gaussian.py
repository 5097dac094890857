"""Gaussian noise from random words: the Box–Muller method in float64, without rejection and with full tails.

A pair of independent standard normals is R·(cos Φ, sin Φ) with R = √(−2 ln U) and Φ uniform on the circle
(Box and Muller 1958). Each pair uses two words of 64 bits, so the time does not depend on the values (except for
the tail, below).

*Radius.* The first word, read as a signed integer i, gives u = |i + ½|·2⁻⁶³. Its sign is a fair bit of its own,
used below. In the tail, 63 bits would be too few. Below u = 2⁻⁴⁶ (R ≈ 8) neighbouring radii lie further apart than
the grid to which a step is rounded before release (2⁻²⁰ standard deviations: privacy.md, rule 15). In a run of
11 million parameters and 750 steps a pair gets there with probability 6e-5, which is too much compared with δ. So
wherever |i| < 2⁴⁰ (one pair in 8 million) a uniform fraction of 53 bits, from a further word, takes the place of
the ½. R then ends at 12.7, and over the same run the total variation missing in the tail is below 1e-20, too little
to charge to δ.

*Angle.* The second word gives x uniform on (−π/4, π/4), rounded to float64. With tan x = N/D, the point at
angle 2x is ((D² − N²)/(N² + D²), 2ND/(N² + D²)), which lies on the circle whatever N and D are. The sign of the
radius extends the half circle to a whole one. N and D are the ninth convergent of Lambert's continued fraction of
tan, whose error on this range is below 9e-19, less than float64 resolves.

*What remains* is the error of float64 itself. The point is accurate to 2e-15·R + 2⁻⁵³/R (tested against arbitrary
precision), and a cell of the release grid contains about 2³³ different radii and as many angles. float32
trigonometry would be faster but has only some 2²⁵ angles. Pairs of coordinates would then fall on that many rays,
which are as far apart as the grid points, and an observer who knows the rays could tell shifted noise from
unshifted noise.

float32 output is the float64 value, rounded once at the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.sampling.keystream import Keystream

FloatArray: TypeAlias = "NDArray[np.float32] | NDArray[np.float64]"

LARGEST_VALUE = math.sqrt(2 * 117 * math.log(2))  # u is at least 2⁻¹¹⁷
"""No standard normal from this module is larger in absolute value."""

_BLOCK_PAIRS = 1 << 16  # 3 MB of words and scratch; with smaller blocks, threads wait for the interpreter's lock
_TAIL = 2.0**40
_SCRATCH_ROWS = 4

# tan x = x·N(x²)/D(x²), highest power first: x/(1 − x²/(3 − x²/(5 − … x²/17))), scaled to end in 1.
_NUMERATOR = tuple(c / 34459425 for c in (1, -990, 135135, -4729725, 34459425))
_DENOMINATOR = tuple(c / 34459425 for c in (45, -13860, 945945, -16216200, 34459425))


def fill_normal(out: FloatArray, std: float, keystream: Keystream) -> None:
    """Overwrite the flat contiguous `out` with independent N(0, std²), consuming the keystream.

    Blocks of fixed size bound the memory. Within a block the cosines come first, then the sines.
    """
    most = min((out.size + 1) // 2, _BLOCK_PAIRS)
    words = np.empty(2 * most, dtype=np.uint64)
    scratch = np.empty((_SCRATCH_ROWS, most))
    for start in range(0, out.size, 2 * _BLOCK_PAIRS):
        block = out[start : start + 2 * _BLOCK_PAIRS]
        pairs = (block.size + 1) // 2
        keystream.fill(words[: 2 * pairs])
        signed = words[: 2 * pairs].view(np.int64)
        _signed_radius(signed[:pairs], std, keystream, scratch[:, :pairs])
        _turn(signed[pairs:], scratch[:, :pairs], block[:pairs], block[pairs:])


def standard_normals(count: int, keystream: Keystream) -> NDArray[np.float64]:
    """Return `count` independent standard normals in a new array."""
    fresh = np.empty(count)
    fill_normal(fresh, 1.0, keystream)
    return fresh


def _signed_radius(word: NDArray[np.int64], std: float, keystream: Keystream, scratch: NDArray[np.float64]) -> None:
    """Write ±std·√(−2 ln u) to the first row of scratch, with u and sign from the word; overwrites the second row."""
    radius, centred = scratch[0], scratch[1]
    np.copyto(centred, word)
    centred += 0.5
    np.absolute(centred, out=radius)
    tail = np.flatnonzero(radius < _TAIL)
    if tail.size:
        radius[tail] += _centred_fractions(keystream.words(tail.size))
    radius *= 2.0**-63
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    radius *= std
    np.copysign(radius, centred, out=radius)


def _centred_fractions(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform on (−½, ½], at least −½ + 2⁻⁵⁴, so that adding ½ never gives 0 and keeps full precision near 0."""
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53 - 0.5


def _turn(word: NDArray[np.int64], scratch: NDArray[np.float64], cosines: FloatArray, sines: FloatArray) -> None:
    """Write radius·cos 2x and radius·sin 2x, radius from the first row of scratch, x from the word.

    `sines` may be one shorter. The word is not needed once x is known, so its memory serves as a further scratch row.
    """
    radius = scratch[0]
    numerator, square, denominator = scratch[1:]
    angle = word.view(np.float64)
    np.copyto(numerator, word)
    numerator += 0.5
    np.multiply(numerator, math.pi / 4 * 2.0**-63, out=angle)
    np.multiply(angle, angle, out=square)
    _polynomial(_NUMERATOR, square, numerator)
    numerator *= angle
    _polynomial(_DENOMINATOR, square, denominator)
    product = np.multiply(numerator, denominator, out=angle)
    numerator *= numerator
    denominator *= denominator
    radius /= np.add(numerator, denominator, out=square)
    denominator -= numerator
    np.multiply(denominator, radius, out=cosines, casting="same_kind")
    product *= 2.0
    np.multiply(product[: sines.size], radius[: sines.size], out=sines, casting="same_kind")


def _polynomial(coefficients: tuple[float, ...], variable: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Evaluate a polynomial by Horner's rule, in place; coefficients start with the highest power."""
    np.multiply(variable, coefficients[0], out=out)
    for coefficient in coefficients[1:-1]:
        out += coefficient
        out *= variable
    out += coefficients[-1]
