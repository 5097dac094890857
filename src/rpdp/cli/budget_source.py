"""Where `rpdp plan` and `rpdp frontier` take budgets from: the silo's file, a declared distribution, or both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.cli import options
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.budgets import BudgetTable

DistributionName = Annotated[
    str | None,
    typer.Option("--distribution", help="A declared distribution, to choose σ from or to use instead of a file."),
]
NominalRecords = Annotated[
    int | None, typer.Option("--records", "-n", help="With --distribution: how many records to assume (1000).")
]
Parameters = Annotated[
    str | None, typer.Option("--parameters", help="With --distribution: paper (default) or authors.")
]
DistributionSettings = Annotated[
    list[str] | None, typer.Option("--set", help="With --distribution: levels=1,3,10. Repeatable.")
]
NoiseMultipliers = Annotated[
    str | None, typer.Option("--noise-multipliers", help="The σ values to compare, separated by commas.")
]

_NOMINAL_RECORDS = 1000


@dataclass(frozen=True)
class BudgetSource:
    """The budgets that the options name: at least one of the two is there."""

    declared: BudgetTable | None
    real: BudgetTable | None

    @property
    def public(self) -> BudgetTable:
        """What public settings are chosen from: the declared budgets where there are any, else the real ones."""
        chosen = self.real if self.declared is None else self.declared
        assert chosen is not None
        return chosen

    @property
    def planned(self) -> BudgetTable:
        """What is planned for: the silo's own budgets where there are any, else the declared ones."""
        chosen = self.declared if self.real is None else self.real
        assert chosen is not None
        return chosen

    @property
    def is_declared(self) -> bool:
        """Whether public settings come from declared budgets, so that choosing them reveals nothing."""
        return self.declared is not None


def read_source(
    file: Path | None,
    distribution: str | None,
    records: int | None,
    parameters: str | None,
    settings: list[str] | None,
) -> BudgetSource:
    """Read the file, draw from the distribution; refuse options that would do nothing."""
    from rpdp.budgets import BudgetTable

    refuse_unused({"--records": records, "--parameters": parameters, "--set": settings}, distribution, "--distribution")
    declared = None if distribution is None else _draw(distribution, records, parameters, settings)
    real = None if file is None else BudgetTable.read(file)
    if declared is None and real is None:
        raise InputError("give --budgets FILE, or --distribution NAME with --records N, or both")
    return BudgetSource(declared, real)


def refuse_unused(given: dict[str, object], needed: object, needs: str) -> None:
    """Refuse options that have no effect without another one: they would be a misunderstanding."""
    unused = [name for name, value in given.items() if value is not None]
    if unused and needed is None:
        raise InputError(f"{' and '.join(unused)} only go{'' if len(unused) > 1 else 'es'} with {needs}")


def _draw(distribution: str, records: int | None, parameters: str | None, settings: list[str] | None) -> BudgetTable:
    from rpdp.budgets import distribution as named

    chosen = named(distribution, parameters or "paper", options.overrides_of(settings or []))
    return options.sampled(chosen, _NOMINAL_RECORDS if records is None else records, seed=0, prefix="nominal")
