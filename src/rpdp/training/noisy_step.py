"""The noisy step of DP-SGD: clip, sum, add noise, round, divide by a public constant, optimise.

One step releases (Σ clipped gradients of the drawn records + N(0, σ²L²)) / B (privacy.md, section 1). Everything that
the optimiser does with it, including momentum and Adam's moments, is post-processing.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rpdp.display import counts_repr
from rpdp.errors import InputError, RpdpError
from rpdp.training.kernel import require_clip_norm
from rpdp.training.micro_batches import LARGEST_PIECE, pieces
from rpdp.training.noise_addition import PendingRelease, release_

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.sampling import Randomness
    from rpdp.training.kernel import Kernel
    from rpdp.training.records import Records


class BadRecordWarning(UserWarning):
    """Model or loss failed on a record. It contributes zero and is still charged. For the silo's own log only."""


@dataclass(frozen=True)
class StepSettings:
    """The public settings of a step. They come from the plan, never from the data.

    Attributes:
        clip_norm: L, the most that one record may add to the sum.
        noise_multiplier: σ; the noise has standard deviation σL.
        normaliser: B, the public constant by which the noisy sum is divided; never the realised batch size.
        micro_batch: Larger draws are processed in pieces of at most this size, or of `LARGEST_PIECE` if that is
            smaller. The sum is the same up to float rounding.
    """

    clip_norm: float
    noise_multiplier: float
    normaliser: float
    micro_batch: int = 1024

    def __post_init__(self) -> None:
        """Refuse settings with which a step would not be private."""
        require_clip_norm(self.clip_norm)
        for name in ("noise_multiplier", "normaliser"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise InputError(f"{name}={value} must be positive and finite")
        if self.micro_batch < 1:
            raise InputError(f"micro_batch={self.micro_batch} must be at least 1")

    @property
    def largest_piece(self) -> int:
        """The largest number of records that a kernel gets at once."""
        return min(self.micro_batch, LARGEST_PIECE)

    @property
    def noise_std(self) -> float:
        """σL, the standard deviation of the noise on the sum."""
        return self.noise_multiplier * self.clip_norm


@dataclass(frozen=True)
class StepDiagnostics:
    """Facts about one step. They are sensitive: they stay in the silo and are never reported.

    Attributes:
        count: The realised batch size.
        norms: Gradient norms before clipping, in the order of the draw.
    """

    count: int
    norms: Tensor

    __repr__ = counts_repr


class NoisyStep:
    """Private steps of one model.

    Guarantee: if `drawn` is a Poisson sample, each step releases the output of the subsampled Gaussian mechanism with
    noise multiplier σ and sensitivity L under adding or removing one record. The model after the step is a function of
    that release and of the model before.

    | case | what happens |
    |---|---|
    | nothing drawn | noise alone is released |
    | more drawn than `micro_batch`, or than 512 | in pieces; a record changes only the rounding of its own piece |
    | a position twice, or not rising | `InputError`: a record counts at most once |
    | a record with NaN or infinite gradient | contributes zero |
    | a record that makes model or loss raise | contributes zero, with a `BadRecordWarning` here |
    | a model with NaN or infinite parameters | `PrivacyRefusal`, nothing released |
    | dropout | refused by `make_kernel` |

    Args:
        kernel: From `make_kernel`.
        optimiser: Any `torch.optim` optimiser over exactly `[kernel.model.values]`.
        settings: The public settings.
        randomness: `Secure()` in production, or `Seeded(...)` for a simulation.
    """

    def __init__(
        self,
        kernel: Kernel,
        optimiser: torch.optim.Optimizer,
        settings: StepSettings,
        randomness: Randomness,
    ) -> None:
        tensors = [value for group in optimiser.param_groups for value in group["params"]]
        if len(tensors) != 1 or tensors[0] is not kernel.model.values:
            raise InputError(
                f"the optimiser updates {len(tensors)} other tensors; it must update exactly [model.values], the flat "
                "tensor of all trainable parameters"
            )
        self.kernel = kernel
        self.settings = settings
        self._optimiser = optimiser
        self._randomness = randomness
        self._total = torch.zeros_like(kernel.model.values.data)

    @property
    def is_simulation(self) -> bool:
        """Whether the randomness is seeded. If so, nothing is protected."""
        return self._randomness.is_simulation

    def __call__(self, records: Records, drawn: NDArray[np.int64]) -> StepDiagnostics:
        """Take one private step on the drawn records (rising positions in `records`): release, then update."""
        diagnostics = self.release(records, drawn)
        self._optimiser.step()
        return diagnostics

    def release(self, records: Records, drawn: NDArray[np.int64]) -> StepDiagnostics:
        """Write the release of one step to `kernel.model.values.grad`, without updating the model."""
        model, settings = self.kernel.model, self.settings
        model.values.grad = None  # before anything can fail: the optimiser must not find an earlier release
        model.require_finite()
        if not (drawn[1:] > drawn[:-1]).all():
            raise InputError(
                "the drawn positions do not rise: a record counts at most once; nothing was released. Give sorted "
                "positions without repeats"
            )
        if len(drawn) <= settings.largest_piece:
            total, norms = self._released_at_once(records.select(drawn))
        else:
            total, norms = self._sum_in_pieces(records, drawn)
            release_(total, settings.noise_std, settings.normaliser, self._randomness)
        model.values.grad = self._total.copy_(total)
        return StepDiagnostics(len(drawn), norms)

    def _released_at_once(self, chosen: Records) -> tuple[Tensor, Tensor]:
        """The release of one batch, with noise added while the sum is computed; and the norms."""
        settings, total = self.settings, self._total.zero_()
        try:
            with PendingRelease(total, settings.noise_std, settings.normaliser, self._randomness) as pending:
                return total, self.kernel.add_clipped_sum(chosen, settings.clip_norm, total, pending.final_from)
        except Exception as error:  # user code may raise anything
            _require_about_records(error)
            # Parts of `total` may already carry noise. All of it is discarded: the sum is computed again and gets fresh
            # noise, because noise must never be used for two sums.
            whole, norms = self._sum_one_by_one(chosen)
            return release_(whole, settings.noise_std, settings.normaliser, self._randomness), norms

    def _sum_one_by_one(self, chosen: Records) -> tuple[Tensor, Tensor]:
        """The clipped sum when model or loss fail on a record: that record contributes zero, nothing else changes.

        Stopping instead would reveal that the record was drawn (privacy.md, rule 12).
        """
        warnings.warn("model or loss failed on a drawn record; it contributes zero", BadRecordWarning, stacklevel=4)
        whole, norms = torch.zeros_like(self._total, dtype=torch.float64), []
        for row in range(len(chosen)):
            self._total.zero_()
            try:
                norm = self.kernel.add_clipped_sum(chosen.rows(row, row + 1), self.settings.clip_norm, self._total)
            except Exception as error:  # this record contributes zero
                _require_about_records(error)
                norms.append(whole.new_full((1,), float("nan")))
            else:
                norms.append(norm.double())
                whole.add_(self._total)
        return whole, torch.cat(norms)

    def _sum_in_pieces(self, records: Records, drawn: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The clipped sum, piece by piece, and the norms.

        Pieces are added up in float64: with thousands of float32 terms, rounding could exceed the clipping slack.
        """
        clip_norm, kernel = self.settings.clip_norm, self.kernel
        whole, norms = torch.zeros_like(self._total, dtype=torch.float64), []
        for positions in pieces(drawn, self.settings.largest_piece):
            self._total.zero_()
            chunk = records.select(positions)
            try:
                norms.append(kernel.add_clipped_sum(chunk, clip_norm, self._total))
                whole.add_(self._total)
            except Exception as error:  # as in `_released_at_once`
                _require_about_records(error)
                piece, piece_norms = self._sum_one_by_one(chunk)
                norms.append(piece_norms.to(self._total.dtype))
                whole.add_(piece)
        return whole, torch.cat(norms)


_NO_MEMORY = ("DefaultCPUAllocator: not enough memory", "DefaultCPUAllocator: can't allocate memory")
"""Messages of torch's allocator. Any other text may come from user code and depend on a record."""


def _require_about_records(error: Exception) -> None:
    """Raise errors that do not depend on the content of a record: refusals, and a machine without free memory."""
    no_memory = isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
    if no_memory or isinstance(error, RpdpError | MemoryError | torch.OutOfMemoryError):
        raise error
