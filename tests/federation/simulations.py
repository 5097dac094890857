"""Simulated runs of three silos, as tests of the simulator need them, and what interrupts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp.federation import simulate
from rpdp.planning import Recipe
from rpdp.tasks.models.losses import binary_loss
from tests.federation.world import evaluation, make_model, make_public, make_silo

if TYPE_CHECKING:
    from rpdp import PublicPlan
    from rpdp.federation import RoundLog, RunResult, Silo

NAMES = ("north", "east", "west")
MIXED = make_public(5, 2, participation=0.6, recipe=Recipe(averaged_rounds=2))


def federation(public: PublicPlan, names: tuple[str, ...] = NAMES) -> list[Silo]:
    return [make_silo(name, public, 10 + 4 * place, seed=place) for place, name in enumerate(names)]


def run(public: PublicPlan = MIXED, **changes: Any) -> RunResult:
    """A run of three silos with seed 4."""
    settings: dict[str, Any] = {"seed": 4, "evaluation": evaluation(NAMES), "workers": 1, **changes}
    model, loss = settings.pop("model", make_model()), settings.pop("loss", binary_loss)
    silos = settings.pop("silos", None) or federation(public)
    return simulate(model, loss, silos, public, **settings)


class Interrupt:
    """Ctrl-C right after a round, or in the middle of a later one."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, log: RoundLog) -> None:
        if log.round == self.after:
            raise KeyboardInterrupt
