"""Consent resources made by hand, and ledgers to import them into."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rpdp import BudgetTable
from rpdp.consent import ConsentMap, read_consents
from rpdp.ledger import Ledger, StewardKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rpdp.consent import ConsentImport

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
SYSTEM = "urn:example:choices"
SCOPE = "http://terminology.hl7.org/CodeSystem/consentscope"
CHOICES = {"broad": (2.0, 1e-3), "narrow": (0.5, 1e-3), "tiny": (0.1, 5e-4)}

MAP = f"""
format = 1
time_zone = "Europe/Berlin"
ledger_id = "subject"
other_codes = ["{SYSTEM}|newsletter"]

[choices]
"{SYSTEM}|broad" = {{ epsilon = 2.0, delta = 1e-3 }}
"{SYSTEM}|narrow" = {{ epsilon = 0.5, delta = 1e-3 }}
"{SYSTEM}|tiny" = {{ epsilon = 0.1, delta = 5e-4 }}
"{SYSTEM}|none" = {{ use = false }}
1 = {{ epsilon = 2.0, delta = 1e-3 }}
2 = {{ epsilon = 0.5, delta = 1e-3 }}
0 = {{ use = false }}

[fhir]
version = "VERSION"
scope = ["{SCOPE}|research"]
r5_provisions = "constraints"

[table]
person = "record_id"
choice = "consent"
written = "consent_date"
status = "consent_status"
ends = "consent_until"
active = ["1"]
ended = ["0", "withdrawn"]
"""


def the_map(directory: Path, version: str = "R4B", **changes: str) -> ConsentMap:
    """The map above, with some texts replaced."""
    text = MAP.replace("VERSION", version)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = directory / "consent.toml"
    path.write_text(text, encoding="utf-8")
    return ConsentMap.read(path)


def concept(code: str, system: str = SYSTEM) -> dict[str, Any]:
    return {"coding": [{"system": system, "code": code}]}


def consent(
    name: str,
    person: str,
    code: str | None = "broad",
    *,
    status: str = "active",
    written: str | None = "2026-05-03",
    kind: str | None = "permit",
    version: str = "R4B",
    period: Mapping[str, str] | None = None,
    scope: str = "research",
    **more: Any,
) -> dict[str, Any]:
    """A resource with one provision."""
    provision: dict[str, Any] = {} if code is None else {"code": [concept(code)]}
    if period is not None:
        provision["period"] = dict(period)
    resource: dict[str, Any] = {"resourceType": "Consent", "id": name, "status": status}
    if version == "R4B":
        provision |= {} if kind is None else {"type": kind}
        resource |= {
            "scope": concept(scope, SCOPE),
            "category": [concept("59284-0", "http://loinc.org")],
            "patient": {"reference": f"Patient/{person}"},
            "policyRule": {"text": "the hospital's policy"},
            "provision": provision,
        }
        resource |= {} if written is None else {"dateTime": written}
    else:
        resource |= {
            "category": [concept(scope, SCOPE)],
            "subject": {"reference": f"Patient/{person}"},
            "provision": [provision],
        }
        resource |= {} if kind is None else {"decision": kind}
        resource |= {} if written is None else {"date": written}
    return {**resource, **more}


def bundle(*resources: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": one} for one in resources], **more}


def written(directory: Path, document: object, name: str = "consents.json") -> Path:
    path = directory / name
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def read(directory: Path, *resources: Mapping[str, Any], version: str = "R4B", now: datetime = NOW) -> ConsentImport:
    return read_consents(written(directory, bundle(*resources)), the_map(directory, version), now)


def ledger(
    directory: Path,
    persons: Mapping[str, Sequence[str]],
    *,
    epsilon: float = 1.0,
    delta: float = 1e-3,
    account: str = "sums",
    key: StewardKey | None = None,
) -> Ledger:
    """A ledger with these records of each person."""
    ids = [record for records in persons.values() for record in records]
    subjects = [person for person, records in persons.items() for _ in records]
    count = len(ids)
    table = BudgetTable(ids, [epsilon] * count, delta=[delta] * count, subjects=subjects)
    return Ledger.create(
        directory / "ledger.db",
        table,
        kind="production",
        lifetime_delta=delta,
        steward=None if key is None else key.public,
        account=account,  # type: ignore[arg-type]
    )


def budgets_of(opened: Ledger, persons: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The ε of each person in force, and whether the person has withdrawn."""
    found: dict[str, Any] = {}
    for person, records in persons.items():
        accounts = [opened.explain(record) for record in records]
        found[person] = (sum(one.epsilon for one in accounts), all(one.withdrawn for one in accounts))
    return found
