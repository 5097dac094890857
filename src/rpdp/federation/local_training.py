"""The local part of a round: τ noisy steps from the announced model on the active records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from rpdp.errors import PrivacyRefusal
from rpdp.federation.backbones import proximal_strength
from rpdp.sampling import PoissonSampler
from rpdp.training import NoisyStep, StepSettings
from rpdp.training.updates import Adam, Sgd

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.federation.messages import Announcement
    from rpdp.planning import PublicPlan, Recipe
    from rpdp.sampling import Randomness
    from rpdp.training import Kernel, Records
    from rpdp.training.updates import Optimiser


class SamplingPlan(Protocol):
    """What training needs of a silo plan."""

    @property
    def public(self) -> PublicPlan:
        """The public plan."""
        ...

    @property
    def q(self) -> NDArray[np.float64]:
        """The sampling probability of each record."""
        ...

    @property
    def active_rounds(self) -> NDArray[np.int32]:
        """The number of rounds that each record is active in."""
        ...


class RoundSteps:
    """The draws and noisy steps of one round, one after the other. Seeded streams are keyed by step.

    Args:
        kernel: The kernel of the model that is trained.
        plan: The silo plan.
        number: The round.
        randomness: The random stream of this round.
        switched_off: Returns the records that are not drawn any more, such as withdrawn ones.
    """

    def __init__(
        self,
        kernel: Kernel,
        plan: SamplingPlan,
        number: int,
        randomness: Randomness,
        switched_off: Callable[[], NDArray[np.int64]],
    ) -> None:
        public = plan.public
        self._kernel = kernel
        self._settings = StepSettings(
            public.clip_norm, public.noise_multiplier, public.normaliser, public.recipe.micro_batch
        )
        self._sampler = PoissonSampler(np.where(plan.active_rounds >= number, plan.q, 0.0))
        self._randomness = randomness
        self._switched_off = switched_off
        self._failed: set[int] = set()  # records that made model or loss raise in this round
        self._taken = 0
        self.draws = np.zeros(len(plan.q), dtype=np.int64)
        """How often each record was drawn. Sensitive."""

    def draw(self) -> NDArray[np.int64]:
        """Draw the records of the next step: rising positions."""
        # Asked before every step: a withdrawal takes effect from the next step on, not from the next round on.
        self._sampler.switch_off(self._switched_off())
        drawn = self._sampler.draw(self._randomness.child("step", self._taken, "draw"))
        self.draws[drawn] += 1
        return drawn

    def next_step(self, optimiser: Optimiser | None = None) -> NoisyStep:
        """Return the noisy step for the records that were drawn last, with noise of its own."""
        noise = self._randomness.child("step", self._taken, "noise")
        self._taken += 1
        return NoisyStep(self._kernel, optimiser, self._settings, noise, self._failed)


class LocalTraining:
    """One round of one silo.

    Every step draws a new batch, releases a clipped and noised sum, and moves the model by it. The proximal term and
    the correction are added to the release, never to a record's gradient. Seeded streams are keyed by step.

    Args:
        kernel: The kernel of the silo's model.
        plan: The silo plan.
        randomness: The random stream of this round.
    """

    def __init__(self, kernel: Kernel, plan: SamplingPlan, randomness: Randomness) -> None:
        self._kernel = kernel
        self._plan = plan
        self._randomness = randomness

    def run(
        self, records: Records, announcement: Announcement, switched_off: Callable[[], NDArray[np.int64]]
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the change of the flat model, on the CPU wherever it trained, and how often each record was drawn."""
        public, model = self._plan.public, self._kernel.model
        start = announcement.values.to(model.device)
        model.values.data.copy_(start)
        optimiser = make_optimiser(public.recipe, announcement.round, model.values)
        steps = RoundSteps(self._kernel, self._plan, announcement.round, self._randomness, switched_off)
        for _ in range(public.schedule.local_steps):
            drawn = steps.draw()
            self._release(steps.next_step(optimiser), records, drawn)
            self._shift(announcement, start)
            optimiser.step()
        change = model.values.detach() - start
        if not bool(change.isfinite().all()):
            raise PrivacyRefusal("the model became NaN or infinite during local training; lower the learning rate")
        return change.cpu(), steps.draws

    def _release(self, step: NoisyStep, records: Records, drawn: NDArray[np.int64]) -> None:
        """Write what the step releases into the gradient of the model."""
        step.release(records, drawn)

    def _shift(self, announcement: Announcement, start: Tensor) -> None:
        """Add the proximal term and the correction to the release."""
        values = self._kernel.model.values
        assert values.grad is not None
        proximal = proximal_strength(self._plan.public.recipe)
        if proximal:
            values.grad.add_(values.detach() - start, alpha=proximal)
        if announcement.correction is not None:
            values.grad.add_(announcement.correction.to(values.device))


def make_optimiser(recipe: Recipe, number: int, values: Tensor) -> Optimiser:
    """Return a new local optimiser for a round."""
    if recipe.optimiser == "adam":
        return Adam(values, recipe.rate(number))
    return Sgd(values, recipe.rate(number), recipe.momentum)
