"""Public and silo plans: frozen, fingerprinted, refused when altered; who takes part and why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpdp import BudgetTable, PrivacyCurve, PublicPlan, Schedule, SiloPlan
from rpdp.errors import InputError, PlanError, PrivacyRefusal, TamperedPlanError
from rpdp.planning import ESTIMATORS, TUNED_ON_BUDGETS, Allowances, Estimate, Status, assign_allowed
from rpdp.planning.public_plan import FORMATS
from rpdp.planning.silo_plan import _digest_of_strings

SETTINGS: dict[str, Any] = {
    "noise_multiplier": 9.0,
    "delta": 1e-4,
    "clip_norm": 1.0,
    "normaliser": 64,
    "weights": 1.0,
    "accountant": "rdp",
}
SCHEDULE = Schedule(15, 50, participations=8)


def public(**changes: Any) -> PublicPlan:
    return PublicPlan(SCHEDULE, **{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def table() -> BudgetTable:
    return BudgetTable(["a", "b", "c", "d"], [0.1, 1.0, 5.0, 50.0])


@pytest.fixture(scope="module")
def silo(table: BudgetTable) -> SiloPlan:
    return public().assign(table)


def test_json_round_trip() -> None:
    plan = public(weights={"north": 2.0, "south": 1.0}, model_fingerprint="ab12", notes=("tried",))
    assert PublicPlan.from_json(plan.to_json()) == plan
    assert PublicPlan.from_json(plan.to_json()).fingerprint == plan.fingerprint


@pytest.mark.parametrize("notes", ["tried", ["tried", 3], [None]])
def test_notes_are_strings(notes: Any) -> None:
    with pytest.raises(InputError, match="must be a list of strings"):
        public(notes=notes)


def test_notes_cannot_be_changed_after_the_plan_was_made() -> None:
    notes = ["tried"]
    plan = public(notes=notes)
    before = plan.fingerprint
    notes.append("another")
    assert plan.notes == ("tried",)
    assert plan.fingerprint == before


@pytest.mark.parametrize(
    "change",
    [
        {"noise_multiplier": 9.000001},
        {"delta": 2e-4},
        {"clip_norm": 2.0},
        {"normaliser": 65},
        {"weights": 2.0},
        {"weights": {"north": 1.0}},
        {"accountant": "pld"},
        {"model_fingerprint": "ff"},
        {"notes": ("not covered",)},
    ],
    ids=str,
)
def test_every_setting_is_in_the_fingerprint_and_altering_it_is_refused(change: dict[str, Any]) -> None:
    original = public()
    assert public(**change).fingerprint != original.fingerprint
    altered = {**json.loads(original.to_json()), **change}
    with pytest.raises(TamperedPlanError, match="altered"):
        PublicPlan.from_json(json.dumps(altered))


@pytest.mark.parametrize("change", [{"rounds": 16}, {"local_steps": 49}, {"participations": 7}])
def test_every_part_of_the_schedule_is_in_the_fingerprint(change: dict[str, int]) -> None:
    values = json.loads(public().to_json())
    values["schedule"].update(change)
    with pytest.raises(TamperedPlanError):
        PublicPlan.from_json(json.dumps(values))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"fingerprint": "x", "format": "other"}', '{"fingerprint": 1}'])
def test_what_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        PublicPlan.from_json(text)


@pytest.mark.parametrize("other", ["rpdp-public-plan/0", "rpdp-public-plan/3", ""])
def test_a_plan_of_an_earlier_or_a_later_format_is_refused(other: str) -> None:
    text = public().to_json()
    assert FORMATS[0] in text
    with pytest.raises(PlanError, match="not a plan in the format rpdp-public-plan/1"):
        PublicPlan.from_json(text.replace(FORMATS[0], other))


def test_unknown_settings_are_refused() -> None:
    values = {**json.loads(public().to_json()), "noise_multiplyer": 1.0}
    with pytest.raises(PlanError, match="noise_multiplyer"):
        PublicPlan.from_json(json.dumps(values))


def test_files(tmp_path: Path) -> None:
    public().write(tmp_path / "plan.json")
    assert PublicPlan.read(tmp_path / "plan.json") == public()
    with pytest.raises(PlanError, match=r"nowhere\.json"):
        PublicPlan.read(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier=-1.0 must be positive"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"clip_norm": float("inf")}, "clip_norm=inf"),
        ({"normaliser": 0}, "normaliser=0.0"),
        ({"weights": {}}, "weights="),
        ({"weights": {"a": -1.0}}, "weights="),
        ({"weights": {"a": 0.0}}, "weights="),
        ({"weights": {1: 1.0}}, "weights={1: 1.0} must map silo names"),
        ({"accountant": "x"}, "accountant='x'"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        public(**change)


@pytest.mark.parametrize("schedule", [None, 15, {"rounds": 15, "local_steps": 50, "participations": 8}])
def test_what_is_no_schedule_is_named(schedule: Any) -> None:
    with pytest.raises(InputError, match=r"must be a rpdp\.Schedule"):
        PublicPlan(schedule, **SETTINGS)


def test_a_plan_shows_whose_weights_it_has() -> None:
    assert "all alike" in public()._repr_html_()
    assert "2 silos" in public(weights={"north": 2.0, "south": 1.0})._repr_html_()


def test_plans_are_frozen(silo: SiloPlan) -> None:
    with pytest.raises(AttributeError):
        public().delta = 0.5  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        silo.q[0] = 1.0
    facts = {"r_squared": 0.9}
    plan = replace(silo, facts=facts)
    facts["r_squared"] = 1.0
    assert plan.facts["r_squared"] == 0.9
    with pytest.raises(TypeError):
        plan.facts["r_squared"] = 1.0  # type: ignore[index]


def test_assignment(silo: SiloPlan, table: BudgetTable) -> None:
    assert (silo.cost <= table.epsilon).all()
    assert (silo.slack >= 0).all()
    assert silo.q[3] == 1.0
    assert silo.status.tolist() == [Status.SAMPLED, Status.SAMPLED, Status.SAMPLED, Status.ALWAYS]
    assert silo.expected_batch == pytest.approx(silo.q.sum())
    assert silo.signal_to_noise == pytest.approx(silo.q.sum() / 9.0)
    groups = silo.groups()
    assert [group.low for group in groups] == [0.1, 1.0, 5.0, 50.0]
    assert sum(group.share_of_batch for group in groups) == pytest.approx(1.0)
    assert json.loads(json.dumps(silo.summary()))["left_out"] == 0


def test_reasons_are_stored_as_numbers_that_stay_the_same() -> None:
    """A stored plan has numbers; another meaning of a number would be another reason for the record."""
    plan = public().assign(BudgetTable(["a", "b", "c"], [1.0, 1000.0, 1.0], delta=[1e-3, 1e-3, 1e-6]))
    assert plan.status.tolist() == [0, 1, 0]
    long = PublicPlan(
        Schedule(100_000, 1000, participation=1.0), **{**SETTINGS, "noise_multiplier": 0.5, "delta": 1e-15}
    )
    short = long.assign(BudgetTable(["a"], [0.001]))
    assert (short.status.tolist(), short.q.tolist()) == ([2], [0.0])
    assert "fewer rounds or more noise" in short.explain("a")
    names = ["SAMPLED", "ALWAYS", "BUDGET_TOO_SMALL", "DELTA_TOO_SMALL", "OTHER_PURPOSE"]
    assert {one.name: int(one) for one in Status} == {name: number for number, name in enumerate(names)}  # stored


def test_a_silo_plan_equals_itself_alone(silo: SiloPlan, table: BudgetTable) -> None:
    """Plans are compared by fingerprint; element by element the comparison would be no truth value."""
    again = public().assign(table)
    assert silo != again
    assert len({silo, again, silo}) == 2
    assert silo.fingerprint == again.fingerprint


def test_an_estimator_is_never_given_by_position(table: BudgetTable) -> None:
    plan: Any = public()
    with pytest.raises(TypeError, match="positional"):
        plan.assign(table, "scf")


def test_records_with_less_delta_are_priced_at_their_own(table: BudgetTable) -> None:
    """Nobody sits out because an own δ is smaller than the plan's; a smaller δ buys less."""
    with_delta = BudgetTable(["a", "b", "c"], [1.0, 1.0, 1.0], delta=[1e-4, 9e-5, 1e-9])
    plan = public().assign(with_delta)
    assert plan.status.tolist() == [Status.SAMPLED] * 3
    assert plan.q[0] > plan.q[1] > plan.q[2] > 0.0
    assert (plan.delta <= [1e-4, 9e-5, 1e-9]).all()
    for row in (1, 2):
        true = PrivacyCurve(SCHEDULE, noise_multiplier=9.0, delta=float(plan.delta[row])).bounds([plan.q[row]])
        assert true.lower[0] <= plan.cost[row] <= 1.0
    assert "by the rdp accountant" in plan.explain("b")
    assert public().assign(table, lifetime_delta=1e-5).left_out == 0
    with pytest.raises(InputError, match="lifetime_delta"):
        public().assign(table, lifetime_delta=1.0)


