"""The map of an import: which code means which budget, and where to look for it. A silo declares it once.

Everything in it is checked when it is read; a key that is not known is refused, so that none is misspelled.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rpdp.budgets.validation import LARGEST_EPSILON
from rpdp.checks import require_choice
from rpdp.errors import InputError
from rpdp.private_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
Version = Literal["R4B", "R5"]
_NO_USE = {"use": False}


@dataclass(frozen=True)
class BudgetChoice:
    """What a code means: a budget for life, or, without one, no use at all."""

    epsilon: float | None
    delta: float | None


@dataclass(frozen=True)
class FhirRules:
    """How to read FHIR resources.

    Attributes:
        version: Of FHIR. R4 resources are read as R4B.
        scope: Codes of the scope (R4B) or the category that make a consent one for research; others are passed over.
        patient: Whether a person is called as in the reference to the patient, or by an identifier.
        system: Of that identifier.
        r5_provisions: In R5, whether provisions are exceptions to the decision, or say what it covers.
    """

    version: Version
    scope: frozenset[str]
    patient: Literal["reference", "identifier"]
    system: str | None
    r5_provisions: Literal["exceptions", "constraints"] | None


@dataclass(frozen=True)
class TableRules:
    """The columns of a table, and what its statuses mean."""

    person: str
    choice: str
    written: str
    status: str | None
    ends: str | None
    active: frozenset[str]
    ended: frozenset[str]


@dataclass(frozen=True)
class ConsentMap:
    """A map that was read from a file.

    Attributes:
        choices: By code, what it means: `system|code` of FHIR, or the text of a cell.
        other_codes: Codes that say nothing about the budget.
        are_subjects: Whether the ledger knows these persons as subjects; else each person is one record.
        time_zone: Of dates that name none.
        digest: SHA-256 of the file.
    """

    choices: Mapping[str, BudgetChoice]
    other_codes: frozenset[str]
    are_subjects: bool
    time_zone: ZoneInfo
    fhir: FhirRules | None
    table: TableRules | None
    digest: str

    @classmethod
    def read(cls, path: str | Path) -> ConsentMap:
        """Read a map file."""
        try:
            content = read_regular(Path(path))
            values = tomllib.loads(content.decode("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{path}: not a map of consent: {error}") from None
        try:
            return cls._of(values, hashlib.sha256(content).hexdigest())
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def _of(cls, values: dict[str, Any], digest: str) -> ConsentMap:
        top = _Section("", values)
        if top.take("format", int) != FORMAT:
            raise InputError(f"format must be {FORMAT}")
        zone, names = top.take("time_zone", str), top.take("ledger_id", str)
        require_choice("ledger_id", names, ("subject", "record"))
        choices = {code: _choice(code, what) for code, what in top.take("choices", dict).items()}
        if not choices:
            raise InputError("[choices] is empty; say what at least one code means")
        others = frozenset(_texts("other_codes", top.take("other_codes", list, [])))
        both = sorted(others & set(choices))
        if both:
            raise InputError(f"{both[0]!r} is in [choices] and in other_codes")
        fhir, table = top.take("fhir", dict, None), top.take("table", dict, None)
        top.require_empty()
        try:
            time_zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise InputError(f"time_zone={zone!r} is not known; give one such as Europe/Berlin or UTC") from None
        return cls(
            choices,
            others,
            names == "subject",
            time_zone,
            None if fhir is None else _fhir(fhir),
            None if table is None else _table(table),
            digest,
        )


class _Section:
    """A table of the file, from which known keys are taken one by one."""

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        self._name = f"{name}." if name else ""
        self._values = dict(values)

    def take(self, key: str, kind: type, *default: Any) -> Any:
        if key not in self._values:
            if default:
                return default[0]
            raise InputError(f"{self._name}{key} is missing")
        value = self._values.pop(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InputError(f"{self._name}{key}={value!r} must be of type {kind.__name__}")
        return value

    def require_empty(self) -> None:
        if self._values:
            raise InputError(f"{self._name}{next(iter(self._values))} is not a setting of a map")


def _choice(code: str, what: Any) -> BudgetChoice:
    if what == _NO_USE:
        return BudgetChoice(None, None)
    if not isinstance(what, dict) or set(what) != {"epsilon", "delta"}:
        raise InputError(f"choices.{code!r} must be {{ epsilon = …, delta = … }}, or {{ use = false }}")
    numbers = [what["epsilon"], what["delta"]]
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in numbers):
        raise InputError(f"choices.{code!r}: epsilon and delta must be numbers")
    epsilon, delta = map(float, numbers)
    if not (0.0 < epsilon <= LARGEST_EPSILON and 0.0 < delta < 1.0):
        raise InputError(
            f"choices.{code!r}: epsilon={epsilon:g} must lie between 0 and {LARGEST_EPSILON:g}, and delta={delta:g} "
            "between 0 and 1; for no use at all give { use = false }"
        )
    return BudgetChoice(epsilon, delta)


def _fhir(values: dict[str, Any]) -> FhirRules:
    section = _Section("fhir", values)
    version = section.take("version", str)
    require_choice("fhir.version", version, ("R4B", "R5"))
    scope = frozenset(_texts("fhir.scope", section.take("scope", list)))
    if not scope:
        raise InputError("fhir.scope is empty; name the codes of consents for research")
    patient = section.take("patient", str, "reference")
    require_choice("fhir.patient", patient, ("reference", "identifier"))
    system = section.take("system", str, None)
    if (patient == "identifier") != (system is not None):
        raise InputError('fhir.system goes with fhir.patient = "identifier": the system of that identifier')
    provisions = section.take("r5_provisions", str, None)
    if provisions is not None:
        require_choice("fhir.r5_provisions", provisions, ("exceptions", "constraints"))
    section.require_empty()
    return FhirRules(version, scope, patient, system, provisions)


def _table(values: dict[str, Any]) -> TableRules:
    section = _Section("table", values)
    person, choice, written = (section.take(name, str) for name in ("person", "choice", "written"))
    status, ends = section.take("status", str, None), section.take("ends", str, None)
    active, ended = (frozenset(_texts(f"table.{name}", section.take(name, list, []))) for name in ("active", "ended"))
    section.require_empty()
    if (status is None) == bool(active) or active & ended:
        raise InputError("table.status goes with table.active and table.ended: the texts of either, none in both")
    return TableRules(person, choice, written, status, ends, active, ended)


def _texts(name: str, values: list[Any]) -> list[str]:
    if not all(isinstance(value, str) and value for value in values):
        raise InputError(f"{name} must be a list of texts")
    return values
