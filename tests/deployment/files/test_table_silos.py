"""Silos with tables: the study proposes table, schema and network; the agent opens them without any code."""

from __future__ import annotations

import json
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch

from rpdp.cli.run import run as command
from rpdp.deployment.agent.opening import open_agent, silo_records, table_remarks
from rpdp.deployment.files.layout import Layout
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.deployment.flower import server_run
from rpdp.deployment.trial import provide_trial_budgets
from rpdp.errors import InputError
from rpdp.federation import ReleasedSums
from rpdp.federation.coordinator import Coordinator, RoundSettings
from rpdp.planning import PublicPlan, Request
from rpdp.statistics import (
    Count,
    EvaluationMeasure,
    Inquiry,
    Mean,
    NoisySums,
    NumberRange,
    declared_columns,
    evaluate,
)
from rpdp.studies.study_file import StudyFile
from rpdp.tables import TableSchema
from tests.deployment.agent.links import Local
from tests.deployment.agent.scene import admission, reason, told
from tests.studies.patients import CLASSES, REST, SCHEMA, table_study, write_hospitals

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from rpdp.ledger import Ledger

FILES = 'files = { north = "north.csv", south = "south.csv" }'


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    write_hospitals(tmp_path, "north", "south")
    study = StudyFile.read(table_study(tmp_path, table=FILES))
    made = Layout.create(tmp_path / "federation", study, ["north", "south"], "127.0.0.1", 8443)
    provide_trial_budgets(made, study)
    return made


def test_a_trial_of_tables_opens(layout: Layout) -> None:
    plan = PublicPlan.read(layout.server / "plan.json")
    spec = layout.silo_file("north")
    assert spec.models["study"].network == "linear"
    with open_agent(spec) as agent:
        assert agent.silo.schema_fingerprint == plan.schema_fingerprint is not None
        assert [model.fingerprint for model in agent.models] == [plan.model_fingerprint]
        assert 40 < len(agent.silo.records) < 80  # test records are left out
    assert any("SMOKER: " in remark for remark in table_remarks(spec))
    assert StudyFile.read(layout.server / "study.toml").schema_fingerprint == plan.schema_fingerprint


def test_a_schema_of_its_own_travels_with_the_study(tmp_path: Path) -> None:
    write_hospitals(tmp_path, "north", "south")
    (tmp_path / "columns").mkdir()
    (tmp_path / "columns/ours.toml").write_text(SCHEMA.format("", CLASSES), encoding="utf-8")
    path = tmp_path / "study.toml"
    path.write_text(f'[table]\n{FILES}\nschema = "columns/ours.toml"\n[model]\nname = "mlp"\nhidden = [3]\n{REST}')
    study = StudyFile.read(path)
    made = Layout.create(tmp_path / "federation", study, ["north", "elsewhere"], "127.0.0.1", 8443)
    assert silo_records(made.silo_file("north")).schema_fingerprint == study.schema_fingerprint
    assert made.silo_file("elsewhere").data.table == "elsewhere.csv"
    assert made.silo_file("north").models["study"].hidden == (3,)
    assert StudyFile.read(made.server / "study.toml").schema_fingerprint == study.schema_fingerprint


