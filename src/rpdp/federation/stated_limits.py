"""The steward's limits beside a ledger: they bind every run on it, whatever a study, a loop or an agent states besides.

A study file belongs to whoever runs the study, and a script to whoever wrote it. `LEDGER.policy.toml` belongs to the
silo's steward: only the owner of the ledger, or root, may write it, and it is found beside the database itself, by
whatever link the ledger was opened.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rpdp.budgets import MOST_SILOS_PER_PERSON
from rpdp.checks import require_count, require_delta, require_fraction, require_positive
from rpdp.errors import InputError
from rpdp.ledger.store.ledger_files import LedgerFiles
from rpdp.planning.allowances import checked_reserves
from rpdp.private_files import read_owned
from rpdp.setting_fields import read_section, setting, table_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rpdp.planning import Purpose


def reserves(name: str, value: object) -> Mapping[Purpose, float]:
    """Check shares of lifetime budgets that are kept for purposes, such as {evaluation = 0.2}."""
    try:
        return checked_reserves(table_of(require_fraction)(name, value))
    except InputError as error:
        said = str(error)
        raise InputError(said if said.startswith(name) else f"{name.rpartition('.')[0]}.{said}") from None


@dataclass(frozen=True)
class PolicySection:
    """`[policy]`: the silos' limits in simulations, where a missing limit is as wide as the study file needs.

    In a real run each silo states its own, with the same keys, in `LEDGER.policy.toml` beside its ledger: all but the
    last three.

    Attributes:
        max_rounds: The largest T.
        max_local_steps: The largest τ.
        max_participation: The largest λ, or k/T.
        max_clip_norm: The largest L.
        min_noise_multiplier: The smallest σ.
        lifetime_delta: δ for life of records without one of their own.
        max_runs: How many runs in all.
        max_share_per_run: The largest share of a lifetime budget that one run may take, such as 0.1 for ten runs.
        max_epsilon_per_run: The largest ε of one run alone.
        reserved: Shares of lifetime budgets that are kept for purposes, such as {evaluation = 0.2}.
        silos_per_person: In how many silos of the federation a person may ever have an account, by default 1.
    """

    max_rounds: int | None = setting(require_count, None)
    max_local_steps: int | None = setting(require_count, None)
    max_participation: float | None = setting(require_fraction, None)
    max_clip_norm: float | None = setting(require_positive, None)
    min_noise_multiplier: float | None = setting(require_positive, None)
    lifetime_delta: float | None = setting(require_delta, None)
    max_runs: int | None = setting(require_count, None)
    max_share_per_run: float | None = setting(require_fraction, None)
    max_epsilon_per_run: float | None = setting(require_positive, None)
    reserved: Mapping[Purpose, float] | None = setting(reserves, None)
    silos_per_person: int = setting(partial(require_count, most=MOST_SILOS_PER_PERSON), 1)


def stated_limits(ledger: Path) -> dict[str, Any]:
    """Return the limits that the steward states beside a ledger; nothing if there is no such file."""
    files = LedgerFiles(ledger)
    try:
        values = tomllib.loads(read_owned(files.limits, files.database).decode("utf-8"))
        section = read_section(PolicySection, "policy", values)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(
            f"{files.limits}: cannot be read ({error.strerror}); the steward's limits must be a regular file, no link"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, InputError) as error:
        raise InputError(f"{files.limits}: {error}") from None
    return {name: getattr(section, name) for name in values}
