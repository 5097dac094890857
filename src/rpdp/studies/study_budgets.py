"""The budgets of a run: drawn from a distribution for a seed, or read from each silo's file."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets import BudgetTable
from rpdp.errors import BudgetError
from rpdp.methods import Declared
from rpdp.planning import DECLARED_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rpdp.studies.study_data import SiloSource
    from rpdp.studies.study_file import StudyFile


def load_budgets(spec: StudyFile, silos: Mapping[str, SiloSource], seed: int) -> dict[str, BudgetTable]:
    """Return one budget table for each silo."""
    if spec.budgets.files is None:
        return {name: drawn_budgets(spec, name, held.ids, seed, held.subjects) for name, held in silos.items()}
    files = spec.budgets.files
    missing = [name for name in silos if name not in files]
    spare = [name for name in files if name not in silos]
    if missing or spare:
        wrong = {"missing": missing, "unknown": spare}
        listed = "; ".join(f"{what}: {', '.join(names)}" for what, names in wrong.items() if names)
        raise BudgetError(f"{spec.path}: budgets.files must name exactly the silos {', '.join(silos)}; {listed}")
    return {name: _read(spec, name, files[name], held) for name, held in silos.items()}


def _read(spec: StudyFile, silo: str, file: str, held: SiloSource) -> BudgetTable:
    """Read the budgets of one silo, in the order of its records. Persons stand in a file of their own or the data."""
    named = (spec.budgets.records or {}).get(silo)
    persons = None if held.subjects is None else (held.ids, held.subjects)
    table = BudgetTable.read(spec.directory / file, records=persons if named is None else spec.directory / named)
    try:
        found = table.arranged(held.ids)
        require_same_persons(found, held.subjects)
    except BudgetError as error:
        raise BudgetError(f"{spec.path}: budgets.files: silo {silo}: {error}") from None
    return found


def require_same_persons(budgets: BudgetTable, subjects: Sequence[str] | None) -> None:
    """Refuse budgets that name other persons than the table, because the promise would be for other units."""
    if subjects is None:
        return
    if budgets.subjects is None:
        raise BudgetError(
            "the table names the person behind each record, but the budget file has no column subject; with it, a "
            "person's budget covers all their records"
        )
    differ = sum(one != other for one, other in zip(budgets.subjects.to_pylist(), subjects, strict=True))
    if differ:
        raise BudgetError(f"{differ:,} records belong to one person in the table and to another in the budget file")


def drawn_budgets(
    spec: StudyFile, silo: str, ids: Sequence[str], seed: int = 0, subjects: Sequence[str] | None = None
) -> BudgetTable:
    """Draw made-up budgets for the records, or the persons, of one silo from the distribution that the file names."""
    persons = list(dict.fromkeys(ids if subjects is None else subjects))
    drawn = spec.declared_distribution.sample(len(persons), _seed_of(seed, silo))
    if subjects is None:
        return BudgetTable(ids, drawn)
    of_person = dict(zip(persons, drawn.tolist(), strict=True))
    return BudgetTable(ids, [of_person[each] for each in subjects], subjects=subjects)


def declared(spec: StudyFile, silos: Mapping[str, SiloSource], ceiling: float) -> tuple[Declared, str | None]:
    """Return what is publicly known before any real budget, and a note on what the promise does not cover."""
    sample = spec.declared_distribution.sample(DECLARED_SAMPLE, 0)
    records, note = spec.budgets.records_per_silo, None
    if records is None:
        records = max(1, round(float(np.mean([len(held.train) for held in silos.values()]))))
        note = (
            f"not covered: the normaliser comes from the mean number of training records of a silo, {records:,}; "
            "declare budgets.records_per_silo to have it covered"
        )
    return Declared(sample, records, ceiling), note


def _seed_of(seed: int, silo: str) -> int:
    """Return a seed for the budgets of one silo that does not depend on the other silos."""
    return int.from_bytes(hashlib.sha256(f"budgets/{seed}/{silo}".encode()).digest()[:8], "little")