def changed(layout: Layout, old: str, new: str) -> SiloFile:
    path = layout.silo("north") / "silo.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return SiloFile.read(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('schema = "study.toml"', "", r'data needs either .* table = "north.csv" with schema'),
        ('network = "linear"', "", r"a model needs either .* network ="),
        ('network = "linear"', 'network = "linear"\nhidden = [3]', 'needs network = "mlp"'),
        ('network = "linear"', 'network = "lineal"', "models.study.network='lineal'"),
        (
            "[policy]",
            '[requests]\nevaluation = "risk"\n[policy]',
            "requests.evaluation='risk' must be one of the models",
        ),
        ("[policy]", "[requests]\nstatistics = 1\n[policy]", "requests.statistics=1"),
    ],
)
def test_what_does_not_fit_is_named(layout: Layout, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        changed(layout, old, new)


class TestRequests:
    """Silos whose tables answer statistics and evaluation, from the silo file to the numbers."""

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
    def federation(self, tmp_path: Path) -> Layout:
        write_hospitals(tmp_path, *self.NAMES)
        study = StudyFile.read(table_study(tmp_path, table=FILES))
        made = Layout.create(tmp_path / "federation", study, self.NAMES, "127.0.0.1", 8443)
        for name in self.NAMES:
            path = made.silo(name) / "silo.toml"
            path.write_text(path.read_text(encoding="utf-8").partition("[policy]")[0] + self.ANSWERS, encoding="utf-8")
        provide_trial_budgets(made, study)
        return made

    def ask(self, federation: Layout, public: PublicPlan, run: str, values: torch.Tensor) -> NoisySums:
        with ExitStack() as stack:
            specs = {name: federation.silo_file(name) for name in self.NAMES}
            agents = {name: stack.enter_context(open_agent(spec)) for name, spec in specs.items()}
            found = Coordinator(
                run, public, values, self.NAMES, Local(agents), RoundSettings(deadline=20.0, patience=20.0),
                checkpoint=federation.server / run, heads=federation.server / "heads.json",
            ).release()  # fmt: skip
            assert all(agent.silo.account.verify().is_good for agent in agents.values())  # type: ignore[attr-defined]
        return NoisySums.of(public, found.by_silo)

    def plan(self, federation: Layout, request: Request, **settings: Any) -> PublicPlan:
        public = PublicPlan.read(federation.server / "plan.json")
        schema = {"schema_fingerprint": public.schema_fingerprint, "delta": 1e-3, "noise_multiplier": 0.1}
        return PublicPlan.of_request(request, **{**schema, **settings})

    def test_statistics_and_evaluation_of_tables(self, federation: Layout) -> None:
        """By real agents on their ledgers, one after the other: 160 patients, about a quarter of them held out."""
        declared = declared_columns(TableSchema.read(federation.silo("north") / "study.toml"))
        inquiry = Inquiry((Mean("AGE", declared["AGE"]),), "representative")  # type: ignore[arg-type]
        counted = self.ask(
            federation, self.plan(federation, inquiry.request, purpose="statistics"), "counted", torch.zeros(0)
        )
        assert 0.0 <= inquiry.estimates(counted)[0].value <= 100.0
        spec = federation.silo_file("north")
        held = silo_records(spec)
        assert held.held_out is not None
        assert 10 < held.held_out.sum() < 30
        assert len(held.ids) == 80
        public = PublicPlan.read(federation.server / "plan.json")
        measure = EvaluationMeasure.for_metrics(["accuracy"], classes=2)
        evaluated = self.plan(
            federation,
            Request("representative", (measure.spec(),)),
            purpose="evaluation",
            model_fingerprint=public.model_fingerprint,
        )
        tested = self.ask(federation, evaluated, "tested", torch.zeros(held.records.inputs[0].shape[1] + 1))
        score = evaluate(tested)[0]
        assert 0.0 <= score.first.value <= 1.0

    def test_the_server_app_runs_three_purposes(self, federation: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
        """Statistics, training, and an evaluation of what was trained; a finished run is left alone."""
        trained = PublicPlan.read(federation.server / "plan.json")
        fingerprint = {"model_fingerprint": trained.model_fingerprint}
        measure = EvaluationMeasure.for_metrics(["accuracy"], classes=2)
        count, scores = (Request("everyone", (spec,)) for spec in (Count().measure("everyone").spec, measure.spec()))
        self.plan(federation, count, purpose="statistics").write(federation.server / "count.json")
        self.plan(federation, scores, purpose="evaluation", **fingerprint).write(federation.server / "scores.json")
        config = tomllib.loads((federation.app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        runs: dict[str, dict[str, str]] = {
            "counted": {"plan": "count.json"},
            "trained": {},
            "tested": {"plan": "scores.json", "evaluate": "trained"},
        }
        with ExitStack() as stack:
            link = Local({name: stack.enter_context(open_agent(federation.silo_file(name))) for name in self.NAMES})
            monkeypatch.setattr(server_run, "GridLink", lambda _: link)
            for run, changes in [*runs.items(), *runs.items()]:
                asked = len(link.asked)
                done = federation.server / "runs" / run / ("result.json" if run == "trained" else "sums.json")
                before = done.is_file()
                server_run.run_server(cast("Grid", None), {**config, "run-id": run, **changes})
                assert (len(link.asked) == asked) == before
                assert done.is_file()
            for agent in link.agents.values():
                assert agent is not None
                ledger = cast("Ledger", agent.silo.account)
                assert ledger.verify().is_good
                purposes = {one.purpose for one in ledger.overview().runs}
                assert purposes == {"statistics", "training", "evaluation"}
        for run in ("counted", "tested"):
            found = ReleasedSums.read(federation.server / "runs" / run / "sums.json")
            assert found.silos == self.NAMES
            assert (found.answered == 2).all()
            assert np.isfinite(found.sums).all()

    def test_slowest_request(self, federation: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        path = federation.silo("north") / "silo.toml"
        assert command(["silo", "check", str(path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)["slowest_request"]
        assert set(told) == {"statistics", "evaluation"}
        assert min(told.values()) > 0.0
        assert command(["silo", "check", str(path)]) == 0
        assert "evaluation: a request takes at most" in " ".join(capsys.readouterr().out.split())

    @pytest.mark.parametrize(
        ("statistic", "expected"),
        [
            (Mean("SMOKER", NumberRange(0.0, 1.0)), "there is no column 'SMOKER'"),
            (Mean("AGE", NumberRange(0.0, 200.0)), "column 'AGE' is declared here as"),
        ],
    )
    def test_columns_that_the_steward_does_not_allow_are_refused(
        self, federation: Layout, statistic: Mean, expected: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        public = self.plan(federation, Inquiry((statistic,), "everyone").request, purpose="statistics")
        with open_agent(federation.silo_file("north")) as agent:
            assert reason(told(agent, admission(public))) == "policy"
            assert agent.silo.account.status().runs == ()
        assert expected in caplog.text


def test_records_need_ids(layout: Layout) -> None:
    path = layout.silo("north") / "study.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('record = "PATIENT"', ""), encoding="utf-8")
    with pytest.raises(InputError, match="record is missing: accounts are kept by the ids"):
        silo_records(layout.silo_file("north"))
