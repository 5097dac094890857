"""The steps of the machine: everything that processes, servers, stewards, operators and accidents do to a ledger."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rpdp.ledger.store import crash_points
from tests.ledger.machine import model
from tests.ledger.machine.processes import OK, REFUSED, Outcome, Process, Trouble
from tests.ledger.machine.world import (
    DATABASE,
    LIFETIMES,
    LOG,
    NOTES,
    NOTHING,
    PARTS,
    PEOPLE,
    Attempt,
    Backup,
    World,
    Writer,
)

HOUR = 3600.0
RUNS = ("one", "two", "three", "four")
_SHARES = (Fraction(1), Fraction(1, 2), Fraction(1, 4))
_BUDGETS = (Fraction(5), Fraction(1, 8), Fraction(3))

writers = st.sampled_from([0, 1])
runs = st.sampled_from(RUNS)
rounds = st.integers(1, model.ROUNDS)
coins = st.sampled_from([True, False])
parts_of_a_backup = st.one_of(
    st.sampled_from(
        [frozenset(parts) for parts in ([DATABASE], [LOG], [DATABASE, LOG], [DATABASE, LOG, NOTES], PARTS)]
    ),
    st.frozensets(st.sampled_from(PARTS), min_size=1),
)


def troubles(*steps: str) -> st.SearchStrategy[Trouble | None]:
    """Nothing, more often than not; or a crash or an exception at a labelled point of these steps."""
    labels = [label for label in crash_points.LABELS if label.split(":")[0] in steps]
    some = st.builds(Trouble, st.sampled_from(labels), st.booleans())
    return st.one_of(st.none(), st.none(), some)


def place() -> str | None:
    """A directory in memory, if there is one: syncs cost nothing there."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


@cache
def observer() -> Process:
    """The process that looks at ledgers from outside."""
    return Process()


