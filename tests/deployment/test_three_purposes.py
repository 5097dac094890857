"""One study through a whole federation on this machine: statistics, training, and an evaluation of what was trained."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rpdp.cli.run import run as command
from rpdp.deployment.agent.opening import record_ids
from rpdp.deployment.files.layout import Layout
from rpdp.deployment.trial import federation, provide_trial_budgets
from rpdp.federation import ReleasedSums
from rpdp.ledger import Ledger
from rpdp.planning import PublicPlan, Request
from rpdp.statistics import Count, EvaluationMeasure, Inquiry, Mean, NoisySums, declared_columns, evaluate
from rpdp.studies.study_file import StudyFile
from rpdp.tables import TableSchema
from tests.programs import needs_nginx
from tests.studies.patients import table_study, write_hospitals

from . import trials

if TYPE_CHECKING:
    from typing import Any

pytestmark = [needs_nginx, pytest.mark.slow]
NAMES = ("north", "south")
ANSWERS = """
[requests]
statistics = ["AGE", "ILL"]
evaluation = "study"
[policy]
max_rounds = 2
max_local_steps = 3
max_participation = 1.0
max_clip_norm = 1.0
min_noise_multiplier = 0.1
lifetime_delta = 1e-2
max_runs = 3
max_share_per_run = 0.3
release_after = "ready"
"""


@pytest.fixture
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    home = tmp_path_factory.mktemp("e")
    write_hospitals(home, *NAMES)
    study = StudyFile.read(table_study(home, table='files = { north = "north.csv", south = "south.csv" }'))
    port, behind = trials.free_ports(2)
    made = Layout.create(home / "f", study, NAMES, "127.0.0.1", port, superlink_port=behind)
    for name in NAMES:
        path = made.silo(name) / "silo.toml"
        path.write_text(path.read_text(encoding="utf-8").partition("[policy]")[0] + ANSWERS, encoding="utf-8")
    provide_trial_budgets(made, study)
    return made


def write_plan(layout: Layout, file: str, request: Request, **settings: Any) -> None:
    schema = PublicPlan.read(layout.server / "plan.json").schema_fingerprint
    plan = PublicPlan.of_request(request, schema_fingerprint=schema, delta=1e-3, noise_multiplier=2.0, **settings)
    plan.write(layout.server / file)


def go(layout: Layout, run: str, *changes: str, code: int = 0) -> None:
    words = [word for change in changes for word in ("--set", change)]
    assert command(["deploy", "run", str(layout.directory), "--run-id", run, "--timeout", "300", *words]) == code


def released(layout: Layout, run: str) -> NoisySums:
    found = ReleasedSums.read(layout.server / "runs" / run / "sums.json")
    assert found.seed is None
    assert found.silos == NAMES
    assert (found.answered == 2).all()
    return NoisySums.of(found.public, found.by_silo)


def test_statistics_training_and_evaluation_of_one_study(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    declared = declared_columns(TableSchema.read(layout.silo("north") / "study.toml"))
    inquiry = Inquiry((Count(), Mean("AGE", declared["AGE"])), "everyone")  # type: ignore[arg-type]
    measure = EvaluationMeasure.for_metrics(["accuracy"], classes=2)
    model = PublicPlan.read(layout.server / "plan.json").model_fingerprint
    write_plan(layout, "count.json", inquiry.request, purpose="statistics")
    scores = Request("everyone", (measure.spec(),))
    write_plan(layout, "scores.json", scores, purpose="evaluation", model_fingerprint=model)
    wide = Request("everyone", inquiry.request.measures * 600)
    write_plan(layout, "wide.json", wide, purpose="statistics")

    with federation(layout):
        go(layout, "counted", "plan=count.json")
        go(layout, "trained")
        go(layout, "tested", "plan=scores.json", "evaluate=trained")
        go(layout, "too-wide", "plan=wide.json", code=3)  # refused, and nobody pays
        go(layout, "counted", "plan=count.json")  # finished: left alone

    counted = inquiry.estimates(released(layout, "counted"))
    truth = sum(above_floor(layout, name) for name in NAMES)
    assert 0 < truth < 160
    assert abs(counted[0].value - truth) <= 6.0 * counted[0].error
    assert 0.0 <= evaluate(released(layout, "tested"))[0].first.value <= 1.0
    assert (layout.server / "runs" / "trained" / "result.json").is_file()
    for name in NAMES:
        ledger = layout.silo(name) / "ledger.db"
        capsys.readouterr()
        assert command(["ledger", "verify", str(ledger), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["good"]
        with Ledger.read(ledger) as opened:
            purposes = {one.status.run: one.purpose for one in opened.overview().runs}
        assert purposes == {"counted": "statistics", "trained": "training", "tested": "evaluation"}
        assert "Traceback" not in (layout.silo(name) / "agent.log").read_text()


def above_floor(layout: Layout, name: str) -> int:
    """How many records of a silo paid for the count."""
    with Ledger.read(layout.silo(name) / "ledger.db") as ledger:
        stories = [ledger.explain(record) for record in record_ids(layout.silo_file(name))]
    assert max(story.share_used for story in stories) <= 1.0 + 1e-9
    return sum(any(run.run == "counted" and run.q == 1.0 for run in story.runs) for story in stories)
