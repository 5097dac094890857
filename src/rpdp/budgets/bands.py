"""Fixed bands in which notebooks count budgets. Bands that depend on the budgets would show some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BANDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

BAND_NAMES = (*(f"ε up to {band:g}" for band in _BANDS), f"ε above {_BANDS[-1]:g}")


def counts_by_band(epsilon: NDArray[np.float64]) -> list[str]:
    """How many budgets lie in each band, as texts.

    >>> counts_by_band(np.array([0.1, 1.0, 5.0]))[:6]
    ['1', '0', '0', '1', '0', '1']
    """
    found = np.bincount(np.searchsorted(_BANDS, epsilon, side="left"), minlength=len(BAND_NAMES))
    return [f"{count:,}" for count in found.tolist()]