@cache
def template() -> Path:
    """A ledger that was just created."""
    directory = Path(tempfile.mkdtemp(dir=place(), prefix="rpdp-template-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    budgets = {record: float(lifetime * (2 if record in PEOPLE else 1)) for record, lifetime in LIFETIMES.items()}
    made = observer().run("create", str(directory), budgets, PEOPLE)
    assert made.is_ok, made.value
    return directory


def is_open(machine: LedgerMachine) -> bool:
    """Whether a process has the ledger open."""
    return any(writer.is_open for writer in machine.world.writers)


def is_running(machine: LedgerMachine) -> bool:
    """Whether such a process finds a run in it."""
    return is_open(machine) and bool(model.admitted(machine.world.history or ()))


def is_closed(machine: LedgerMachine) -> bool:
    """Whether a process has not."""
    return not all(writer.is_open for writer in machine.world.writers)


class LedgerMachine(RuleBasedStateMachine):
    """Two processes and their ledger; every invariant is checked after every step."""

    steps: ClassVar[int] = 0
    outcomes: ClassVar[Counter[tuple[str, str]]] = Counter()
    """Of all machines together: steps, and how often each command ended how."""

    most_at_once: ClassVar[int] = 0
    """How many unfinished runs a ledger had at once, at most."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=place(), prefix="rpdp-machine-"))
        self.world = World(self.directory, template(), observer())
        self.backups: list[Backup] = []
        self.made = 0

    def teardown(self) -> None:
        self.world.end()
        self.outcomes.update(self.world.outcomes)
        shutil.rmtree(self.directory)

    @initialize()
    def begin(self) -> None:
        self.backups.append(self.world.backup())

    @invariant()
    def holds(self) -> None:
        LedgerMachine.steps += 1
        LedgerMachine.most_at_once = max(LedgerMachine.most_at_once, len(model.live(self.world.history or ())))
        self.world.check()

    # Helpers

    def _writer(self, number: int, *, is_open: bool = True) -> Writer:
        """This writer, or the other one if only that one has the ledger open (or closed)."""
        chosen = self.world.writers[number]
        return chosen if chosen.is_open == is_open else self.world.writers[1 - number]

    def _run(self, run: str) -> str:
        """This run if it was admitted, else the last one that was and is not over."""
        live = model.live(self._history)
        return live[-1] if live and run not in model.admitted(self._history) else run

    @property
    def _history(self) -> model.History:
        assert self.world.history is not None
        return self.world.history

    def _accounts(self, *, with_pending: bool = True) -> dict[str, model.Account]:
        pending = self.world.pending() if with_pending else ()
        return model.accounts(self._history, self.world.orders, pending)

    def _is_calm(self, writer: Writer) -> bool:
        """Whether this writer is alone and undisturbed."""
        return writer.is_calm and sum(one.is_open for one in self.world.writers) == 1 and not self.world.is_order_lost

    def _expect(self, outcome: Outcome, writer: Writer, *, allowed: bool, was_calm: bool, trouble: Any) -> None:
        """What the model allows succeeds for a calm writer, and nothing else ever does."""
        if allowed and was_calm and trouble is None:
            assert outcome.is_ok, f"an honest request was refused: {outcome.value}"
        if not allowed:
            assert not outcome.is_ok, "a request that must be refused succeeded"
        if outcome.kind == REFUSED and not allowed and was_calm:
            writer.is_calm = True  # a refusal of what is not allowed disturbs nobody

    # Processes

    @rule(
        number=writers,
        run=runs,
        share=st.sampled_from(_SHARES),
        coin=coins,
        trouble=troubles("reserve", "charge", "store"),
    )
    def serve(self, number: int, run: str, share: Fraction, coin: bool, trouble: Trouble | None) -> None:
        """A silo's work in one step: open if need be, admit a new run, and answer its next round."""
        if not is_open(self):
            self.open(number, False, False, True, None)
        if is_open(self) and run not in model.admitted(self._history):
            self.admit(number, run, share, True, False, trouble)
        round_number = model.last_round(self.world.history or (), run) + 1
        if is_open(self) and run in model.live(self._history) and round_number <= model.ROUNDS:
            self.charge(number, run, round_number, coin, False, trouble)
            if is_open(self) and model.has_joined(self._history, run, round_number):
                self.store(number, run, round_number, False, trouble)

    @precondition(is_closed)
    @rule(
        number=writers,
        with_head=st.booleans(),
        unlocks=st.booleans(),
        repairs=st.booleans(),
        trouble=troubles("actions", "cancel"),
    )
    def open(self, number: int, with_head: bool, unlocks: bool, repairs: bool, trouble: Trouble | None) -> None:
        """Open the ledger; perhaps somebody removes the lock before, or puts lost files back after a refusal."""
        writer = self._writer(number, is_open=False)
        if unlocks:
            self.world.path.with_name("ledger.db.lock").unlink(missing_ok=True)
        head = self.world.server if with_head else None
        is_alone = not any(one.is_open for one in self.world.writers)
        reason = self.world.must_refuse(head)
        outcome = self.world.command(writer, NOTHING, "open", str(self.world.path), head, trouble=trouble)
        if outcome.is_ok:
            assert reason is None, f"a writer opened the ledger although {reason}"
            writer.is_open, writer.is_calm = True, is_alone
            self.world.accept()
        elif outcome.kind == REFUSED and is_alone:
            assert reason is not None or self.world.is_suspect, f"an honest ledger was refused: {outcome.value}"
            if repairs:
                self.world.put_back()

    @precondition(is_open)
    @rule(number=writers, trouble=troubles("actions", "cancel"))
    def close(self, number: int, trouble: Trouble | None) -> None:
        writer = self._writer(number)
        self.world.command(writer, NOTHING, "close", trouble=trouble)
        writer.is_open = False

    @precondition(is_open)
    @rule(number=writers)
    def kill(self, number: int) -> None:
        writer = self._writer(number)
        writer.process.kill()
        writer.is_open = False

    # The account of a silo

    @precondition(is_open)
    @rule(number=writers, trouble=troubles("actions", "cancel"))
    def look(self, number: int, trouble: Trouble | None) -> None:
        self._left(self._writer(number), trouble)

    def _left(self, writer: Writer, trouble: Trouble | None = None) -> dict[str, Fraction] | None:
        was_calm = self._is_calm(writer)
        outcome = self.world.command(writer, NOTHING, "left", list(self._accounts()), trouble=trouble)
        self._expect(outcome, writer, allowed=True, was_calm=was_calm, trouble=trouble)
        if not outcome.is_ok:
            return None
        left = {record: Fraction(value) for record, value in outcome.value[0].items()}
        if self._is_calm(writer):
            assert left == {record: account.left for record, account in self._accounts().items()}
            assert not model.due(self._history, self.world.clock), "a hold that has expired is not given back"
        return left

    @precondition(is_open)
    @rule(
        number=writers,
        run=runs,
        share=st.sampled_from(_SHARES),
        looks=st.booleans(),
        again=st.booleans(),
        trouble=troubles("reserve"),
    )
    def admit(self, number: int, run: str, share: Fraction, looks: bool, again: bool, trouble: Trouble | None) -> None:
        """Plan a share of what is left, or of a whole lifetime without looking, and reserve it; if it fails, again."""
        writer = self._writer(number)
        if not self._admit(writer, run, share, looks, trouble) and again and writer.is_open:
            self._admit(writer, run, share, looks, None)

    @precondition(is_open)
    @rule(number=writers, run=runs, share=st.sampled_from(_SHARES), trouble=troubles("reserve", "cancel"))
    def hold(self, number: int, run: str, share: Fraction, trouble: Trouble | None) -> None:
        """Reserve for half an hour: without a charge until then, everything is given back."""
        self._admit(self._writer(number), run, share, True, trouble, HOUR / 2)

    def _admit(
        self,
        writer: Writer,
        run: str,
        share: Fraction,
        looks: bool,
        trouble: Trouble | None,
        lasts: float | None = None,
    ) -> bool:
        left = self._left(writer) if looks else {one: two.lifetime for one, two in self._accounts().items()}
        if left is None:
            return False
        costs = {record: share * amount for record, amount in left.items()}
        drawn = {record: cost for record, cost in costs.items() if cost}
        was_calm, before = self._is_calm(writer), self._history
        given = {record: float(cost) for record, cost in costs.items()}
        expires = None if lasts is None else self.world.clock + lasts
        attempt = Attempt("admit", run, detail=drawn, expires=expires)
        outcome = self.world.command(writer, attempt, "reserve", run, given, lasts, trouble=trouble)
        # Holds that have expired end first. Orders in the inbox may be booked by the same transaction, or later.
        base = self._history[:-1] if outcome.is_ok else self._history
        fits = [
            model.fits(model.accounts(base, self.world.orders, names), drawn) for names in ((), self.world.pending())
        ]
        may = run not in model.admitted(before) and any(fits)
        must = run not in model.admitted(before) and all(fits)
        if outcome.is_ok:
            assert may, "a request that must be refused succeeded"
            assert (self._history[-1].kind, self._history[-1].run) == ("admit", run)
        self._expect(outcome, writer, allowed=must or outcome.is_ok, was_calm=was_calm, trouble=trouble)
        return outcome.is_ok

    @precondition(is_running)
    @rule(
        number=writers,
        run=runs,
        round_number=rounds,
        coin=coins,
        again=st.booleans(),
        trouble=troubles("charge", "cancel"),
    )
    def charge(
        self, number: int, run: str, round_number: int, coin: bool, again: bool, trouble: Trouble | None
    ) -> None:
        """Charge a round; if it fails, again, with another coin."""
        writer, run = self._writer(number), self._run(run)
        if not self._charge(writer, run, round_number, coin, trouble) and again and writer.is_open:
            self._charge(writer, run, round_number, not coin, None)

    def _charge(self, writer: Writer, run: str, round_number: int, coin: bool, trouble: Trouble | None) -> bool:
        before, was_calm = self._history, self._is_calm(writer)
        attempt = Attempt("charge", run, round_number, coin)
        ids = list(self._accounts())
        outcome = self.world.command(writer, attempt, "charge", run, ids, round_number, coin, trouble=trouble)
        allowed = run in model.live(before) and run not in model.due(before, self.world.clock)
        self._expect(outcome, writer, allowed=allowed, was_calm=was_calm, trouble=trouble)
        if outcome.is_ok:
            joined, is_new, off = outcome.value
            assert is_new == (round_number > model.last_round(before, run))
            assert joined == model.has_joined(self._history, run, round_number)
            if self._is_calm(writer):
                assert off == model.off_in(run, self._history, self.world.orders, self.world.pending())
        return outcome.is_ok

    @precondition(is_running)
    @rule(
        number=writers,
        run=runs,
        by=st.sampled_from(["server", "steward"]),
        again=st.booleans(),
        trouble=troubles("cancel"),
    )
    def cancel(self, number: int, run: str, by: str, again: bool, trouble: Trouble | None) -> None:
        """Cancel a run; if it fails, again."""
        writer, run = self._writer(number), self._run(run)
        if not self._cancel(writer, run, by, trouble) and again and writer.is_open:
            self._cancel(writer, run, by, None)

    def _cancel(self, writer: Writer, run: str, by: str, trouble: Trouble | None) -> bool:
        before, was_calm = self._history, self._is_calm(writer)
        outcome = self.world.command(writer, Attempt("cancel", run), "cancel", run, by, trouble=trouble)
        allowed = run in model.admitted(before) and model.last_round(before, run) == 0
        self._expect(outcome, writer, allowed=allowed, was_calm=was_calm, trouble=trouble)
        assert not outcome.is_ok or run in model.ended(self._history)
        return outcome.is_ok

    @precondition(is_running)
    @rule(number=writers, run=runs, round_number=rounds, again=st.booleans(), trouble=troubles("store"))
    def store(self, number: int, run: str, round_number: int, again: bool, trouble: Trouble | None) -> None:
        """Store an update; if that fails, another one."""
        writer, before, run = self._writer(number), self._history, self._run(run)
        open_rounds = [e.number for e in before if (e.kind, e.run, e.joined) == ("charge", run, True)]
        if open_rounds and round_number not in open_rounds:
            round_number = open_rounds[-1]
        if not self._store(writer, run, round_number, trouble) and again and writer.is_open:
            self._store(writer, run, round_number, None)

    def _store(self, writer: Writer, run: str, round_number: int, trouble: Trouble | None) -> bool:
        before = self._history
        self.made += 1
        update = f"update {self.made}".encode()
        was_calm = self._is_calm(writer)
        attempt = Attempt("release", run, round_number, detail=update)
        outcome = self.world.command(writer, attempt, "store", run, round_number, update, trouble=trouble)
        is_free = model.of_round(before, "release", run, round_number) is None
        allowed = is_free and model.has_joined(before, run, round_number)
        self._expect(outcome, writer, allowed=allowed, was_calm=was_calm, trouble=trouble)
        return outcome.is_ok

    @precondition(is_running)
    @rule(number=writers, run=runs, round_number=rounds)
    def ask(self, number: int, run: str, round_number: int) -> None:
        """The server asks again for a round: the bytes of its only release, or nothing."""
        writer, run = self._writer(number), self._run(run)
        was_calm = self._is_calm(writer)
        outcome = self.world.command(writer, NOTHING, "stored", run, round_number)
        allowed = run in model.live(self._history)
        self._expect(outcome, writer, allowed=allowed, was_calm=was_calm, trouble=None)
        if outcome.is_ok:
            assert outcome.value == model.update_of(self._history, run, round_number)

    @precondition(is_open)
    @rule(number=writers, run=st.one_of(st.none(), runs), trouble=troubles("prune"))
    def prune(self, number: int, run: str | None, trouble: Trouble | None) -> None:
        self.world.command(self._writer(number), Attempt("prune"), "prune", run, trouble=trouble)

    @precondition(is_open)
    @rule(number=writers)
    def add(self, number: int) -> None:
        """A new record arrives."""
        if len(self._accounts()) > len(LIFETIMES) + 1:
            return
        writer = self._writer(number)
        was_calm = self._is_calm(writer)
        self.made += 1
        new = {f"new-{self.made}": Fraction(1)}
        given = {record: float(lifetime) for record, lifetime in new.items()}
        outcome = self.world.command(writer, Attempt("add", detail=new), "add", given)
        self._expect(outcome, writer, allowed=True, was_calm=was_calm, trouble=None)

    # Stewards and the server

    @rule(
        number=writers,
        kind=st.sampled_from(model.ACTIONS),
        record=st.sampled_from(["a", "c"]),
        budget=st.sampled_from(_BUDGETS),
        trouble=troubles("inbox"),
    )
    def order(self, number: int, kind: str, record: str, budget: Fraction, trouble: Trouble | None) -> None:
        """A steward withdraws, lowers, raises or takes back in, in whatever process."""
        if self.world.history is None:
            return
        arguments = (str(self.world.path), kind, record, float(budget))
        person = [one for one in LIFETIMES if PEOPLE.get(one, one) == PEOPLE.get(record, record)]
        whole = kind in ("lower", "raise")  # a budget is a person's, and is divided among all of their records
        attempt = Attempt(kind, detail=(tuple(person), budget / len(person)) if whole else ((record,), None))
        writer = self.world.writers[number]
        was_calm = writer.is_calm
        outcome = self.world.command(writer, attempt, "act", *arguments, trouble=trouble)
        if outcome.kind in (OK, REFUSED):
            writer.is_calm = was_calm

    @precondition(is_open)
    @rule(number=writers)
    def acknowledge(self, number: int) -> None:
        """The server keeps the present head, then the ledger notes that it does."""
        writer = self._writer(number)
        head = self.world.command(writer, NOTHING, "head")
        if head.is_ok and head.value[1]:
            self.world.server = head.value
            self._confront(writer)

    @precondition(is_open)
    @rule(number=writers)
    def confront(self, number: int) -> None:
        """The server shows the head that it has, as before every run."""
        if self.world.server is not None:
            self._confront(self._writer(number))

    def _confront(self, writer: Writer) -> None:
        assert self.world.server is not None
        was_calm = self._is_calm(writer)
        outcome = self.world.command(writer, NOTHING, "acknowledge", self.world.server)
        allowed = self.world.holds(self.world.server)
        self._expect(outcome, writer, allowed=allowed, was_calm=was_calm, trouble=None)

    # Accidents

    @rule(step=st.sampled_from([-HOUR, HOUR]))
    def step_clock(self, step: float) -> None:
        self.world.clock += step

    @precondition(lambda self: len(self.backups) < 3)
    @rule()
    def back_up(self) -> None:
        self.backups.append(self.world.backup())

    @rule(which=st.integers(0, 2), parts=parts_of_a_backup)
    def restore(self, which: int, parts: frozenset[str]) -> None:
        self.world.restore(self.backups[which % len(self.backups)], parts)

    @rule(how=st.sampled_from(["empty", "cut", "first", "second", "both", "gone"]))
    def damage_notes(self, how: str) -> None:
        """The notes are lost, emptied, cut in the middle of a slot, or a byte changed in one slot or both."""
        self.world.lay_hands()
        content = bytearray(self.world.read(NOTES) or b"")
        if how == "gone":
            self.world.write(NOTES, None)
            return
        del content[{"empty": 0, "cut": 300}.get(how, len(content)) :]
        for slot, names in enumerate([("first", "both"), ("second", "both")]):
            if how in names and len(content) > 512 * slot + 40:
                content[512 * slot + 40] ^= 1
        self.world.write(NOTES, bytes(content))
