"""The JSON file of an audit: written by `rpdp audit`, read again for a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rpdp.audit.audit_result import AuditResult, GroupFinding
from rpdp.audit.conformance import Test
from rpdp.audit.lower_bound import Cut, LowerBound
from rpdp.audit.run_audit import FORMAT, RunAudit
from rpdp.errors import InputError
from rpdp.private_files import private_file

if TYPE_CHECKING:
    from pathlib import Path


def write_json(path: Path, value: dict[str, Any]) -> Path:
    """Write a JSON file that only its owner can read: an audit tells how many records a silo has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with private_file(path, overwrite=True) as file:
        file.write(text.encode())
    return path


def read_audit(path: Path) -> RunAudit:
    """Read an audit with canaries that `rpdp audit` has written."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if (value["format"], value["kind"]) != (FORMAT, "canaries"):
            raise InputError(f"{path}: not an audit with canaries of format {FORMAT}")
        beside, alone = (_result(value[name]) for name in ("beside", "alone"))
        served = value.get("served")  # audits of earlier versions have none
        return RunAudit(value["method"], value["silo"], beside, alone, None if served is None else _result(served))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not an audit: {type(error).__name__}: {error}") from None


def _result(value: dict[str, Any]) -> AuditResult:
    apart = ("groups", "tests", "ledger")
    # Audits of earlier versions were of training, with single records in one silo.
    newer = {"records_per_person": 1, "silos": 1, "purpose": "training"}
    own: dict[str, Any] = {
        name: (newer | value)[name] for name in AuditResult.__dataclass_fields__ if name not in apart
    }
    ledger = value.get("ledger")
    return AuditResult(
        **own,
        groups=tuple(map(_group, value["groups"])),
        tests=tuple(Test(**each) for each in value["tests"]),
        ledger=None if ledger is None else tuple(ledger),
    )


def _group(value: dict[str, Any]) -> GroupFinding:
    own = {name: value[name] for name in GroupFinding.__dataclass_fields__ if name != "bound"}
    bound = value["bound"]
    return GroupFinding(**own, bound=LowerBound(**{**bound, "cut": Cut(**bound["cut"])}))
