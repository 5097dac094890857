"""`[tuning]` of a study file: the grid of `rpdp compare --tune`, and the candidates of `rpdp tune`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rpdp.accounting.schedule import MOST_LOCAL_STEPS, MOST_ROUNDS
from rpdp.checks import require_count, require_fraction, require_number, require_positive
from rpdp.errors import InputError
from rpdp.planning import OPTIMISERS
from rpdp.setting_fields import list_of, one_of, plain_name, read_section, setting

PAPER_LEARNING_RATES = (0.1, 0.05, 0.01, 0.005, 0.001)
PAPER_CLIP_NORMS = (0.5, 1.0, 3.0, 5.0)
"""The paper's tuning grid."""


@dataclass(frozen=True)
class CandidateSection:
    """`[[tuning.candidates]]`: a recipe for `rpdp tune`, by what it changes. Everything else is as in the study file.

    Attributes:
        learning_rate: Instead of that of [training].
        decay: Instead of that of [training].
        optimiser: Instead of that of [training].
        momentum: Instead of that of [training].
        averaged_rounds: Instead of that of [training].
        clip_norm: Instead of that of [privacy].
        max_epsilon: Instead of that of [privacy], or of its σ.
        noise_multiplier: σ itself, instead of that of [privacy] or its max_epsilon.
        rounds: Instead of those of [schedule].
        local_steps: Instead of those of [schedule].
        participations: Exactly so many rounds, instead of those of [schedule].
    """

    name: str = setting(plain_name, meaning="a name for the trial, which is part of its id in the ledgers")
    learning_rate: float | None = setting(require_positive, None)
    decay: float | None = setting(require_fraction, None)
    optimiser: str | None = setting(one_of(*OPTIMISERS), None)
    momentum: float | None = setting(require_number, None)
    averaged_rounds: int | None = setting(require_count, None)
    clip_norm: float | None = setting(require_positive, None)
    max_epsilon: float | None = setting(require_positive, None)
    noise_multiplier: float | None = setting(require_positive, None)
    rounds: int | None = setting(partial(require_count, most=MOST_ROUNDS), None)
    local_steps: int | None = setting(partial(require_count, most=MOST_LOCAL_STEPS), None)
    participations: int | None = setting(require_count, None)

    def __post_init__(self) -> None:
        if self.max_epsilon is not None and self.noise_multiplier is not None:
            raise InputError(
                f"tuning.candidates: {self.name} has both max_epsilon, which determines σ, and noise_multiplier, σ "
                "itself; give one of them"
            )

    @property
    def changes(self) -> dict[str, float | int | str]:
        """What it changes, by name."""
        return {name: value for name, value in vars(self).items() if name != "name" and value is not None}


def _candidates(name: str, value: object) -> tuple[CandidateSection, ...]:
    found = list_of(lambda _, each: read_section(CandidateSection, name, each))(name, value)
    names = [each.name for each in found]
    twice = [each for each in names if names.count(each) > 1]
    if twice:
        raise InputError(f"{name}: two candidates are named {twice[0]!r}; each needs a name of its own")
    if len(found) < 2:
        raise InputError(f"{name}: one candidate leaves nothing to choose; give at least two, or use rpdp train")
    return tuple(found)


@dataclass(frozen=True)
class TuningSection:
    """`[tuning]`: the grid of `rpdp compare --tune`, on seeds that are never reported; the candidates of `rpdp tune`.

    Attributes:
        seeds: The seeds of the grid, such as [1001, 1002].
        learning_rates: Rates of the grid; by default the paper's.
        clip_norms: Clip norms of the grid; by default the paper's.
        candidates: The recipes of `rpdp tune`, at least two.
    """

    seeds: tuple[int, ...] = setting(list_of(partial(require_count, least=0)), ())
    learning_rates: tuple[float, ...] = setting(list_of(require_positive), PAPER_LEARNING_RATES)
    clip_norms: tuple[float, ...] = setting(list_of(require_positive), PAPER_CLIP_NORMS)
    candidates: tuple[CandidateSection, ...] = setting(_candidates, ())

    def __post_init__(self) -> None:
        if not self.seeds and not self.candidates:
            raise InputError(
                "tuning needs seeds for `rpdp compare --tune`, such as [1001, 1002], or candidates for `rpdp tune`"
            )
