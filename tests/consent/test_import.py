"""Imports into a ledger: what is shown is what is done, all of it or nothing, and again nothing is left to do."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpdp import BudgetTable
from rpdp.consent import read_consents
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Ledger, StewardKey
from tests.ledger import small

from .made import CHOICES, NOW, budgets_of, bundle, consent, ledger, read, the_map, written

if TYPE_CHECKING:
    from pathlib import Path

PERSONS = {"anna": ["a1", "a2"], "ben": ["b1"], "cleo": ["c1"], "dora": ["d1", "d2", "d3"]}
KEY = StewardKey()


def kinds(found: Any, consents: Any) -> dict[str, set[str]]:
    latest = consents.decisions.latest
    return {kind: {latest[row].person for row in rows} for kind, rows in found.rows.items() if len(rows)}


@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_every_kind_of_change(tmp_path: Path, account: str) -> None:
    consents = read(
        tmp_path,
        consent("1", "anna", "narrow"),
        consent("2", "ben", "broad"),
        consent("3", "cleo", status="inactive"),
        consent("4", "dora", "broad", period={"end": "2026-05"}),
        consent("5", "emil", "tiny"),
        consent("6", "fay", status="rejected"),
    )
    with ledger(tmp_path, PERSONS, account=account, key=KEY) as opened:
        shown = consents.changes(opened)
        assert budgets_of(opened, PERSONS) == {name: (pytest.approx(1.0), False) for name in PERSONS}
        done = consents.bring_about(opened, key=KEY, reason="forms of May", budgets=tmp_path / "new.csv")
        for found in (shown, done):
            assert kinds(found, consents) == {"lower": {"anna"}, "raise": {"ben"}, "withdraw": {"cleo", "dora"}}
            assert {consents.decisions.latest[row].person for row in found.unknown} == {"emil", "fay"}
        then = budgets_of(opened, PERSONS)
        assert then["anna"] == (pytest.approx(0.5), False)
        assert then["ben"] == (pytest.approx(2.0), False)
        assert then["cleo"][1]
        assert then["dora"][1]
        again = consents.changes(opened)
        assert again.actions == ()
    new = BudgetTable.read(tmp_path / "new.csv", records=written(tmp_path, "record,subject\ne1,emil\n", "records.csv"))
    assert (new.ids.to_pylist(), new.epsilon.tolist()) == (["e1"], [0.1])
    with Ledger.open(tmp_path / "ledger.db") as opened:
        assert opened.verify().is_good
        assert consents.bring_about(opened, reason="x").actions == ()


def test_the_chain_says_where_it_came_from(tmp_path: Path) -> None:
    consents = read(tmp_path, consent("3", "cleo", status="inactive"))
    with ledger(tmp_path, PERSONS) as opened:
        consents.bring_about(opened, reason="forms of May", actor="records office")
    with Ledger.open(tmp_path / "ledger.db") as opened:
        [action] = opened.booked_actions()
    file, its_map = ((tmp_path / name).read_bytes() for name in ("consents.json", "consent.toml"))
    digests = [hashlib.sha256(content).hexdigest() for content in (file, its_map)]
    assert action.reason == f"forms of May; consent sha256:{digests[0]} map sha256:{digests[1]}"
    assert action.actor == "records office"


def test_consent_given_again_needs_the_signature(tmp_path: Path) -> None:
    revoked = consent("1", "anna", status="inactive")
    again = consent("2", "anna", "narrow", written="2026-05-09")
    with ledger(tmp_path, PERSONS, key=KEY) as opened:
        read(tmp_path, revoked).bring_about(opened)
        both = read(tmp_path, revoked, again)
        with pytest.raises(
            PrivacyRefusal, match="1 persons would be allowed more, which needs the steward's signature"
        ):
            both.bring_about(opened)
        assert budgets_of(opened, PERSONS)["anna"][1]
        found = both.bring_about(opened, key=KEY)
        assert kinds(found, both) == {"reconsent": {"anna"}, "lower": {"anna"}}
        assert budgets_of(opened, PERSONS)["anna"] == (pytest.approx(0.5), False)
        assert both.changes(opened).actions == ()


class TestNothingIsChangedIfAnythingIsWrong:
    def test_one_bad_resource_among_good_ones(self, tmp_path: Path) -> None:
        with ledger(tmp_path, PERSONS, key=KEY) as opened:
            with pytest.raises(InputError, match="Consent/9"):
                read(tmp_path, consent("3", "cleo", status="inactive"), consent("9", "ben", "unheard-of"))
            assert not opened.actions()

    @pytest.mark.parametrize("signer", [None, StewardKey()])
    def test_a_raise_without_the_right_signature(self, tmp_path: Path, signer: StewardKey | None) -> None:
        consents = read(tmp_path, consent("3", "cleo", status="inactive"), consent("9", "ben", "broad"))
        with ledger(tmp_path, PERSONS, key=KEY) as opened:
            with pytest.raises(PrivacyRefusal, match="signature"):
                consents.bring_about(opened, key=signer, budgets=tmp_path / "new.csv")
            assert not opened.actions()
            assert not (tmp_path / "new.csv").exists()
            consents.bring_about(opened, key=KEY)  # the control
            assert {one.kind for one in opened.actions()} == {"withdraw", "raise"}

    def test_withdrawals_need_not_wait_for_the_steward(self, tmp_path: Path) -> None:
        consents = read(tmp_path, consent("3", "cleo", status="inactive"), consent("9", "ben", "broad"))
        with ledger(tmp_path, PERSONS) as opened:  # without a steward's key
            with pytest.raises(PrivacyRefusal, match="created without a steward key"):
                consents.bring_about(opened)
            assert not opened.actions()
            found = consents.bring_about(opened, only_less=True)
            assert kinds(found, consents) == {"withdraw": {"cleo"}}
            assert budgets_of(opened, PERSONS)["ben"] == (pytest.approx(1.0), False)

    def test_ids_that_a_spreadsheet_would_run(self, tmp_path: Path) -> None:
        evil = consent("8", "x") | {"patient": {"reference": "Patient/=HYPERLINK(1)"}}
        consents = read(tmp_path, evil, consent("3", "cleo", status="inactive"))
        with ledger(tmp_path, PERSONS) as opened:
            with pytest.raises(InputError, match=r"Consent/8: the id .* would be run as a formula"):
                consents.bring_about(opened, budgets=tmp_path / "new.csv")
            assert not opened.actions()
            assert not (tmp_path / "new.csv").exists()


def test_records_are_persons_in_a_ledger_without_subjects(tmp_path: Path) -> None:
    by_record = the_map(tmp_path, **{'ledger_id = "subject"': 'ledger_id = "record"'})
    resources = bundle(consent("1", "r0", "tiny"), consent("2", "r1", status="inactive"), consent("3", "r99"))
    consents = read_consents(written(tmp_path, resources), by_record, NOW)
    with small.make(tmp_path) as opened:
        found = consents.bring_about(opened)
        assert kinds(found, consents) == {"lower": {"r0"}, "withdraw": {"r1"}}
        assert len(found.unknown) == 1
        assert opened.explain("r0").epsilon == pytest.approx(0.1)
        assert opened.explain("r1").withdrawn
        assert opened.explain("r2").epsilon == 2.0
    (tmp_path / "persons").mkdir()
    with ledger(tmp_path / "persons", PERSONS) as other:
        wrong = read_consents(written(tmp_path, bundle(consent("1", "a1"), consent("2", "a2"))), by_record, NOW)
        with pytest.raises(InputError, match='ledger_id = "subject"'):
            wrong.changes(other)


def test_withdrawn_before_the_next_step_of_a_run(tmp_path: Path) -> None:
    """Import, run, revoke, import beside the run: the very next step leaves the person out; the next run, too."""
    table = BudgetTable([f"r{number}" for number in range(4)], [2.0] * 4, subjects=["p0", "p0", "p1", "p2"])
    with small.make(tmp_path, table, steward=KEY.public) as running:
        first = read(tmp_path, *(consent(name, name, "broad") for name in ("p0", "p1", "p2")))
        first.bring_about(running, key=KEY)
        plan = small.plan(running, table)
        running.reserve("first", plan, None)
        running.charge("first", 1, small.heads)
        assert running.switched_off().tolist() == []
        revoked = consent("later", "p0", status="inactive", written="2026-05-30")
        second = read(tmp_path, *(consent(name, name, "broad") for name in ("p0", "p1", "p2")), revoked)
        with Ledger.read(tmp_path / "ledger.db") as steward:
            found = second.bring_about(steward)
        assert kinds(found, second) == {"withdraw": {"p0"}}
        assert running.switched_off().tolist() == [0, 1]  # before the next charge, which books it
        running.charge("first", 2, small.heads)
        assert running.switched_off().tolist() == [0, 1]
    with Ledger.open(tmp_path / "ledger.db") as later:
        assert later.verify().is_good
        assert later.left(table, small.DELTA).epsilon[:2].tolist() == [0.0, 0.0]
        assert (later.left(table, small.DELTA).epsilon[2:] > 0.0).all()


STATEMENTS = st.tuples(
    st.sampled_from(["active", "active", "active", "inactive", "entered-in-error", "draft"]),
    st.sampled_from([*CHOICES, "none"]),
    st.sampled_from([None, {"end": "2026-05"}, {"end": "2027"}, {"start": "2026-07"}]),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(
        st.dictionaries(st.sampled_from([*PERSONS, "new"]), STATEMENTS, min_size=1), min_size=1, max_size=3
    ),
    account=st.sampled_from(["sums", "renyi"]),
)
def test_what_is_shown_is_what_is_done(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[dict[str, tuple[Any, ...]]], account: str
) -> None:
    """Several imports one after the other, compared with a model of what each person has said last."""
    directory = tmp_path_factory.mktemp("ledger")
    model = dict.fromkeys(PERSONS, (1.0, False))
    with ledger(directory, PERSONS, account=account, key=KEY) as opened:
        for said in rounds:
            resources = [
                consent(name, name, code, status=status, period=period) for name, (status, code, period) in said.items()
            ]
            consents = read(directory, *resources)
            shown = consents.changes(opened)
            done = consents.bring_about(opened, key=KEY)
            assert {kind: rows.tolist() for kind, rows in shown.rows.items()} == {
                kind: rows.tolist() for kind, rows in done.rows.items()
            }
            assert [(one.kind, one.hashes.tolist()) for one in shown.actions] == [
                (one.kind, one.hashes.tolist()) for one in done.actions
            ]
            for one, other in zip(shown.actions, done.actions, strict=True):
                np.testing.assert_array_equal(one.epsilon, other.epsilon)
                np.testing.assert_array_equal(one.delta, other.delta)
            for name, (status, code, period) in said.items():
                waits = status == "draft" or (status == "active" and code != "none" and period == {"start": "2026-07"})
                waits = waits or (status == "active" and code == "none" and period == {"start": "2026-07"})
                if name not in model or waits:
                    continue
                over = period == {"end": "2026-05"}
                allows = status == "active" and code != "none" and not over
                model[name] = (CHOICES[code][0], False) if allows else (model[name][0], True)
            now = budgets_of(opened, PERSONS)
            assert {name: is_off for name, (_, is_off) in now.items()} == {
                name: off for name, (_, off) in model.items()
            }
            for name, (epsilon, is_off) in model.items():
                assert is_off or now[name][0] == pytest.approx(epsilon)
            assert consents.changes(opened).actions == ()


def test_a_thousand_generated_consents_of_every_kind(tmp_path: Path) -> None:
    """Every status, code, period, kind of provision and several statements per person; computed a second time here."""
    rng = np.random.default_rng(7)
    statuses = ["active"] * 6 + ["inactive", "rejected", "entered-in-error", "draft", "proposed"]
    periods = [None, None, {"end": "2026-05"}, {"end": "2027"}, {"start": "2026-07"}, {"start": "2020", "end": "2030"}]
    resources: list[dict[str, Any]] = []
    expected: dict[int, Any] = dict.fromkeys(range(300))
    for number in range(1_000):
        person = number % 300
        status, code = statuses[rng.integers(len(statuses))], [*CHOICES, "none"][rng.integers(4)]
        period, kind = periods[rng.integers(len(periods))], ["permit", "permit", "permit", "deny"][rng.integers(4)]
        day = f"2025-0{1 + number // 300}-11"
        resources.append(
            consent(f"c{number}", f"p{person}", code, status=status, period=period, kind=kind, written=day)
        )
        if status in ("draft", "proposed"):
            continue
        if status == "active" and kind == "permit" and period == {"start": "2026-07"}:
            continue
        allows = status == "active" and kind == "permit" and code != "none" and period != {"end": "2026-05"}
        expected[person] = CHOICES[code][0] if allows else "ended"
    persons = {f"p{number}": [f"r{number}"] for number in range(300)}
    order = rng.permutation(1_000)
    consents = read(tmp_path, *(resources[place] for place in order))
    with ledger(tmp_path, persons, key=KEY) as opened:
        found = consents.bring_about(opened, key=KEY)
        assert len(found.rows["withdraw"]) == sum(value == "ended" for value in expected.values())
        for number, value in expected.items():
            account = opened.explain(f"r{number}")
            assert account.withdrawn == (value == "ended")
            if value != "ended":
                assert account.epsilon == pytest.approx(1.0 if value is None else value)
        assert consents.changes(opened).actions == ()
        assert opened.verify().is_good