@pytest.mark.parametrize(("share", "is_common"), [(1.0 - 1e-13, True), (1.0 - 1e-11, False), (0.5, False)])
def test_a_delta_may_be_off_by_the_rounding_of_its_digits_and_no_more(share: float, is_common: bool) -> None:
    plan = public().assign(BudgetTable(["a"], [1.0], delta=[1e-4 * share]))
    assert bool(plan.delta[0] == 1e-4) is is_common
    assert is_common or plan.delta[0] <= 1e-4 * share


def test_subjects_share_their_budget() -> None:
    """Group composition: three records at (ε/3, δ') keep (ε, δ) for the person behind them."""
    table = BudgetTable(["a", "b", "c"], [1.5] * 3, delta=[1e-3] * 3, subjects=["p"] * 3)
    plan = public().assign(table)
    assert (plan.budget == 0.5).all()
    assert (plan.cost <= 0.5).all()
    group_delta = 1e-4 * sum(np.exp(0.5 * k) for k in range(3))
    assert group_delta <= 1e-3
    assert plan.left_out == 0


def test_subjects_without_a_delta_are_not_promised_more_than_holds() -> None:
    table = BudgetTable(["a", "b", "c"], [1.0] * 3, subjects=["p", "p", "q"])
    plan = public().assign(table)
    group_delta = plan.delta[0] * (1.0 + np.exp(0.5))
    assert plan.left_out == 0
    assert group_delta <= public().delta
    assert (plan.cost[:2] <= 0.5).all()
    assert public().assign(table, lifetime_delta=1e-2).left_out == 0


