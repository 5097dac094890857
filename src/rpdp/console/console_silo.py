"""The silo that a console shows: its ledger, its steward's key if there is one, what was counted, what is running."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.console.background_jobs import BackgroundJob
from rpdp.console.console_jobs import (
    CountedBudgets,
    audit_build,
    count_budgets,
    look_ahead,
    pack_for_auditor,
    verify_ledger,
)
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Ledger
from rpdp.ledger.store.ledger_files import LedgerFiles
from rpdp.private_files import private_file, read_owned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.deployment.files.silo_file import SiloFile
    from rpdp.ledger import StewardKey

RESULTS_FORMAT = "rpdp-console-results/1"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MOST_FORECASTS = 32


class ConsoleSilo:
    """One silo, as its console knows it. Refused if others could read the ledger.

    Args:
        spec: The silo file.
        key: The steward's private key, for actions; without it the console only shows.
    """

    def __init__(self, spec: SiloFile, key: StewardKey | None = None) -> None:
        self.spec, self._key = spec, key
        self.path = spec.file(spec.silo.ledger)
        self.files = LedgerFiles(self.path)
        require_unread(self.files)
        with self.ledger() as ledger:
            self._require_steward(ledger, key)
            self.ledger_id, self.records = ledger.id, len(ledger.records)
        self._turn = threading.Lock()
        self._counted: CountedBudgets | None = None
        self._counted_at: object = None
        self._counting: tuple[object, BackgroundJob[CountedBudgets]] | None = None
        self._forecasts: dict[str, BackgroundJob[Any]] = {}
        self._jobs: dict[str, BackgroundJob[dict[str, Any]]] = {}
        self._scratch = tempfile.TemporaryDirectory(prefix="rpdp-console-")  # its mode is 0700

    @property
    def key(self) -> StewardKey:
        """The steward's key; refused without one."""
        if self._key is None:
            raise PrivacyRefusal(
                "this console only shows: nothing was changed. Start it with --steward-key for actions, or use the "
                "commands of rpdp ledger"
            )
        return self._key

    @property
    def may_act(self) -> bool:
        """Whether it was started with the steward's key."""
        return self._key is not None

    @staticmethod
    def _require_steward(ledger: Ledger, key: StewardKey | None) -> None:
        if key is None:
            return
        if ledger.steward is None:
            raise PrivacyRefusal(
                f"{ledger.files.database} was created without a steward's key, so no key can act on it: leave out "
                "--steward-key, and use rpdp ledger withdraw and lower"
            )
        if key.public.raw != ledger.steward.raw:
            raise PrivacyRefusal(
                f"this is not the key of the steward of {ledger.files.database}; give the one whose public part it was "
                "created with"
            )

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger as it is now, open for reading, beside whatever writes it."""
        with Ledger.read(self.path) as opened:
            yield opened

    # What was counted

    def counts(self, ledger: Ledger, patience: float = 1.0) -> tuple[CountedBudgets | None, BackgroundJob[Any] | None]:
        """What was counted last, and the job that counts anew if the ledger has changed since."""
        now = _state_of(ledger)
        with self._turn:
            if self._counted is not None and self._counted_at == now:
                return self._counted, None
            if self._counting is None or (
                not self._counting[1].is_running and (self._counting[0] != now or self._counting[1].problem)
            ):
                self._counting = (
                    now,
                    BackgroundJob("Budgets are being counted", count_budgets, self.path, self.spec.policy),
                )
            state, job = self._counting
        job.wait(patience)
        with self._turn:
            if job.result is not None:
                self._counted, self._counted_at = job.result, state
            return self._counted, None if self._counted_at == now else job

    def forecast(self, settings: dict[str, Any]) -> BackgroundJob[Any]:
        """The job that looks ahead with these settings; one that is there already is used again."""
        with self.ledger() as ledger:
            name = repr((sorted(settings.items()), _state_of(ledger) if settings["source"] == "ledger" else None))
        with self._turn:
            if name not in self._forecasts:
                if any(job.is_running for job in self._forecasts.values()):
                    next(job for job in self._forecasts.values() if job.is_running).stop()
                path = self.path if settings["source"] == "ledger" else None
                self._forecasts[name] = BackgroundJob("Looking ahead", look_ahead, path, settings)
                while len(self._forecasts) > _MOST_FORECASTS:
                    del self._forecasts[next(iter(self._forecasts))]
            return self._forecasts[name]

    # Jobs that the steward starts

    def start(self, name: str, **settings: Any) -> None:
        """Start the job of this name, unless it is running."""
        with self._turn:
            if name in self._jobs and self._jobs[name].is_running:
                return
            if name == "verify":
                self._jobs[name] = BackgroundJob("The ledger is being verified", verify_ledger, self.path)
            elif name == "package":
                self._jobs[name] = BackgroundJob(
                    "The auditor's package is being made",
                    pack_for_auditor,
                    self.path,
                    self.spec.silo.name,
                    self.package,
                )
            else:
                per_group = int(settings["per_group"])
                self._jobs[name] = BackgroundJob(
                    "This build is being attacked", audit_build, self.path, self.spec.policy, per_group
                )

    def job(self, name: str) -> BackgroundJob[dict[str, Any]] | None:
        """The last job of this name. What it found is kept beside the ledger."""
        found = self._jobs.get(name)
        if found is not None and found.result is not None and name != "package":
            self._keep(name, found.result)
        return found

    @property
    def package(self) -> Path:
        """The auditor's package, once it was made."""
        return Path(self._scratch.name) / f"auditor-{self.ledger_id[:12]}.zip"

    # Results that outlive the console

    def results(self) -> dict[str, Any]:
        """The last verification and the last audit, by name, as far as they are known."""
        try:
            kept = json.loads(read_owned(self.files.console, self.path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.files.console} cannot be read ({error}); remove it: it holds results only"
            ) from None
        if not isinstance(kept, dict) or kept.get("format") != RESULTS_FORMAT or kept.get("ledger") != self.ledger_id:
            return {}
        return kept

    def _keep(self, name: str, result: dict[str, Any]) -> None:
        kept = self.results()
        if kept.get(name) != result:
            kept |= {"format": RESULTS_FORMAT, "ledger": self.ledger_id, name: result}
            with private_file(self.files.console, overwrite=True) as file:
                file.write(json.dumps(kept, indent=2).encode() + b"\n")

    def close(self) -> None:
        """End all jobs, and remove what was made for downloads."""
        counting = [] if self._counting is None else [self._counting[1]]
        for job in (*self._jobs.values(), *self._forecasts.values(), *counting):
            if job.is_running:
                job.stop()
                job.wait(5.0)
        self._scratch.cleanup()


def require_unread(files: LedgerFiles) -> None:
    """Refuse a ledger that others could read: a page on it is worth no more than its file permissions."""
    for path in (files.database, files.log, files.key, files.rollback_notes, files.inbox, files.console):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if found.st_mode & _OTHERS:
            raise PrivacyRefusal(
                f"{path} can be read by others, so its pages would protect nothing; run `chmod go-rwx {path}`"
            )
        if found.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            raise PrivacyRefusal(f"{path} belongs to another user; run the console as the user of the ledger")


def _state_of(ledger: Ledger) -> object:
    """What budgets depend on: events but charges and releases, how many runs have begun, what waits in the inbox."""
    query = "SELECT seq FROM event WHERE kind NOT IN ('charge', 'release', 'prune') ORDER BY seq DESC LIMIT 1"
    with ledger.reading():
        last = ledger.database.rows(query)
        begun = ledger.database.rows("SELECT count(DISTINCT run) FROM event WHERE kind = 'charge'")
        return last[0][0], begun[0][0], tuple(action.name for action in ledger.pending())
