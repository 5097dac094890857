"""Rules of privacy.md that a seeded bug has shown to need a test of their own: what a restart must not forget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.ledger import Ledger
from rpdp.ledger.store.chain import GENESIS, Event, head_after, public_head_after
from rpdp.ledger.store.record_keys import RecordKey
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads

if TYPE_CHECKING:
    from pathlib import Path


def test_what_two_runs_reserved_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        for name in ("one", "two"):
            ledger.reserve(name, small.by_hand(small.public(), table.ids, 0.5), None)
    with Ledger.open(tmp_path / "ledger.db") as again:
        left = again.left(table, LIFETIME_DELTA)
        assert left.epsilon.tolist() == (table.epsilon - 1.0).tolist()
        assert left.delta is not None
        np.testing.assert_allclose(left.delta, LIFETIME_DELTA - 2 * small.DELTA, rtol=1e-12)


def test_the_cap_counts_rounds_joined_before_a_restart(tmp_path: Path) -> None:
    with small.admitted(tmp_path, max_participations=2) as ledger:
        assert [ledger.charge("run", number, heads).joined for number in (1, 2)] == [True, True]
    with Ledger.open(tmp_path / "ledger.db") as again:
        assert not again.charge("run", 3, heads).joined


def test_an_event_depends_on_everything_before_it() -> None:
    """In both chains: the same event after another history has another head."""
    event = Event(3, "charge", "run", 1, 1, "{}", b"", None, None)
    other = bytes(32)
    assert head_after(GENESIS, event) != head_after(other, event)
    assert public_head_after(GENESIS, event) != public_head_after(other, event)


def test_the_public_head_covers_which_round_was_charged() -> None:
    one, two = (Event(3, "charge", "run", number, 1, "{}", b"", None, None) for number in (1, 2))
    assert public_head_after(GENESIS, one) != public_head_after(GENESIS, two)


def test_hashes_of_records_need_the_key() -> None:
    """Who has the ledger alone cannot test whether somebody is in it."""
    one, other = RecordKey(bytes(32)), RecordKey(bytes([1] * 32))
    assert one.record("r0").tolist() == one.record("r0").tolist()
    assert one.record("r0").tolist() != other.record("r0").tolist()
    assert one.record("r0").tolist() != one.record("r1").tolist()
