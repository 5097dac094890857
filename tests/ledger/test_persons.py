"""Raising and lowering act on persons: whichever record is named, the whole person stays within one budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.cli.run import run
from rpdp.errors import InputError
from rpdp.ledger import Ledger, StewardKey
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = ["a1", "a2", "a3", "b1", "c1", "c2"]
SUBJECTS = ["a", "a", "a", "b", "c", "c"]
EPSILON = np.array([3.0, 3.0, 3.0, 2.0, 4.0, 4.0])


@pytest.fixture
def table() -> BudgetTable:
    return BudgetTable(RECORDS, EPSILON, subjects=SUBJECTS)


@pytest.fixture
def key() -> StewardKey:
    return StewardKey()


@pytest.fixture
def ledger(tmp_path: Path, table: BudgetTable, key: StewardKey) -> Ledger:
    return small.make(tmp_path, table, steward=key.public)


def person(ledger: Ledger, records: list[str]) -> tuple[float, float]:
    """ε and δ of all of these records together, by group composition in the worst order."""
    wide = BudgetTable(RECORDS, np.full(len(RECORDS), 900.0))
    ledger.left(wide, 0.9)  # books what waits in the inbox
    held = ledger.balances(wide.ids)
    rows = [RECORDS.index(record) for record in records]
    order = sorted(rows, key=lambda row: held.delta[row])
    total, delta = 0.0, 0.0
    for row in order:
        delta += float(np.exp(total)) * held.delta[row]
        total += held.epsilon[row]
    return total, delta


A, C = ["a1", "a2", "a3"], ["c1", "c2"]


def test_raising_one_record_of_a_person_raises_the_person(ledger: Ledger, key: StewardKey) -> None:
    """Not: one record at the new budget, beside the parts of the others (6 + 2 in place of 6)."""
    assert person(ledger, A) == pytest.approx((3.0, LIFETIME_DELTA))
    ledger.raise_budgets(["a2"], 6.0, key=key)
    assert person(ledger, A) == pytest.approx((6.0, LIFETIME_DELTA))
    assert person(ledger, C) == pytest.approx((4.0, LIFETIME_DELTA))
    assert [event.kind for event in ledger.chain.events()] == ["create", "lower", "raise"]
    assert ledger.verify().is_good


@pytest.mark.parametrize("name", [{"records": ["a1"]}, {"records": A}, {"subjects": ["a"]}])
def test_any_way_to_name_a_person_is_the_same(ledger: Ledger, key: StewardKey, name: dict[str, list[str]]) -> None:
    ledger.raise_budgets(epsilon=4.5, delta=0.05, key=key, **name)  # type: ignore[arg-type]
    assert person(ledger, A) == pytest.approx((4.5, 0.05))
    ledger.lower_budgets(epsilon=1.5, **name)  # type: ignore[arg-type]
    epsilon, delta = person(ledger, A)
    assert epsilon == pytest.approx(1.5)
    assert delta < 0.05
    ledger.lower_budgets(delta=1e-3, **name)  # type: ignore[arg-type]
    assert person(ledger, A) == pytest.approx((1.5, min(1e-3, delta)))


def test_several_persons_and_records_alone_at_once(ledger: Ledger, key: StewardKey) -> None:
    ledger.raise_budgets(["c2", "b1", "a1"], np.array([5.0, 2.5, 9.0]), key=key)
    for records, epsilon in ((C, 5.0), (["b1"], 2.5), (A, 9.0)):
        assert person(ledger, records) == pytest.approx((epsilon, LIFETIME_DELTA))
    assert ledger.verify().is_good


def test_delta_alone(ledger: Ledger, key: StewardKey) -> None:
    ledger.raise_budgets(["c1"], delta=0.02, key=key)
    assert person(ledger, C) == pytest.approx((4.0, 0.02))


def test_a_person_has_one_budget(ledger: Ledger, key: StewardKey) -> None:
    changes: list[tuple[Callable[[], object], str]] = [
        (lambda: ledger.raise_budgets(["a1", "a3"], np.array([5.0, 6.0]), key=key), "record 'a1' is given ε = 5, and"),
        (lambda: ledger.raise_budgets(["a1"], 2.0, key=key), r"person of 'a1' .3 records. has ε = 3; 2 would lower it"),
        (lambda: ledger.lower_budgets(["a1"], 3.5), "has ε = 3; 3.5 would raise it"),
        (lambda: ledger.lower_budgets(["a1"], delta=0.5), "has δ = 0.01; 0.5 would raise it"),
        (lambda: ledger.lower_budgets(epsilon=1.0), "name at least one record or subject to lower"),
        (lambda: ledger.lower_budgets(subjects=["nobody"], epsilon=1.0), "no record of subject 'nobody'"),
    ]
    for change, message in changes:
        with pytest.raises(InputError, match=message):
            change()
    assert ledger.pending() == []
    ledger.lower_budgets(["a1", "a3"], 2.5)
    assert person(ledger, A)[0] == pytest.approx(2.5)


def test_a_raise_that_leaves_less_delta_than_is_booked_is_refused(
    ledger: Ledger, table: BudgetTable, key: StewardKey
) -> None:
    ledger.reserve("run", small.plan(ledger, table, delta=3e-4), None)
    with pytest.raises(InputError, match=r"would keep δ = .* is booked already; nothing was changed"):
        ledger.raise_budgets(["a1"], 30.0, key=key)
    assert ledger.pending() == []
    ledger.raise_budgets(["a1"], 3.5, key=key)
    assert ledger.switched_off().size == 0


def test_the_command_line(tmp_path: Path, table: BudgetTable, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ledger", "keygen", str(tmp_path / "steward")]) == 0
    table.write(tmp_path / "budgets.csv")
    path, steward = str(tmp_path / "ledger.db"), ["--steward-key", str(tmp_path / "steward.key")]
    create = ["ledger", "create", path, "--budgets", str(tmp_path / "budgets.csv"), "--lifetime-delta", "1e-2"]
    assert run([*create, "--steward", str(tmp_path / "steward.pub")]) == 0
    assert run(["ledger", "raise", path, "a1", "--epsilon", "6", "--reason", "asked again", *steward]) == 0
    assert "3 records raised, booked" in " ".join(capsys.readouterr().out.split())
    assert run(["ledger", "lower", path, "--subject", "c", "--epsilon", "1"]) == 0
    assert "2 records lowered, booked" in " ".join(capsys.readouterr().out.split())
    # A file with one of a person's records must not give it the person's whole budget.
    BudgetTable(["a1", "b1"], [9.0, 3.0], subjects=["a", "b"]).write(tmp_path / "new.csv")
    assert run(["ledger", "raise", path, "--budgets", str(tmp_path / "new.csv"), "--reason", "forms", *steward]) == 0
    with Ledger.read(path) as ledger:
        assert person(ledger, A) == pytest.approx((9.0, LIFETIME_DELTA))
        assert person(ledger, C)[0] == pytest.approx(1.0)
        assert person(ledger, ["b1"]) == pytest.approx((3.0, LIFETIME_DELTA))


def test_a_file_with_subjects_that_the_ledger_does_not_know_is_refused(tmp_path: Path) -> None:
    """The ledger cannot hold them to one budget."""
    small.make(tmp_path).close()
    BudgetTable(["r0", "r1"], [1.0, 1.0], subjects=["p", "p"]).write(tmp_path / "new.csv")
    assert run(["ledger", "lower", str(tmp_path / "ledger.db"), "--budgets", str(tmp_path / "new.csv")]) == 2


def test_a_budget_that_stays_the_same_is_no_raise_whatever_its_digits(tmp_path: Path) -> None:
    """The parts of a person add up to the budget but for the last digits. A record alone is compared exactly."""
    people = [f"{number / 7:.3g}" for number in range(1, 20)]
    epsilon = np.repeat([float(name) for name in people], 3)
    assert (3 * (epsilon / 3) < epsilon).any()
    records = [f"{name}-{part}" for name in people for part in range(3)]
    table = BudgetTable([*records, "alone"], [*epsilon, 1.0], subjects=[*np.repeat(people, 3), "alone"])
    with small.make(tmp_path, table) as ledger:
        ledger.lower_budgets(subjects=people, epsilon=epsilon[::3], delta=LIFETIME_DELTA)
        with pytest.raises(InputError, match="would raise it"):
            ledger.lower_budgets(["alone"], 1.0 + 5e-10)


def test_persons_and_records_without_a_subject_at_once(ledger: Ledger, table: BudgetTable, key: StewardKey) -> None:
    """Records that came later may have no subject: each of them is a person of its own."""
    ledger.add(BudgetTable(["x", "y"], [1.0, 2.0]))
    ledger.raise_budgets(["y", "a2", "x"], np.array([2.5, 6.0, 1.5]), key=key)
    assert person(ledger, A) == pytest.approx((6.0, LIFETIME_DELTA))
    assert [ledger.explain(record).epsilon for record in ("x", "y", "b1")] == [1.5, 2.5, 2.0]
    assert ledger.subject_sizes(["y", "a2", "x", "c1"]).tolist() == [1, 3, 1, 2]
    with pytest.raises(InputError, match=r"record 'y' has ε = 2\.5; 3 would raise it"):
        ledger.lower_budgets(["x", "a1", "y"], np.array([1.0, 5.0, 3.0]))
