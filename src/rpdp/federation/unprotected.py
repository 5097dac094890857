"""Training without protection: local steps of plain SGD, as the upper limit in comparisons. For simulations only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rpdp.errors import PrivacyRefusal
from rpdp.federation.local_training import LocalTraining
from rpdp.federation.silo import Silo

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.planning import PublicPlan, SiloPlan
    from rpdp.sampling import Randomness
    from rpdp.training import FlatModel, NoisyStep, PerRecordLoss, Records


def mean_gradient(model: FlatModel, loss: PerRecordLoss, batch: Records, normaliser: float) -> Tensor:
    """Return the sum of the records' gradients divided by a constant, without clipping and noise."""
    if len(batch) == 0:
        return torch.zeros_like(model.values.data)
    output = model.module(*[model.prepare(tensor) for tensor in batch.inputs])
    total = loss(output, batch.targets.to(model.device)).sum() / normaliser
    parts = torch.autograd.grad(total, model.parameters, materialize_grads=True, allow_unused=True)
    return torch.cat([part.reshape(-1) for part in parts])


class _PlainTraining(LocalTraining):
    """Local steps without clipping and noise."""

    def _release(self, step: NoisyStep, records: Records, drawn: NDArray[np.int64]) -> None:
        model = self._kernel.model
        batch = records.select(drawn)
        model.values.grad = mean_gradient(model, self._kernel.loss, batch, step.settings.normaliser)


class UnprotectedSilo(Silo):
    """A silo of a method without a promise. **It protects nobody**, so only a simulation may use it."""

    training = _PlainTraining

    def admit(
        self,
        run: str,
        public: PublicPlan,
        module: nn.Module | None,
        loss: PerRecordLoss | None,
        randomness: Randomness,
        hold: int | None = None,
        before_hold: Callable[[], None] | None = None,
    ) -> SiloPlan:
        """Admit a run as `Silo.admit` does, in simulations only."""
        if not (self.account.is_simulation and randomness.is_simulation):
            raise PrivacyRefusal(
                f"silo {self.name}: a method without a promise is for simulations only; use method rpdp"
            )
        return super().admit(run, public, module, loss, randomness, hold, before_hold)
