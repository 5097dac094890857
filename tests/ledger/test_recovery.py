"""A successor of a lost ledger never allows more than the lost one could have left, and says whom it succeeds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.accounting.renyi_filter import ORDERS, conversion
from rpdp.cli.run import run as cli
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Ledger, StewardKey
from rpdp.ledger.inspection.export import export
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.recovery import LostLimits, recover
from rpdp.ledger.store.chain import PublicHead
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT
from rpdp.ledger.succession import Succession
from rpdp.planning import Allowance, assign_allowed
from tests.ledger import small

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.budgets import AccountKind

SHARE = 0.15
KINDS = pytest.mark.parametrize("account", ["sums", "renyi"])


class Lost:
    """A ledger that goes on after its last export, and what is left of it when it is lost."""

    def __init__(self, directory: Path, account: AccountKind = "renyi", table: BudgetTable | None = None) -> None:
        self.directory, self.table = directory, small.budgets() if table is None else table
        self.key = StewardKey()
        self.ledger = Ledger.create(
            directory / "ledger.db",
            self.table,
            kind="production",
            lifetime_delta=small.LIFETIME_DELTA,
            account=account,
            steward=self.key.public,
        )
        self.allowance = Allowance(share=SHARE)

    def run(self, name: str, *, charged: bool = True) -> None:
        left = self.ledger.left(self.table, small.LIFETIME_DELTA, self.allowance)
        public = small.public(delta=left.common_delta)
        self.ledger.reserve(name, assign_allowed(public, self.table.ids, left), None, self.allowance)
        if charged:
            self.ledger.charge(name, 1, small.heads)

    def export(self) -> Path:
        path = self.directory / "last.json"
        export(self.ledger, path, without_ids=False, progress=silent, overwrite=True)
        return path

    def booked(self) -> tuple[np.ndarray, np.ndarray]:
        balances = self.ledger.balances(self.table.ids)
        return balances.booked.copy(), balances.booked_delta.copy()

    def lose(self) -> PublicHead:
        head = self.ledger.public_head()
        self.ledger.close()
        shutil.copy(self.directory / "ledger.db.key", self.directory / "key")
        for path in self.directory.glob("ledger.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return head

    def recover(self, *heads: PublicHead, max_runs: int | None = 3, **changes: Any) -> Ledger:
        settings: dict[str, Any] = {
            "budgets": self.table,
            "export": self.directory / "last.json",
            "key": self.directory / "key",
            "limits": None if max_runs is None else LostLimits(max_runs, SHARE),
            "reason": "disk failure",
        }
        recover(self.directory / "new.db", heads=heads, **{**settings, **changes})
        return Ledger.open(self.directory / "new.db")


@pytest.fixture
def lost(tmp_path: Path) -> Lost:
    return Lost(tmp_path)


def totals(ledger: Ledger, table: BudgetTable) -> tuple[np.ndarray, np.ndarray]:
    balances = ledger.balances(table.ids)
    return balances.booked, balances.booked_delta


@KINDS
@pytest.mark.parametrize("later", [0, 1, 2, 3])
def test_everything_that_may_have_been_spent_is_booked(tmp_path: Path, account: AccountKind, later: int) -> None:
    """However many of the runs that the policy allowed have happened since the export. In units, for every record.

    The control is the export alone, which books too little as soon as one run came after it.
    """
    lost = Lost(tmp_path, account)
    lost.run("first")
    lost.export()
    shown = lost.booked()
    for number in range(later):
        lost.run(f"later-{number}")
    spent = lost.booked()
    with lost.recover(lost.lose(), max_runs=4) as successor:
        booked = totals(successor, lost.table)
        assert successor.verify().findings == ()
        assert successor.account == account
        for now, then in zip(booked, spent, strict=True):
            assert (now >= then).all()
        assert (later == 0) == bool((shown[0] >= spent[0]).all())
        whole = successor.balances(lost.table.ids).lifetime()[0]
        used = np.ldexp(booked[0].astype(float), -EPSILON_SHIFT) / whole
        assert (used <= 4 * SHARE + 1e-9).all()  # and not more than it must be
        assert (used > 3 * SHARE).all()
        if account == "sums":
            assert (np.ldexp(booked[1].astype(float), -DELTA_SHIFT) >= 4 * SHARE * small.LIFETIME_DELTA * 0.999).all()


@KINDS
def test_what_is_left_pays_for_runs_and_never_for_more(tmp_path: Path, account: AccountKind) -> None:
    """The runs of both ledgers together stay within every lifetime budget, to the unit."""
    lost = Lost(tmp_path, account)
    lost.run("first")
    lost.export()
    lost.run("second")
    spent = lost.booked()
    lifetime = lost.ledger.balances(lost.table.ids).lifetime()[0]
    successor = lost.recover(lost.lose(), max_runs=2)
    carried = totals(successor, lost.table)[0].copy()
    lost.ledger = successor
    with successor:
        for number in range(4):
            lost.run(f"new-{number}")
        with pytest.raises(PrivacyRefusal, match="was admitted in the ledger that was lost"):
            lost.run("first")
        assert successor.verify().findings == ()
        in_all = spent[0] + totals(successor, lost.table)[0] - carried
        assert (np.ldexp(in_all.astype(float), -EPSILON_SHIFT) <= lifetime * (1 + 1e-12)).all()
        story = successor.explain("r0")
        assert "succeeds ledger" in story.text
        assert story.share_used > 0.8


@pytest.mark.parametrize("max_runs", [None, 8, 100])
def test_without_limits_or_with_wide_ones_nothing_is_left(lost: Lost, max_runs: int | None) -> None:
    lost.run("first")
    lost.export()
    with lost.recover(lost.lose(), max_runs=max_runs) as successor:
        assert (successor.left(lost.table, small.LIFETIME_DELTA).amount == 0.0).all()
        assert (successor.balances(lost.table.ids).share_used >= 1.0).all()
        assert successor.verify().findings == ()


def test_a_run_that_was_only_held_may_have_made_room_for_another(lost: Lost) -> None:
    """It counts as booked, and its place among `max_runs` counts as free: it may have been cancelled since."""
    lost.run("held", charged=False)
    lost.export()
    shown = lost.booked()[0]
    lost.ledger.cancel("held")
    lost.run("other")
    spent = lost.booked()[0]
    with lost.recover(lost.lose(), max_runs=1) as successor:
        booked = totals(successor, lost.table)[0]
        assert (booked >= spent).all()
        assert (booked > shown * 1.9).all()


def test_the_smaller_budget_is_in_force_and_the_larger_one_may_have_been_spent(lost: Lost) -> None:
    lost.export()
    stated = BudgetTable(lost.table.ids, np.where(np.arange(8) < 4, 0.5, 8.0) * np.ones(8))
    lost.ledger.raise_budgets([f"r{n}" for n in range(4, 8)], 8.0, key=lost.key, reason="new consent")
    lost.run("later")
    spent = lost.booked()[0]
    with lost.recover(lost.lose(), max_runs=1, budgets=stated) as successor:
        accounts = successor.balances(lost.table.ids)
        assert accounts.epsilon.tolist() == [0.5] * 4 + lost.table.epsilon[4:].tolist()
        assert (accounts.booked >= spent).all()
        # Raised again, what the lost ledger has booked of the larger budget still counts.
        successor.raise_budgets([f"r{n}" for n in range(4, 8)], 8.0, key=lost.key, reason="new consent")
        successor.left(lost.table, small.LIFETIME_DELTA)
        assert (successor.balances(lost.table.ids).booked >= spent).all()
        assert successor.verify().findings == ()


def test_sum_accounts_may_be_renyi_accounts_by_now(tmp_path: Path) -> None:
    """A share of B and the rest of the sums together exceed (ε, δ), so nothing is left where both may have happened."""
    lost = Lost(tmp_path, "sums", BudgetTable(["a", "b"], [1.0, 1.0]))
    lost.export()
    lost.ledger.enrol(["a"], reason="more runs")
    lost.run("later")
    spent = np.ldexp(float(lost.booked()[0][0]), -EPSILON_SHIFT)
    order = lost.ledger.balances(lost.table.ids).order[:1]
    assert order[0] > 0
    head = lost.lose()
    with lost.recover(head, max_runs=1) as successor:
        assert successor.left(lost.table, small.LIFETIME_DELTA).amount.tolist() == [0.0, 0.0]
        assert successor.verify().findings == ()
    # The control: one share booked as sums would leave too much, even if δ is divided in the same way.
    shown = spent + float(conversion(ORDERS[order], np.array([SHARE * small.LIFETIME_DELTA]))[0])
    assert shown + (1.0 - SHARE) > 1.0


def test_a_hold_of_the_export_may_have_been_returned_and_its_records_enrolled(tmp_path: Path) -> None:
    lost = Lost(tmp_path, "sums")
    lost.run("held", charged=False)
    lost.export()
    with lost.recover(lost.lose(), max_runs=1) as successor:
        assert (successor.left(lost.table, small.LIFETIME_DELTA).amount == 0.0).all()


def test_orders_withdrawals_and_unknown_records(lost: Lost) -> None:
    """Orders stay, although budgets changed; who withdrew stays out; a record that is not in the export has nothing."""
    lost.ledger.lower_budgets(["r1"], 2.5, reason="second thoughts")
    lost.ledger.withdraw(["r2"], reason="letter")
    lost.run("first")
    orders = lost.ledger.balances(lost.table.ids).order.copy()
    lost.export()
    fewer = BudgetTable(["r0", "r1", "r2", "new"], [2.0, 4.0, 2.0, 3.0])
    with lost.recover(lost.lose(), max_runs=1, budgets=fewer) as successor:
        both = BudgetTable([*lost.table.ids.to_pylist(), "new"], np.full(9, 100.0))
        accounts = successor.balances(both.ids)
        assert accounts.order[:8].tolist() == orders.tolist()
        assert accounts.epsilon[1] == 2.5
        assert accounts.withdrawn.tolist() == [False, False, True] + [False] * 6
        left = successor.left(both, small.LIFETIME_DELTA).amount
        assert left[8] == left[2] == 0.0
        assert (left[[0, 1, 3, 4, 5, 6, 7]] > 0.0).all()
        assert successor.steward is not None
        assert successor.verify().findings == ()


def test_persons_stay_persons(tmp_path: Path) -> None:
    ids, people = ["a1", "a2", "b1"], ["a", "a", "b"]
    lost = Lost(tmp_path, table=BudgetTable(ids, [2.0, 2.0, 2.0], subjects=people))
    lost.export()
    without = BudgetTable(ids, [2.0] * 3)  # no subjects there: those of the export count
    with lost.recover(lost.lose(), max_runs=0, budgets=without) as successor:
        assert successor.subject_sizes(ids).tolist() == [2, 2, 1]
        assert successor.balances(without.ids).epsilon.tolist() == [1.0, 1.0, 2.0]


def test_a_successor_can_be_lost_in_turn(lost: Lost) -> None:
    lost.run("first")
    lost.export()
    successor = lost.recover(lost.lose(), max_runs=2)
    carried = totals(successor, lost.table)[0].copy()
    lost.ledger = successor
    lost.run("second")
    spent = totals(successor, lost.table)[0].copy()
    export(successor, lost.directory / "again.json", without_ids=False, progress=silent)
    head = successor.public_head()
    successor.close()
    limits = LostLimits(2, SHARE)
    changes = {"budgets": lost.table, "key": lost.directory / "key", "limits": limits, "reason": "again"}
    recover(lost.directory / "third.db", export=lost.directory / "again.json", heads=[head], **changes)  # type: ignore[arg-type]
    with Ledger.open(lost.directory / "third.db") as third:
        booked = totals(third, lost.table)[0]
        assert (booked > spent).all()
        assert (spent > carried).all()
        assert third.predecessor == head
        assert third.verify().findings == ()
        assert next(third.chain.events("succeed")).facts["runs"] == ["first", "second"]


# The chain, and what it says to servers


def test_the_chain_says_whom_it_succeeds(lost: Lost) -> None:
    lost.run("first")
    lost.export()
    lost.ledger.charge("first", 2, small.heads)
    head = lost.lose()
    with lost.recover(head) as successor:
        assert successor.predecessor == head
        statement = Succession.of(successor)
        assert Succession.from_json(statement.to_json()) == statement
        assert statement.successor == PublicHead(successor.id, 1, successor.public_head().head)
        forged = replace(head, count=1)
        with pytest.raises(InputError, match="is not that of a ledger which succeeds"):
            Succession(forged, statement.successor)
        event = next(successor.chain.events("succeed"))
        assert event.seq == 2
        assert event.facts["reason"] == "disk failure"


def test_verify_finds_a_changed_inheritance(lost: Lost) -> None:
    """Less carried over, with totals and its hash adapted or not, is found; so is a second succession."""
    lost.run("first")
    lost.export()
    with lost.recover(lost.lose()) as successor:
        chunk = successor.records.chunks[0]
        units = successor.records.carried(chunk)
        successor.database.rows("DELETE FROM carried")
        assert {one.check for one in successor.verify().findings} >= {"bulk", "accounts"}
        successor.records.write_carried(2, chunk, units[0] // 2, units[1])
        successor.records.write_totals(chunk, units[0] // 2, units[1])
        assert {one.check for one in successor.verify().findings} == {"bulk"}
        successor.database.rows("DELETE FROM carried")
        successor.records.write_carried(2, chunk, *units)
        successor.records.write_totals(chunk, *units)
        assert successor.verify().findings == ()
        successor.records.write_carried(7, chunk, *units)
        assert any("has rows for event 7" in one.problem for one in successor.verify().findings)
        successor.database.rows("DELETE FROM carried WHERE seq = 7")
        with successor.database.transaction():
            successor.chain.append("succeed", next(successor.chain.events("succeed")).facts)
        assert any("only the second event" in one.problem for one in successor.verify().findings)


def test_an_interrupted_recovery_can_be_made_again(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    lost.run("first")
    lost.export()
    head = lost.lose()

    def stopped(label: str) -> None:
        raise KeyboardInterrupt(label)

    with monkeypatch.context() as there:
        there.setattr("rpdp.ledger.store.crash_points.reached", stopped)
        with pytest.raises(KeyboardInterrupt):
            lost.recover(head)
    assert not (lost.directory / "new.db").exists()
    with lost.recover(head) as successor:
        assert successor.verify().findings == ()


# Refusals


def test_inputs_that_do_not_belong_together_are_refused(lost: Lost, tmp_path: Path) -> None:
    lost.run("first")
    path = lost.export()
    head = lost.lose()
    other = tmp_path / "other.key"
    other.write_text("ab" * 32 + "\n")
    other.chmod(0o600)

    def refused(error: type[Exception], match: str, *heads: PublicHead, **changes: Any) -> None:
        with pytest.raises(error, match=match):
            lost.recover(*(heads or (head,)), **changes)
        assert not (tmp_path / "new.db").exists()

    refused(InputError, "is not the key of ledger", key=other)
    refused(InputError, "cannot be read", key=tmp_path / "nothing")
    refused(PrivacyRefusal, "is of ledger", replace(head, ledger="ab" * 16))
    refused(PrivacyRefusal, "differ at public event 1", replace(head, count=1))
    refused(
        PrivacyRefusal,
        "two servers keep different heads",
        head,
        replace(head, count=9),
        replace(head, count=9, head="00"),
    )
    refused(InputError, "needs a reason", reason="")
    refused(InputError, "is not the export of a ledger", export=tmp_path / "key")
    with pytest.raises(PrivacyRefusal, match="no server's head"):
        recover(tmp_path / "new.db", lost.table, export=path, key=tmp_path / "key", heads=[], limits=None, reason="x")
    values = json.loads(path.read_text())
    for change in (
        {"events": values["events"][:-1]},
        {"events": [{**values["events"][0], "facts": {}}, *values["events"][1:]]},
        {"records": [row[:-3] for row in values["records"]]},
        {"ledger": "ab" * 16},
    ):
        path.write_text(json.dumps(values | change))
        refused(InputError, "is damaged or incomplete")
    path.write_text(json.dumps(values | {"columns": values["columns"][1:]}))
    refused(InputError, "an export without ids")
    path.write_text(json.dumps(values))
    lost.recover(head).close()
    with pytest.raises(InputError, match="exists"):
        lost.recover(head)


@pytest.mark.parametrize(
    ("max_runs", "booked"), [(None, "all that may have been spent since"), (3, "up to 2 more runs")]
)
def test_show_names_the_ledger_that_was_lost(
    lost: Lost, capsys: pytest.CaptureFixture[str], max_runs: int | None, booked: str
) -> None:
    lost.run("first")
    lost.export()
    assert lost.ledger.overview().succeeds is None
    name = lost.ledger.id
    lost.recover(lost.lose(), max_runs=max_runs, actor="jo").close()
    path = str(lost.directory / "new.db")
    assert cli(["ledger", "show", path]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"succeeds ledger {name[:12]}…, which was lost (disk failure); made by jo" in said
    assert booked in said
    assert cli(["ledger", "show", path, "--json"]) == 0
    facts = {"ledger": name, "reason": "disk failure", "actor": "jo", "runs_since": None if max_runs is None else 2}
    assert json.loads(capsys.readouterr().out)["succeeds"] == facts


@pytest.mark.parametrize("limits", [(-1, 0.1), (2, 0.0), (2, 1.5), (2, float("nan"))])
def test_limits_that_mean_nothing_are_refused(limits: tuple[int, float]) -> None:
    with pytest.raises(InputError, match=r"max_runs|max_share_per_run"):
        LostLimits(*limits)
