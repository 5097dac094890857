"""What an auditor observes of a silo: the canaries' coordinates, step by step or round by round.

The silo is the class that every engine uses, with its planner, sampler, kernel, clipping, noise, grid and outbox. A
watched silo differs in one thing: its local training shows each step's release after it was made. Nothing else is
seeded, skipped or replaced. From outside a silo, `round_observation` needs the released bytes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError
from rpdp.federation.backbones import proximal_strength

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.audit.planting import Planted
    from rpdp.federation import Announcement, Silo, Update
    from rpdp.federation.server import RoundServer
    from rpdp.planning import PublicPlan
    from rpdp.training import NoisyStep, Records

    Watcher = Callable[[Tensor, NDArray[np.int64]], None]
    """Called with the release of a step, the flat gradient, and the positions of the records that were drawn."""


def watched(kind: type[Silo], watcher: Watcher) -> type[Silo]:
    """The same kind of silo, showing every step's release. For simulations: releases and draws never leave a silo."""
    training: Any = kind.training

    class WatchedTraining(training):  # type: ignore[misc]
        def _release(self, step: NoisyStep, records: Records, drawn: NDArray[np.int64]) -> None:
            super()._release(step, records, drawn)
            release = step.kernel.model.values.grad
            assert release is not None
            watcher(release, drawn)

    made: type[Silo] = type(f"Watched{kind.__name__}", (kind,), {"training": WatchedTraining})
    return made


def go_through(
    server: RoundServer,
    silo: str,
    answer: Callable[[Announcement], Update | None],
    on_round: Callable[[int, Update | None], None],
) -> None:
    """Announce every round to one silo, however it is reached, and hand on what it answers."""
    while not server.is_done:
        update = answer(server.announce()[silo])
        server.collect([] if update is None else [update])
        on_round(server.round, update)


def step_observation(release: Tensor, planted: Planted, public: PublicPlan) -> NDArray[np.float64]:
    """The noisy sum of one step on the canaries' coordinates, in units of the clip norm."""
    return planted.observed(release) * (public.normaliser / public.clip_norm)


def round_observation(update: Update, planted: Planted, public: PublicPlan) -> NDArray[np.float64]:
    """The noisy sums of a round's steps, added up, from nothing but the released update."""
    require_sums(public)
    scale = public.normaliser / (public.clip_norm * public.recipe.rate(update.round))
    return planted.observed(update.change) * -scale


def require_sums(public: PublicPlan, who: str = "view='rounds'", way_out: str = "use view='steps'") -> None:
    """Refuse a recipe whose updates are not plain sums of releases; `who` reads them, `way_out` is what to do."""
    recipe = public.recipe
    named = {
        f"optimiser = {recipe.optimiser}": recipe.optimiser != "sgd",
        f"momentum = {recipe.momentum:g}": recipe.momentum != 0.0,
        f"backbone = {recipe.backbone}": proximal_strength(recipe) != 0.0 or recipe.backbone == "scaffold",
    }
    reasons = [name for name, is_so in named.items() if is_so]
    if reasons:
        raise InputError(
            f"{who} reads an update as the sum of its steps, which holds for plain SGD only, not with "
            f'{", ".join(reasons)}; {way_out}, or audit the same run with optimiser = "sgd" and no momentum'
        )
