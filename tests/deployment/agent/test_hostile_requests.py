"""A hostile server's requests, against an agent with real columns and a real model: refused in one word, or harmless.

The rows are as in the table of hostile behaviour: nothing is charged or released, and the ledger stays good. Whatever
is refused is refused alike by a silo with other patients and budgets.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rpdp.deployment.agent.release_timing import Timing
from rpdp.errors import Reason
from rpdp.federation import Update, model_fingerprint
from rpdp.federation.exact_sums import LARGEST_NOISE
from rpdp.planning import MeasureSpec, PublicPlan, Request
from rpdp.statistics import Columns, ColumnSource, EvaluationMeasure, ModelCells
from rpdp.statistics.column_source import MOST_ENTRIES
from tests.deployment.agent.scene import (
    RECORDS,
    Making,
    admission,
    admitted,
    announcement,
    head_of,
    opened,
    policy_of,
    public_plan,
    reason,
    told,
)
from tests.federation.requests import make_asked
from tests.federation.world import make_model, make_records

if TYPE_CHECKING:
    from pathlib import Path

AGE = {"column": "age", "range": [18.0, 100.0]}
SEX = {"column": "sex", "levels": ["F", "M"], "has_other": True, "has_missing": True}
MODEL = model_fingerprint(make_model())
TRAINED = public_plan(2, 2)
MEAN = make_asked(2, request=Request("representative", (MeasureSpec("count", 1),)), noise_multiplier=2.0)


def values(kind: str, count: int = RECORDS) -> Columns:
    """Patients as usual, or as bad as a table can hold them."""
    generator = np.random.default_rng(3)
    age, sex = generator.uniform(20.0, 90.0, count), generator.choice(["F", "M"], count)
    if kind == "strange":
        age = np.resize([np.nan, np.inf, -np.inf, 1e308, 5e-324, -0.0], count)
        sex = np.resize(["", "?", "F"], count)
    return Columns.of_arrays({"age": age, "sex": sex}, ranges={"age": (18, 100)}, levels={"sex": ("F", "M")})


def making(kind: str = "usual", **more: Any) -> Making:
    records = make_records(RECORDS, seed=0 if kind == "usual" else 4)
    if kind == "strange":
        records = replace(records, inputs=(torch.full_like(records.inputs[0], float("nan")),))
    return Making(
        TRAINED,
        records=records,
        epsilon=[20.0] if kind == "usual" else [0.1, 3.0],
        policy=policy_of(TRAINED, max_share_per_run=0.3, max_runs=9, max_cells=20_000),
        measured={"statistics": ColumnSource(values(kind)), "evaluation": ModelCells(records, make_model())},
        held_out=np.arange(RECORDS) % 3 == 0,
        **more,
    )


def asked(*measures: tuple[str, int, dict[str, Any]], **changes: Any) -> PublicPlan:
    request = Request("everyone", tuple(MeasureSpec(*each) for each in measures))
    return make_asked(request=request, noise_multiplier=changes.pop("noise", 2.0), **changes)


def evaluated(*measures: tuple[str, int, dict[str, Any]]) -> PublicPlan:
    return asked(*measures, purpose="evaluation", model_fingerprint=MODEL)


def bins(*edges: Any, facts: dict[str, Any] = AGE) -> tuple[str, int, dict[str, Any]]:
    return "histogram", len(edges), {"axes": [{**facts, "edges": list(edges)}]}


def scores(**changes: Any) -> tuple[str, int, dict[str, Any]]:
    spec = EvaluationMeasure.for_metrics(["auc"], classes=2).spec()
    settings = {**spec.settings, **changes}
    return "scores", 2 * settings["bins"] * len(settings.get("levels", [1])), settings


MOMENTS = {"columns": [AGE], "interest": 1, "degree": 1}
REFUSED: dict[str, PublicPlan] = {
    "a measure that nobody knows": asked(("median", 1, {"column": "age"})),
    "a column that is not there": asked(("sum", 1, {**AGE, "column": "name"})),
    "a column that is a list": asked(("sum", 1, {**AGE, "column": ["age"]})),
    "a range of its own": asked(("sum", 1, {"column": "age", "range": [-1e-3, 1e-3]})),
    "a range of no width": asked(("sum", 1, {"column": "age", "range": [18.0, 18.0]})),
    "a range that no float can hold": asked(("sum", 1, {"column": "age", "range": [0, 10**400]})),
    "denormal ends": asked(("sum", 1, {"column": "age", "range": [0.0, 5e-324]})),
    "edges that fall": asked(bins(18.0, 60.0, 40.0, 100.0)),
    "an edge twice": asked(bins(18.0, 60.0, 60.0, 100.0)),
    "edges around one patient only": asked(bins(71.0, 71.5)),
    "an edge that no float can hold": asked(bins(18.0, 10**400)),
    "levels of its own": asked(("histogram", 3, {"axes": [{**SEX, "levels": ["F"]}]})),
    "a level twice": asked(("histogram", 5, {"axes": [{**SEX, "levels": ["F", "F", "M"]}]})),
    "fewer cells than it fills": asked(("histogram", 1, {"axes": [SEX]})),
    "moments of degree 400": asked(("moments", 401, {**MOMENTS, "degree": 400})),
    "a mean of levels": asked(("moments", 2, {**MOMENTS, "columns": [SEX]})),
    "the same column twice": asked(("moments", 6, {**MOMENTS, "columns": [AGE, AGE], "degree": 2})),
    "settings that nobody reads": asked(("count", 1, {"where": "age > 71"})),
    "so wide that a silo works for hours": asked(*[("count", 1, {})] * (MOST_ENTRIES + 1)),
    "more noise than sums can carry": asked(("count", 1, {}), noise=2.0 * LARGEST_NOISE),
    "statistics as an evaluation": evaluated(("count", 1, {})),
    "an evaluation as statistics": asked(scores()),
    "two evaluations at the price of one": evaluated(scores(), scores()),
    "scores of three classes": evaluated(scores(classes=3)),
    "an odd number of bins": evaluated(scores(bins=33)),
    "bins beyond what floats can hold": evaluated(scores(limit=1.7e308)),
    "groups by a column that is not declared": evaluated(scores(column="name", levels=["Smith"])),
    "errors of a class": evaluated(("errors", 2, {"metrics": ["mae"], "bound": 10**400})),
}


def test_hostile_requests_are_refused_and_change_nothing(tmp_path: Path) -> None:
    """By two silos alike: nothing in a refusal follows from patients or budgets."""
    heard: list[dict[str, str]] = []
    for kind in ("usual", "strange"):
        (tmp_path / kind).mkdir()
        with opened(tmp_path / kind, making(kind)) as agent:
            before = head_of(agent)
            heard.append({name: reason(told(agent, admission(plan, "new"))) for name, plan in REFUSED.items()})
            assert head_of(agent) == before
            assert agent.silo.account.status().runs == ()
            assert agent.silo.account.verify().is_good  # type: ignore[attr-defined]
    assert heard[0] == heard[1]
    assert set(heard[0].values()) == {str(Reason.POLICY)}
    sys.stdout.write("".join(f"\n{name:50s} refused ({word})" for name, word in heard[0].items()))


HARMLESS: dict[str, tuple[PublicPlan, float | None]] = {
    "hardly any noise": (asked(("count", 1, {}), noise=0.05), None),
    "as much noise as sums can carry": (asked(("count", 1, {}), noise=1e6), None),
    "20,000 bins for 30 patients": (asked(bins(*np.linspace(18.0, 100.0, 20_000).tolist())), None),
    "everything about everybody": (asked(("moments", 5, {**MOMENTS, "degree": 4}), bins(18.0, 100.0)), None),
    "the same number twice": (MEAN, None),
    "a model of zeros": (evaluated(scores()), 0.0),
    "a model of huge weights": (evaluated(scores()), 3e38),
    "a denormal model": (evaluated(scores()), 1e-45),
}


@pytest.mark.parametrize("kind", ["usual", "strange"])
def test_what_cannot_be_told_from_an_honest_request_costs_what_records_allow(tmp_path: Path, kind: str) -> None:
    """Asked, answered with finite numbers of a fixed size, and asked again: the same bytes."""
    with opened(tmp_path, making(kind)) as agent:
        for number, (name, (plan, weights)) in enumerate(HARMLESS.items()):
            run, more = f"run-{number}", {"size": 0} if weights is None else {}
            known = head_of(agent) if number else None
            assert (name, told(agent, admission(plan, run, head=known)).kind) == (name, "admitted")
            answers = [
                told(agent, announcement(plan, 1, weights or 0.0, run=run, head=head_of(agent), **more))
                for _ in range(2)
            ]
            assert [answer.kind for answer in answers] == ["update", "update"], name
            assert answers[0].payload == answers[1].payload
            sums = Update.from_bytes("a", answers[0].payload).change
            assert plan.request is not None
            assert (len(sums), bool(sums.isfinite().all())) == (plan.request.size, True)
        assert agent.silo.account.verify().is_good  # type: ignore[attr-defined]
        overview = agent.silo.account.overview()  # type: ignore[attr-defined]
        assert len(overview.runs) == len(HARMLESS)


def test_strange_patients_are_no_later_than_others(tmp_path: Path) -> None:
    """An answer leaves at the public time, whatever a table holds."""
    with admitted(tmp_path, making("strange", timing=Timing(2.0)), {"run": MEAN}) as agent:
        assert told(agent, announcement(MEAN, 1, size=0, head=head_of(agent))).kind == "update"


def test_a_model_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    plan = evaluated(scores())
    with admitted(tmp_path, making(), {"run": plan}) as agent:
        before = head_of(agent)
        for bad in (float("nan"), float("inf")):
            assert reason(told(agent, announcement(plan, 1, bad, head=before))) == str(Reason.VALUES)
        assert head_of(agent) == before


def test_records_have_finite_sums_whatever_they_hold() -> None:
    """What the rows above rest on, without an agent."""
    source = ColumnSource(values("strange"))
    request = Request("everyone", tuple(MeasureSpec(*each) for each in (bins(18.0, 100.0), ("sum", 1, AGE))))
    cells = source.cells(request, None, np.arange(len(source)))
    assert np.isfinite(cells.value).all()