def test_a_lifetime_delta_below_that_of_the_plan_holds_for_subjects() -> None:
    table = BudgetTable(["a", "b", "c"], [1.0] * 3, subjects=["p", "p", "q"])
    plan = public().assign(table, lifetime_delta=1e-5)
    assert plan.left_out == 0
    assert plan.delta[2] <= 1e-5
    assert plan.delta[0] * (1.0 + np.exp(0.5)) <= 1e-5


def test_an_estimator_that_overspends_is_refused(table: BudgetTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(curve: object, budgets: np.ndarray) -> Estimate:
        del curve
        return Estimate(np.ones(budgets.size), budgets * 1.01, np.full(budgets.size, 15, dtype=np.int32))

    monkeypatch.setitem(ESTIMATORS, "greedy", greedy)
    with pytest.raises(PrivacyRefusal, match="4 costs above their budget"):
        public().assign(table, estimator="greedy")


@pytest.mark.parametrize(
    ("column", "wrong", "words"),
    [
        ("active_rounds", -1, "1 records active in rounds that do not exist"),
        ("active_rounds", 16, "1 records active in rounds that do not exist"),
        ("q", -0.1, "1 probabilities outside"),
        ("q", 1.1, "1 probabilities outside"),
        ("q", np.nan, "1 probabilities outside"),
        ("cost", 51.0, "1 costs above their budget"),
        ("cost", np.nan, "1 costs above their budget"),
    ],
)
def test_a_plan_that_breaks_the_promise_cannot_be_made(silo: SiloPlan, column: str, wrong: float, words: str) -> None:
    values = getattr(silo, column).copy()
    values[-1] = wrong
    with pytest.raises(PrivacyRefusal, match=words):
        replace(silo, **{column: values})


def test_groups_hold_every_record_whatever_is_left_of_its_budget() -> None:
    """Also those with nothing left, which lie below every band."""
    left = np.array([0.0, *np.geomspace(0.05, 3.0, 30)])
    plan = assign_allowed(public(), pa.chunked_array([[str(i) for i in range(31)]]), Allowances.of_sums(left))
    groups = plan.groups()
    assert sum(group.records for group in groups) == 31
    assert sum(group.share_of_records for group in groups) == pytest.approx(1.0)
    assert sum(group.share_of_batch for group in groups) == pytest.approx(1.0)
    assert len(groups) == 10
    assert (groups[0].low, groups[-1].high) == (0.0, 3.0)
    assert groups[0].left_out >= 1
    assert sum(group.left_out for group in groups) == plan.left_out


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_parquet_round_trip(tmp_path: Path, table: BudgetTable, estimator: str) -> None:
    plan = public().assign(table, estimator=estimator)
    plan.write(tmp_path / "silo.parquet")
    again = SiloPlan.read(tmp_path / "silo.parquet")
    assert again.fingerprint == plan.fingerprint
    assert again.estimator == estimator
    np.testing.assert_array_equal(again.q, plan.q)


@pytest.mark.parametrize("column", ["budget", "q", "cost", "active_rounds", "status", "record"])
def test_an_altered_silo_plan_is_refused(tmp_path: Path, silo: SiloPlan, column: str) -> None:
    path = tmp_path / "silo.parquet"
    silo.write(path)
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    values[0], values[1] = (values[1], values[0]) if values[0] != values[1] else (values[0] + 1, values[1])
    index = table.column_names.index(column)
    changed = pa.array(values, type=table.field(column).type)
    pq.write_table(table.set_column(index, table.field(column), changed), path)
    with pytest.raises(PrivacyRefusal):
        SiloPlan.read(path)


def test_a_column_of_another_type_is_refused(tmp_path: Path, silo: SiloPlan) -> None:
    """The same bytes read as whole numbers would put every record into every batch."""
    path = tmp_path / "silo.parquet"
    silo.write(path)
    table = pq.read_table(path)
    whole = pa.array(silo.q.view(np.int64))
    pq.write_table(table.set_column(table.column_names.index("q"), "q", whole), path)
    with pytest.raises(PlanError, match="column q is int64"):
        SiloPlan.read(path)


def test_ids_are_hashed_by_what_they_say_however_they_are_stored() -> None:
    ids = [f"record {number}" for number in range(9)]
    whole = pa.array(ids, pa.large_string())
    expected = _digest_of_strings(pa.chunked_array([whole.slice(3, 4)]))
    assert expected == _digest_of_strings(pa.chunked_array([pa.array(ids[3:7])]))
    assert expected == _digest_of_strings(pa.chunked_array([whole.slice(3, 1), whole.slice(4, 3)]))
    for other in (whole.slice(3, 3), whole.slice(3, 5), whole.slice(2, 4), pa.array([ids[4], ids[3], *ids[5:7]])):
        assert expected != _digest_of_strings(pa.chunked_array([other.cast(pa.large_string())]))


def test_rarely_drawn_are_those_that_take_part_and_hardly_come_up() -> None:
    budgets = BudgetTable(["a", "b", "c"], [1e-3, 5.0, 5.0], delta=[1e-3, 1e-3, 1e-6])
    plan = public().assign(budgets)
    assert (plan.q > 0.0).all()
    draws = plan.q * 8 * 50
    assert draws[0] < 1.0 < draws[1]
    assert plan.summary()["rarely_drawn"] == 1
    nothing = Allowances.of_sums(np.array([5.0, 5.0]), np.array([1e-4, 0.0]))
    short = assign_allowed(public(), pa.chunked_array([["a", "b"]]), nothing)
    assert short.summary()["left_out"] == short.summary()["left_out_delta_too_small"] == 1
    assert "nothing is left of its δ" in short.explain("b")


def test_what_the_estimator_said_is_in_the_fingerprint(tmp_path: Path, table: BudgetTable) -> None:
    plan = public().assign(table, estimator="scf")
    path = tmp_path / "silo.parquet"
    plan.write(path)
    stored = pq.read_table(path)
    meta = json.loads(stored.schema.metadata[b"rpdp"])
    meta["facts"]["violation"] = 0.5
    pq.write_table(stored.replace_schema_metadata({b"rpdp": json.dumps(meta).encode()}), path)
    with pytest.raises(TamperedPlanError):
        SiloPlan.read(path)


def test_what_is_not_a_silo_plan_is_refused(tmp_path: Path, table: BudgetTable) -> None:
    table.write(tmp_path / "budgets.parquet")
    with pytest.raises(PlanError, match="not a silo plan"):
        SiloPlan.read(tmp_path / "budgets.parquet")


def test_explanations(silo: SiloPlan) -> None:
    story = silo.explain("b")
    for part in ("Record b allows ε = 1", f"{silo.q[1]:.4g}", f"{silo.cost[1]:.4g}", "advantage of at most"):
        assert part in story
    assert "averages over" not in story  # exactly 8 rounds: the promise is the realised cost
    coin = PublicPlan(Schedule(15, 50, participation=0.5), **SETTINGS).assign(BudgetTable(["a"], [1.0]))
    assert "given that it joined 11 rounds" in coin.explain("a")
    with pytest.raises(PlanError, match="no record 'zzz'"):
        silo.explain("zzz")


def test_notes_travel(table: BudgetTable) -> None:
    noted = public().with_note(TUNED_ON_BUDGETS)
    assert noted.assign(table).public.notes == (TUNED_ON_BUDGETS,)
    assert noted.fingerprint != public().fingerprint


def test_many_different_budgets_form_bands() -> None:
    budgets = np.geomspace(0.1, 10, 500)
    groups = public().assign(BudgetTable([f"r{i}" for i in range(500)], budgets)).groups()
    assert 2 <= len(groups) <= 10
    assert sum(group.records for group in groups) == 500
