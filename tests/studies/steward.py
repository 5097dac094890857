"""A steward with ledgers of two silos and the file of a real run, who types commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets import BudgetTable
from rpdp.cli.run import run
from rpdp.ledger import Ledger
from tests.studies.toy import Change, write_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

SILOS = ("a", "b")
REAL: list[Change] = [
    ("task.data", "two"),
    ("privacy.delta", "1e-4"),
    ("budgets.distribution", None),
    ("budgets.files", '{ a = "a.csv", b = "b.csv" }'),
    ("budgets.declared", '"ThreeLevels"'),
    ("run.seeds", None),
    ("run.id", '"spring"'),
    ("run.output", '"study"'),
    ("ledgers.a", '"a/ledger.db"'),
    ("ledgers.b", '"b/ledger.db"'),
    ("policy.max_rounds", "60"),
    ("policy.max_local_steps", "5"),
    ("policy.max_participation", "1.0"),
    ("policy.max_clip_norm", "1.0"),
    ("policy.min_noise_multiplier", "1.0"),
    ("policy.lifetime_delta", "1e-3"),
    ("policy.max_runs", "3"),
    ("policy.max_share_per_run", "0.6"),
]
LIMITS = [name.removeprefix("policy.") for name, _ in REAL if name.startswith("policy.")]


def own_limits(home: Path, silo: str) -> Path:
    """The steward's own file beside the ledger of a silo."""
    return home / silo / "ledger.db.policy.toml"


@dataclass
class Steward:
    """Types commands in a directory of its own."""

    home: Path
    capsys: pytest.CaptureFixture[str]
    out: str = ""
    err: str = ""

    def types(self, *arguments: object) -> int:
        self.capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        self.out, self.err = (" ".join(text.split()) for text in self.capsys.readouterr())
        return code

    def writes(self, *changes: Change, name: str = "run.toml") -> Path:
        """Write the study file, and the limits of both silos beside their ledgers, where they count."""
        limits: dict[str, str | None] = dict.fromkeys(LIMITS)
        for key, value in (*REAL, *changes):
            if key == "policy":
                limits = dict.fromkeys(LIMITS)
            elif key.removeprefix("policy.") in limits:
                limits[key.removeprefix("policy.")] = value
        for silo in SILOS:
            (self.home / silo).mkdir(exist_ok=True)
            stated = "".join(f"{limit} = {value}\n" for limit, value in limits.items() if value is not None)
            own_limits(self.home, silo).write_text(stated)
        return write_run(self.home, *REAL, *changes, name=name)

    def creates(self, *options: str, budgets: Sequence[float] = (0.3, 1.0, 1.0, 5.0)) -> None:
        for silo in SILOS:
            ids = [f"{silo}-{row}" for row in range(40)]
            BudgetTable(ids, np.resize(budgets, 40)).write(self.home / f"{silo}.csv")
            (self.home / silo).mkdir(exist_ok=True)
            more = ["--budgets", f"{silo}.csv", "--lifetime-delta", "1e-3", *options]
            assert self.types("ledger", "create", f"{silo}/ledger.db", *more) == 0

    def runs(self, silo: str) -> list[tuple[str, int]]:
        """Runs and announced rounds, after checking the whole ledger."""
        with Ledger.read(self.home / silo / "ledger.db") as ledger:
            assert ledger.verify().is_good
            return [(status.run, status.announced) for status in ledger.status().runs]
