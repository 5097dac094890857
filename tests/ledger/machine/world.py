"""The files of a ledger, what the server remembers, what everybody sees from outside, and the checks after each step.

The promises, as the documentation makes them:

| what happened to the files | what must follow |
|---|---|
| a process was killed, a command failed | all events still stand; what was asked is there once, or not at all |
| the database is older than a note beside it | no writer opens it |
| no note can be read | a writer opens it only with the head that the server has, and only if it holds that head |
| the database and its notes are older | a ledger cannot know: it goes on, unless the server's head is newer |
| the database and its log do not belong together | no writer opens it, unless everything in it is a state that it had |
| an inbox is older | actions that were not booked are gone, booked ones are booked once |
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.ledger.machine import model
from tests.ledger.machine.model import ACTIONS, Event, History, Order, Orders
from tests.ledger.machine.processes import ERROR, Outcome, Process, Trouble

LIFETIMES = {"a": Fraction(2), "b": Fraction(4), "c": Fraction(1), "d": Fraction(1)}
"""Records c and d are of one person, whose budget of 2 is divided between them."""

PEOPLE = {"c": "person", "d": "person"}
DATABASE, LOG, NOTES, INBOX, SERVER = "database", "log", "notes", "inbox", "server"
PARTS = (DATABASE, LOG, NOTES, INBOX, SERVER)
Head = tuple[str, int, str]
_SLOT = 512


@dataclass(frozen=True)
class Attempt:
    """What a command asked for: an event of this kind may appear."""

    kind: str
    run: str = ""
    number: int = 0
    joined: bool = False
    detail: Any = None
    expires: float | None = None


NOTHING = Attempt("nothing")


@dataclass
class Writer:
    """A process that may hold the ledger open."""

    process: Process
    is_open: bool = False
    is_calm: bool = False
    """Whether nothing has disturbed it since it opened the ledger: then what is allowed must succeed."""


@dataclass(frozen=True)
class Backup:
    """A copy of every part: bytes, None for a file that was not there, names and bytes for the inbox."""

    files: dict[str, Any]


class World:
    """One ledger, two writers, a server, stewards, and somebody who looks from outside."""

    def __init__(self, directory: Path, template: Path, observer: Process) -> None:
        shutil.copytree(template, directory, dirs_exist_ok=True)
        self.path = directory / "ledger.db"
        self.inbox = directory / "ledger.db.inbox"
        self.writers = (Writer(Process()), Writer(Process()))
        self.clock = 0.0
        self.server: Head | None = None
        self.orders = Orders()
        self._observer = observer
        self._known: dict[bytes, History] = {}
        self.history: History | None = ()
        """The events in the file; None if the file holds no state that it ever had."""

        self.is_suspect = False
        """Whether parts of the file may belong to different times."""

        self.is_order_lost = False
        """Whether orders came back into the inbox, so that their turn is not known any more."""

        self.is_checked = False
        """Whether nothing has changed since the last check."""

        self.outcomes = Counter[tuple[str, str]]()
        """How often each command ended how."""

        self._latest: tuple[Backup, bool, bool] | None = None
        """The files before somebody laid hands on them, with what was known of them."""

        self._follow(Attempt("create", detail=LIFETIMES), set())

    def end(self) -> None:
        for writer in self.writers:
            writer.process.kill()

    # What is there

    def read(self, part: str) -> Any:
        if part == INBOX:
            return {one.name: one.read_bytes() for one in self.inbox.iterdir()}
        if part == SERVER:
            return self.server
        file = self.file(part)
        return file.read_bytes() if file.exists() else None

    def write(self, part: str, content: Any) -> None:
        self.is_checked = False
        if part == INBOX:
            shutil.rmtree(self.inbox)
            self.inbox.mkdir(mode=0o700)
            for name, data in content.items():
                (self.inbox / name).write_bytes(data)
        elif part == SERVER:
            self.server = content
        elif content is None:
            self.file(part).unlink(missing_ok=True)
        else:
            self.file(part).write_bytes(content)

    def file(self, part: str) -> Path:
        ending = {DATABASE: "", LOG: "-wal", NOTES: ".head"}[part]
        return self.path.with_name(f"{self.path.name}{ending}")

    def actions(self) -> dict[str, str]:
        """The names and kinds of the actions in the inbox: a file has a format, a signature, and a header with both."""
        headers = [json.loads(one.read_bytes().split(b"\n", 3)[2]) for one in sorted(self.inbox.glob("*.action"))]
        return {header["name"]: header["kind"] for header in headers}

    def names(self) -> set[str]:
        """The actions in the inbox."""
        return set(self.actions())

    def pending(self, names: set[str] | None = None) -> list[str]:
        """The actions in the inbox that the file does not hold yet, in the order of the stewards."""
        booked = {event.detail for event in self.history or () if event.kind in ACTIONS}
        return self.orders.in_turn((self.names() if names is None else names) - booked)

    def notes(self) -> list[dict[str, Any]]:
        """The notes that can be read: each a slot with its checksum."""
        content = self.read(NOTES) or b""
        found = []
        for start in range(0, len(content), _SLOT):
            check, _, text = content[start : start + _SLOT].decode("ascii", "replace").strip().partition(" ")
            if text and hashlib.sha256(text.encode()).hexdigest()[:16] == check:
                found.append(json.loads(text))
        return found

    def holds(self, head: Head) -> bool:
        """Whether the file holds the event of a public head."""
        return any(e.public == (head[1], bytes.fromhex(head[2])) for e in self.history or () if e.public)

    def must_refuse(self, acknowledged: Head | None) -> str | None:
        """Why no writer may open the ledger now; None if one may."""
        if self.history is None:
            return "it holds no state that it ever had"
        notes = self.notes()
        if not notes and acknowledged is None:
            return "no note can be read, and no head was given"
        heads = {event.head.hex() for event in self.history}
        if any(note["head"] not in heads for note in notes):
            return "it is older than a note, or another"
        if acknowledged is not None and not self.holds(acknowledged):
            return "it is older than the server's head, or another"
        return None

    # Steps

    def command(
        self, writer: Writer, attempt: Attempt, name: str, *arguments: Any, trouble: Trouble | None = None
    ) -> Outcome:
        """Run a command in a process, and take over what it did. `attempt` says what it may do."""
        before = self.names()
        outcome = writer.process.run(name, *arguments, clock=self.clock, trouble=trouble)
        self.outcomes[name, outcome.kind] += 1
        assert outcome.kind != ERROR, f"{name} ended with an exception that is no refusal:\n{outcome.value}"
        if outcome.kind != "ok":
            writer.is_calm = False
        if outcome.kind == "killed":
            writer.is_open = False
            assert trouble is not None, f"{name} ended its process"
        if attempt.kind in ACTIONS:
            self._take_order(attempt, before, must=outcome.is_ok)
        else:
            assert self.names() <= before, f"{name} put actions into the inbox"
        self._follow(attempt, before | self.names())
        gone = before - self.names()
        self.is_checked &= before == self.names()
        assert not gone & set(self.pending(before)), f"{name} removed actions that are not booked"
        return outcome

    def restore(self, backup: Backup, parts: frozenset[str]) -> None:
        """Put parts of a backup back, while no process has the ledger open."""
        for writer in self.writers:
            writer.process.kill()
            writer.is_open = False
        self.lay_hands()
        inbox = self.names()
        if len(parts & {DATABASE, LOG}) == 1:
            self.is_suspect = True
        elif parts >= {DATABASE, LOG}:
            self.is_suspect = False
        for part in parts:
            self.write(part, backup.files[part])
        returned = self.names() - inbox
        self.is_order_lost |= bool(returned)
        self.history = self._history_in_file()

    def lay_hands(self) -> None:
        """Remember the latest files before they are changed by hand."""
        if self._latest is None:
            self._latest = self.backup(), self.is_suspect, self.is_order_lost

    def put_back(self) -> None:
        """Put the latest files back, as every refusal advises, if they are known and nobody has the ledger open."""
        if self._latest is not None and not any(writer.is_open for writer in self.writers):
            backup, is_suspect, is_order_lost = self._latest
            self.restore(backup, frozenset(PARTS))
            self._latest, self.is_suspect, self.is_order_lost = None, is_suspect, is_order_lost

    def accept(self) -> None:
        """A writer has opened the ledger: from now on it must be a whole one, and these files are the latest."""
        self.is_checked, self.is_suspect, self._latest = False, False, None

    def backup(self) -> Backup:
        return Backup({part: self.read(part) for part in PARTS})

    def _take_order(self, attempt: Attempt, before: set[str], *, must: bool) -> None:
        """Take over a new order. To raise a person's ε, the parts of δ are lowered first, in an action of its own."""
        new = {name: kind for name, kind in self.actions().items() if name not in before}
        assert list(new.values()) in ([], [attempt.kind], ["lower"], ["lower", attempt.kind])
        assert attempt.kind in new.values() or not must, "an action is said to be in force, but is not in the inbox"
        records, epsilon = attempt.detail
        for name, kind in new.items():
            order = Order(len(self.orders.given), kind, records, epsilon if kind == attempt.kind else None)
            self.orders.given[name] = order

    # What is seen from outside

    def _rows(self) -> list[tuple[Any, ...]] | str:
        rows = self._observer.run("events", str(self.path))
        assert rows.is_ok, rows.value
        found: list[tuple[Any, ...]] | str = rows.value
        return found

    def _history_in_file(self) -> History | None:
        """The events in the file, if this is a state that the ledger had."""
        rows = self._rows()
        if isinstance(rows, str) or not rows:
            return None
        history = self._known.get(bytes(rows[-1][6]))
        same = history is not None and [event.head for event in history] == [bytes(row[6]) for row in rows]
        return history if same else None

    def _follow(self, attempt: Attempt, names: set[str]) -> None:
        """Take over new events: actions of these names, then what was asked for; nothing else, and nothing is lost."""
        if self.history is None:
            return
        rows = self._rows()
        assert not isinstance(rows, str), f"the file cannot be read: {rows}"
        old = [event.head for event in self.history]
        assert [bytes(row[6]) for row in rows[: len(old)]] == old, "events that stood are gone or changed"
        for row in rows[len(old) :]:
            self.is_checked, self._latest = False, None
            self._append(row, attempt, names)

    def _append(self, row: tuple[Any, ...], attempt: Attempt, names: set[str]) -> None:
        assert self.history is not None
        seq, kind, run, number, joined, payload, head, count, public_head = row
        assert seq == len(self.history) + 1
        facts = json.loads(payload)
        detail = attempt.detail
        if kind in ACTIONS:
            detail = facts["action"]
            self._require_turn(kind, detail, names)
        else:
            detail = self._require_asked(attempt, kind, run, number, bool(joined), facts)
        public = None if count is None else (count, bytes(public_head))
        expires = attempt.expires if kind == "admit" else None
        event = Event(kind, run, number, bool(joined), detail, bytes(head), public, expires)
        self.history = (*self.history, event)
        self._known[event.head] = self.history

    def _require_turn(self, kind: str, name: str, names: set[str]) -> None:
        """An action is booked once, from the inbox, in its turn."""
        pending = self.pending(names)
        assert name in pending, f"action {name} was booked twice, or is not in the inbox"
        assert self.orders.given[name].kind == kind
        assert self.is_order_lost or name == pending[0], "actions are booked in another order than they were given"

    def _require_asked(
        self, attempt: Attempt, kind: str, run: str, number: int, joined: bool, facts: dict[str, Any]
    ) -> Any:
        """Return the detail of an event that was asked for and that the model allows."""
        history = self.history or ()
        if kind == "prune":
            assert attempt.kind == "prune"
            return facts["run"]
        if kind == "cancel":
            assert model.is_held(history, run), f"run {run!r} gave back what it had spent, or gave it back twice"
            asked = attempt.run if attempt.kind == "cancel" else None
            assert run in ({asked} if facts["by"] != "expiry" else model.due(history, self.clock))
            return facts["by"]
        assert (kind, run, number) == (attempt.kind, attempt.run, attempt.number), f"nobody asked for {kind} {run!r}"
        if kind == "admit":
            assert run not in model.admitted(history), f"run {run!r} was admitted twice"
            self._require_fit(attempt)
        if kind == "charge":
            assert run in model.live(history), f"run {run!r} was cancelled, and is charged"
            assert run not in model.due(history, self.clock), f"the hold of run {run!r} had expired"
            assert number > model.last_round(history, run), f"round {number} has a second coin"
            assert joined == attempt.joined
        if kind == "release":
            assert model.has_joined(history, run, number), f"round {number} was released and not charged as joined"
            assert model.of_round(history, "release", run, number) is None, f"round {number} was released twice"
            assert facts["sha256"] == hashlib.sha256(attempt.detail).hexdigest()
        return attempt.detail

    def _require_fit(self, attempt: Attempt) -> None:
        found = model.accounts(self.history or (), self.orders)
        for record, cost in attempt.detail.items():
            account = found[record]
            assert not account.withdrawn, f"run {attempt.run!r} books for record {record}, which was withdrawn"
            assert cost <= account.left, (
                f"record {record}: lifetime {float(account.lifetime)}, booked {float(account.booked + cost)} "
                f"once run {attempt.run!r} was admitted"
            )

    def check(self) -> None:
        """A reader sees what the model says, and `verify` finds nothing."""
        if self.is_checked or self.history is None or self.is_suspect:
            return
        self.is_checked = True
        expected = model.accounts(self.history, self.orders, self.pending())
        seen = self._observer.run("inspect", str(self.path), list(expected))
        if any(note["head"] not in {event.head.hex() for event in self.history} for note in self.notes()):
            assert not seen.is_ok or seen.value[1], "verify does not find that the ledger is older than its notes"
            return
        assert seen.is_ok, f"a reader is refused: {seen.value}"
        found, findings = seen.value
        if not self.notes():  # of which `verify` may complain
            findings = [finding for finding in findings if ".head cannot be read" not in finding]
        assert findings == [], f"verify: {findings}"
        if not (self.is_order_lost and len(self.pending()) > 1):
            self._compare(expected, found)

    def _compare(self, expected: dict[str, model.Account], found: dict[str, Any]) -> None:
        for record, account in expected.items():
            lifetime, booked, delta, booked_delta, withdrawn = found[record]
            assert Fraction(lifetime) == account.lifetime, (
                f"record {record}: the stewards ordered {float(account.lifetime)}, in force is {lifetime}"
            )
            assert booked == model.units(account.booked), (
                f"record {record}: booked is {booked / model.EPSILON_UNITS}, not {float(account.booked)}"
            )
            per_run = model.units(Fraction(model.DELTA), model.DELTA_UNITS)
            assert booked_delta == account.runs * per_run <= model.units(Fraction(delta), model.DELTA_UNITS)
            assert withdrawn == account.withdrawn
