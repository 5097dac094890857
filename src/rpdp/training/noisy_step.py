"""The noisy step of DP-SGD: clip, sum, add noise, round, divide by a public constant, optimise.

One step releases (Σ clipped gradients of the drawn records + N(0, σ²L²)) / B (privacy.md, section 1). Everything that
the optimiser does with it, including momentum and Adam's moments, is post-processing.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.training.kernel import require_clip_norm
from rpdp.training.micro_batches import LARGEST_PIECE, pieces
from rpdp.training.noise_addition import PendingRelease, release_

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.sampling import Randomness
    from rpdp.training.kernel import Kernel
    from rpdp.training.records import Records
    from rpdp.training.updates import Optimiser


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
    | a record that makes model or loss raise, whatever it raises | contributes zero, with a `BadRecordWarning` here |
    | such a record in a later step with the same `failed` | contributes zero; model and loss do not see it again |
    | a model with NaN or infinite parameters | `PrivacyRefusal`, nothing released |
    | dropout | masks from `randomness`, a record's own whatever pieces it is in (`rpdp.training.record_masks`) |
    | random numbers from torch, drawn only since the model was checked | `PrivacyRefusal`, nothing released |

    Args:
        kernel: From `make_kernel`.
        optimiser: Of `rpdp.training.updates` or `torch.optim`, over exactly `[kernel.model.values]`. With None only
            `release` can be called, and the caller updates the model.
        settings: The public settings.
        randomness: `Secure()` in production, or `Seeded(...)` for a simulation.
        failed: Positions of records that made model or loss raise, shared by the steps of a round. So each of them has
            to be found once in a round, and what they can cost a round is bounded (`rpdp.training.round_time`).
    """

    def __init__(
        self,
        kernel: Kernel,
        optimiser: Optimiser | None,
        settings: StepSettings,
        randomness: Randomness,
        failed: set[int] | None = None,
    ) -> None:
        if optimiser is not None:
            _require_over_values(optimiser, kernel.model.values)
        self.kernel = kernel
        self.settings = settings
        self._optimiser = optimiser
        self._randomness = randomness
        self._failed = set() if failed is None else failed
        self._total = torch.zeros_like(kernel.model.values.data)
        self._mask_key: bytes | None = None

    @property
    def is_simulation(self) -> bool:
        """Whether the randomness is seeded. If so, nothing is protected."""
        return self._randomness.is_simulation

    def __call__(self, records: Records, drawn: NDArray[np.int64]) -> StepDiagnostics:
        """Take one private step on the drawn records (rising positions in `records`): release, then update."""
        if self._optimiser is None:
            raise InputError("this step has no optimiser: call release, and update the model with its gradient")
        diagnostics = self.release(records, drawn)
        self._optimiser.step()
        return diagnostics

    def release(self, records: Records, drawn: NDArray[np.int64]) -> StepDiagnostics:
        """Write the release of one step to `kernel.model.values.grad`, without updating the model."""
        model = self.kernel.model
        model.values.grad = None  # before anything can fail: the optimiser must not find an earlier release
        # What is not about a record is refused here, before the sum: there every error counts as the record's own.
        model.require_finite()
        model.require_intact()
        if not (drawn[1:] > drawn[:-1]).all():
            raise InputError(
                "the drawn positions do not rise: a record counts at most once; nothing was released. Give sorted "
                "positions without repeats"
            )
        # One key for the whole step: a record that is tried again in a smaller piece has the same masks there.
        self._mask_key = self.kernel.mask_key(self._randomness)
        used = _without(drawn, self._failed)
        numbers = None if self.kernel.draws_masks else torch.get_rng_state()
        total, norms = self._released(records, drawn if used is None else drawn[used])
        _require_same_numbers(numbers)
        model.values.grad = self._total.copy_(total)
        if used is not None:
            found = torch.from_numpy(used).to(norms.device)
            norms = norms.new_full((len(drawn),), float("nan")).masked_scatter_(found, norms)
        return StepDiagnostics(len(drawn), norms)

    def _released(self, records: Records, drawn: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The release of the sum over these records, and the norms."""
        settings, failed_before = self.settings, len(self._failed)
        if len(drawn) <= settings.largest_piece:
            released = self._released_at_once(self._chosen(records, drawn))
            if released is not None:
                return released
            # Parts of the sum may already carry noise. All of it is discarded: the sum is computed again and gets fresh
            # noise, because noise must never be used for two sums.
            total, norms = self._sum_of_parts(records, [drawn], self._add_halves)
        else:
            total, norms = self._sum_in_pieces(records, drawn)
        if len(self._failed) > failed_before:
            warnings.warn("model or loss failed on a drawn record; it contributes zero", BadRecordWarning, stacklevel=4)
        return release_(total, settings.noise_std, settings.normaliser, self._randomness), norms

    def _released_at_once(self, chosen: Records) -> tuple[Tensor, Tensor] | None:
        """The release of one batch, with noise added while the sum is computed, and the norms; None if it failed."""
        settings, total = self.settings, self._total.zero_()
        pending = PendingRelease(total, settings.noise_std, settings.normaliser, self._randomness)
        try:
            with pending:
                return total, self.kernel.add_clipped_sum(chosen, settings.clip_norm, total, pending.final_from)
        except Exception:  # user code may raise anything, and a record may have caused it
            return None

    def _chosen(self, records: Records, positions: NDArray[np.int64]) -> Records:
        """The records at these positions, with their masks of this step."""
        return records.select(positions).masked(self._mask_key, positions)

    def _sum_in_pieces(self, records: Records, drawn: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The clipped sum of a large draw, and the norms."""
        return self._sum_of_parts(records, pieces(drawn, self.settings.largest_piece), self._add_piece)

    def _sum_of_parts(
        self,
        records: Records,
        parts: Iterable[NDArray[np.int64]],
        add: Callable[[Records, NDArray[np.int64], Tensor, list[Tensor]], None],
    ) -> tuple[Tensor, Tensor]:
        """The clipped sum over parts of a draw, and the norms.

        Parts are added up in float64: with thousands of float32 terms, rounding could exceed the clipping slack.
        """
        whole, norms = torch.zeros_like(self._total, dtype=torch.float64), [self._total.new_zeros(0)]
        for positions in parts:
            add(records, positions, whole, norms)
        return whole, torch.cat(norms)

    def _add_piece(self, records: Records, positions: NDArray[np.int64], whole: Tensor, norms: list[Tensor]) -> None:
        """Add the clipped sum of a piece to `whole`, and its norms to `norms`; in halves if model or loss fail."""
        self._total.zero_()
        try:
            found = self.kernel.add_clipped_sum(self._chosen(records, positions), self.settings.clip_norm, self._total)
        except Exception:  # as in `_released_at_once`
            found = None
        if found is None:  # not in the handler, where the error would keep tensors of the attempt in memory
            self._add_halves(records, positions, whole, norms)
        else:
            whole.add_(self._total)
            norms.append(found)

    def _add_halves(self, records: Records, positions: NDArray[np.int64], whole: Tensor, norms: list[Tensor]) -> None:
        """Add the clipped sum of a piece on which model or loss failed: halve it until the record is found.

        A record that fails alone contributes zero; all others contribute as if it were not there. Stopping, or leaving
        out the whole piece, would reveal the record (privacy.md, rules 12 and 16). Whatever the error is, a lack of
        memory included, it counts as the record's own: nobody can tell whether the record caused it.
        """
        if len(positions) <= 1:
            self._failed.update(positions.tolist())
            norms.append(self._total.new_full((len(positions),), float("nan")))
            return
        middle = len(positions) // 2
        self._add_piece(records, positions[:middle], whole, norms)
        self._add_piece(records, positions[middle:], whole, norms)


def _require_same_numbers(before: Tensor | None) -> None:
    """Refuse a release for which model or loss drew from torch's generator, though they did not when they were checked.

    Such masks go by the place in the batch: one more record would shift those of others (`rpdp.training.record_masks`).
    """
    if before is not None and not torch.equal(before, torch.get_rng_state()):
        raise PrivacyRefusal(
            "model or loss drew random numbers from torch's generator, and did not when the model was checked, as if "
            "dropout in a function had been switched on since. Nothing was released. Set probabilities before the "
            "kernel or the trainer is made, and draw nothing in other threads during a step"
        )


def _require_over_values(optimiser: Optimiser, values: Tensor) -> None:
    tensors = [value for group in optimiser.param_groups for value in group["params"]]
    if len(tensors) != 1 or tensors[0] is not values:
        raise InputError(
            f"the optimiser updates {len(tensors)} other tensors; it must update exactly [model.values], the flat "
            "tensor of all trainable parameters"
        )


def _without(drawn: NDArray[np.int64], failed: set[int]) -> NDArray[np.bool_] | None:
    """Which drawn records have not failed before; None if nobody has, the usual case."""
    return ~np.isin(drawn, list(failed)) if failed else None
