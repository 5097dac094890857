"""What a ledger says is a value: whoever is given one cannot change it for somebody else."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp.ledger import Account, Charge, MemoryAccount, RunStatus
from rpdp.ledger.account import AccountStatus, rounds_drawn
from rpdp.ledger.inspection.explanation import Explanation, RunExplanation
from rpdp.ledger.inspection.hold_list import holds_of
from rpdp.ledger.inspection.overview import BudgetGroup, Overview, RunOverview, _Sums
from rpdp.ledger.inspection.replay import _Booking, _was_changed
from rpdp.ledger.inspection.verification import Verification, _collected
from rpdp.ledger.stewardship.actions import Action
from rpdp.ledger.stewardship.persons import Divided, Persons
from rpdp.ledger.stewardship.pruning import Updates, replay_prunings
from rpdp.ledger.store.chain import Event, PublicHead
from rpdp.ledger.store.holds import Cancellation
from rpdp.ledger.store.ledger_files import LedgerFiles
from rpdp.ledger.store.record_store import Chunk, NewRecords
from rpdp.ledger.store.run_book import Admission, ReservedPlan, now
from rpdp.ledger.store.sampling_classes import Classes
from tests.ledger import small

if TYPE_CHECKING:
    from collections.abc import Callable

HASHES = np.zeros((1, 2), dtype=np.uint64)
UNITS, NUMBERS, ROWS = np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1, dtype=np.int64)
STATUS = RunStatus("run", "plan", 4, 0, (), (), "held")
RUN = RunExplanation("run", "noon", 0.0, 0.0, 0.0, 4, 4, 0, 0, 0.0)
CHUNK = Chunk(1, 0, 5, 10)
PUBLIC = small.public()
ADMISSION = Admission(3, "run", PUBLIC, "plan", "certified", None, 1, 0, "noon", None)
CLASSES = Classes(NUMBERS, NUMBERS, ROWS.astype(np.int32), NUMBERS, ROWS.astype(np.uint8))
PLAN = small.by_hand(PUBLIC, small.budgets().ids, 0.1)


def held() -> Any:
    return holds_of(SimpleNamespace(runs=SimpleNamespace(held=lambda: [ADMISSION])))[0]  # type: ignore[arg-type]


# Each value, and something that its module makes of it or of the like.
VALUES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "charge": (lambda: Charge(1, True, True), lambda _: rounds_drawn(PUBLIC.schedule, None)),
    "run": (lambda: STATUS, lambda run: run.is_over),
    "account": (lambda: AccountStatus(True, 1, (STATUS,)), lambda account: account.runs[0].is_over),
    "hold": (held, lambda hold: hold.has_expired),
    "explained run": (lambda: RUN, lambda run: _explanation((run,)).text),
    "explanation": (lambda: _explanation(()), lambda explanation: explanation.text),
    "discrepancy": (lambda: _collected("file", lambda: iter(["a page is missing"]))[0], lambda one: one.problem),
    "verification": (lambda: Verification(1, 1, 0, ()), lambda verification: verification.is_good),
    "group": (lambda: BudgetGroup(0.0, 0.1, 1, 0, 0, 0.1, 0.0, 0.0), lambda _: _Sums().groups()),
    "run in an overview": (
        lambda: RunOverview(STATUS, "plan", "4 rounds", "noon", 1e-3, "training", "", 0.1, 1, 1, 0.1, 0.1),
        lambda _: _Sums().groups(),
    ),
    "overview": (
        lambda: Overview(
            "ledger",
            "simulation",
            "noon",
            1e-3,
            "sums",
            1,
            False,
            0,
            0,
            0,
            0,
            0,
            1,
            PublicHead("", 0, ""),
            0,
            0,
            0,
            (),
            (),
        ),
        lambda _: _Sums().groups(),
    ),
    "booking": (lambda: _Booking(ADMISSION, CLASSES), lambda _: _was_changed([], HASHES)),
    "action": (lambda: Action("withdraw", "ledger", HASHES, NUMBERS, NUMBERS), lambda action: action.body),
    "divided": (lambda: Divided(NUMBERS, NUMBERS, UNITS > 0), lambda _: Persons(["a"], ROWS, HASHES, ROWS).sizes),
    "persons": (lambda: Persons(["a"], ROWS, HASHES, ROWS), lambda persons: persons.sizes),
    "updates": (lambda: Updates("run", 1, 10), lambda _: replay_prunings([])),
    "event": (lambda: Event(1, "create", "", 0, 0, "{}", b"", None, None), lambda event: event.facts),
    "head": (lambda: PublicHead("ledger", 1, "ab"), lambda head: head.to_json()),
    "files": (lambda: LedgerFiles(Path("ledger.db")), lambda files: files.key),
    "cancellation": (lambda: Cancellation(1, "run", "server", "", "noon"), lambda one: one.is_covered),
    "chunk": (lambda: CHUNK, lambda chunk: chunk.rows),
    "new records": (lambda: NewRecords(HASHES, NUMBERS, NUMBERS, ROWS.astype(np.uint8), None), lambda _: CHUNK.key),
    "admission": (lambda: ADMISSION, lambda _: now()),
    "reserved plan": (lambda: ReservedPlan(**vars(PLAN), admitted_as="plan"), lambda plan: plan.fingerprint),
    "classes": (lambda: CLASSES, lambda classes: classes.index_type),
}
IDENTICAL = {"action", "divided", "persons", "reserved plan", "classes"}
"""They hold arrays, of which "equal" is no single word: each is equal to itself only."""


def _explanation(runs: tuple[RunExplanation, ...]) -> Explanation:
    return Explanation("a", "", 1.0, 1e-3, 1.0, 1e-3, 0.0, 0.0, 1.0, 1e-3, "sums", 0.0, 0.0, False, False, (), runs)


@pytest.mark.parametrize("name", VALUES)
def test_what_a_ledger_hands_out_cannot_be_changed(name: str) -> None:
    make, use = VALUES[name]
    value = make()
    use(value)
    first = fields(value)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(value, first, getattr(value, first))
    assert ("__eq__" in vars(type(value))) == (name not in IDENTICAL)


QUESTIONS = (
    "left", "reserve", "resume", "charge", "cancel", "expire", "store", "stored", "switched_off", "status",
)  # fmt: skip


def test_an_account_must_answer_every_question() -> None:
    """With an answer that does nothing it would fail open: a round without a charge, a hold without an end."""
    answers: dict[str, object] = {name: getattr(MemoryAccount, name) for name in QUESTIONS}
    whole: Account = type("Whole", (Account,), answers)()
    assert (whole.public_head(), whole.inbox_directory, whole.uncovered_cancellations()) == (None, None, ())
    for name in QUESTIONS:
        partial = type("Partial", (Account,), {one: answer for one, answer in answers.items() if one != name})
        with pytest.raises(TypeError, match=f"abstract method '?{name}'?$"):
            partial()
