"""What a silo does in a joined round of a run: train on its records (here), or release their sums (`sums`).

Coin, charge, outbox and release are the silo's, and the same for both. Only what the announced values are, what is
computed from records, and what an update looks like, differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rpdp.display import counts_repr

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.federation.local_training import LocalTraining, SamplingPlan
    from rpdp.federation.messages import Announcement
    from rpdp.sampling import Randomness
    from rpdp.training import Kernel, Records


class LocalWork(Protocol):
    """What a silo does in the joined rounds of one run."""

    @property
    def name(self) -> str:
        """Its name, for diagnostics."""
        ...

    @property
    def announced(self) -> Tensor:
        """A tensor of the shape and type that announced values must have."""
        ...

    @property
    def released(self) -> Tensor:
        """A tensor of the shape and type of an update."""
        ...

    @property
    def takes_correction(self) -> bool:
        """Whether an announcement may carry a correction."""
        ...

    def run(
        self,
        plan: SamplingPlan,
        announcement: Announcement,
        switched_off: Callable[[], NDArray[np.int64]],
        randomness: Randomness,
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the update, and how often each record was drawn.

        `switched_off` returns the records that are withdrawn by now. It is called before every step, and may raise.
        """
        ...


@dataclass(frozen=True)
class TrainingWork:
    """Training: the update is the change of the flat model over the noisy local steps."""

    kernel: Kernel
    records: Records
    training: type[LocalTraining]

    __repr__ = counts_repr

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.kernel.name

    @property
    def announced(self) -> Tensor:
        """The flat model."""
        return self.kernel.model.values.data

    @property
    def released(self) -> Tensor:
        """Its change."""
        return self.announced

    @property
    def takes_correction(self) -> bool:
        """A backbone may correct every step."""
        return True

    def run(
        self,
        plan: SamplingPlan,
        announcement: Announcement,
        switched_off: Callable[[], NDArray[np.int64]],
        randomness: Randomness,
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the change of the model, and how often each record was drawn."""
        return self.training(self.kernel, plan, randomness).run(self.records, announcement, switched_off)
