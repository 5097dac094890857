"""Import consent into a ledger: read everything, decide, show the difference, then all of it or nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rpdp.budgets.budget_files import check_ending, write_columns
from rpdp.consent.consent_statements import Decisions, decide
from rpdp.consent.consent_tables import read_table
from rpdp.consent.fhir_consent import read_fhir
from rpdp.errors import InputError
from rpdp.private_files import read_regular

if TYPE_CHECKING:
    from rpdp.consent.consent_map import ConsentMap
    from rpdp.ledger import Ledger, StewardKey
    from rpdp.ledger.stewardship.wanted_budgets import BudgetChanges

_RUN_BY_SPREADSHEETS = ("=", "+", "-", "@")


@dataclass(frozen=True)
class ConsentImport:
    """What a file says of every person, by a map.

    Attributes:
        decisions: What counts for each person.
        consent_map: The map.
        digest: SHA-256 of the file.
    """

    decisions: Decisions
    consent_map: ConsentMap
    digest: str

    def provenance(self, reason: str = "") -> str:
        """The reason of all actions of this import: what was said, the file and the map by their SHA-256."""
        source = f"consent sha256:{self.digest} map sha256:{self.consent_map.digest}"
        return f"{reason.strip()}; {source}" if reason.strip() else source

    def changes(
        self, ledger: Ledger, *, only_less: bool = False, reason: str = "", actor: str | None = None
    ) -> BudgetChanges:
        """What importing it would change now."""
        wanted = self.decisions.wanted(self.consent_map)
        return ledger.changes(wanted, only_less=only_less, reason=self.provenance(reason), actor=actor)

    def bring_about(
        self,
        ledger: Ledger,
        *,
        key: StewardKey | None = None,
        only_less: bool = False,
        reason: str = "",
        actor: str | None = None,
        budgets: str | Path | None = None,
    ) -> BudgetChanges:
        """Import it: all of it, or nothing. `budgets` is a file for those who are not in the ledger yet."""
        file = None if budgets is None else Path(budgets)
        if file is not None:
            self._write_unknown(ledger, file)
        try:
            return ledger.bring_about(
                self.decisions.wanted(self.consent_map),
                key=key,
                only_less=only_less,
                reason=self.provenance(reason),
                actor=actor,
            )
        except BaseException:
            if file is not None:
                file.unlink(missing_ok=True)
            raise

    def _write_unknown(self, ledger: Ledger, path: Path) -> None:
        """Write the budgets of persons who are not in the ledger and allow use."""
        check_ending(path)
        wanted = self.decisions.wanted(self.consent_map)
        new = [row for row in ledger.changes(wanted).unknown if self.decisions.latest[row].kind == "allows"]
        for row in new:
            if wanted.names[row].startswith(_RUN_BY_SPREADSHEETS):
                raise InputError(
                    f"{self.decisions.latest[row].place}: the id {wanted.names[row]!r} would be run as a formula by a "
                    f"spreadsheet, so it is not written to {path}; nothing was changed"
                )
        names = pa.chunked_array([pa.array([wanted.names[row] for row in new], pa.string())])
        columns = {
            "subject" if self.consent_map.are_subjects else "record": names,
            "epsilon": pa.chunked_array([pa.array(wanted.epsilon[new], pa.float64())]),
            "delta": pa.chunked_array([pa.array(wanted.delta[new], pa.float64())]),
        }
        if new:
            write_columns(path, columns)


def read_consents(path: str | Path, consent_map: ConsentMap, now: datetime | None = None) -> ConsentImport:
    """Read a bundle (JSON) or a table (CSV). Whatever is wrong in it is an error that names the resource or line."""
    path, now = Path(path), now or datetime.now(UTC)
    try:
        content = read_regular(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        if path.suffix.lower() == ".csv":
            statements, passed_over = read_table(content, consent_map, now), dict[str, int]()
        else:
            statements, passed_over = read_fhir(content, consent_map, now)
        decisions = decide(statements, now, passed_over)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return ConsentImport(decisions, consent_map, hashlib.sha256(content).hexdigest())
