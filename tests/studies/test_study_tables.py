"""Studies of tables: study file and schema only, no code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rpdp.errors import BudgetError, InputError, PrivacyRefusal
from rpdp.planning import PublicPlan
from rpdp.sampling import Seeded
from rpdp.studies.building import build
from rpdp.studies.comparison import compare
from rpdp.studies.doctor import examine
from rpdp.studies.execution import MethodRun
from rpdp.studies.run_reports import rebuild_report
from rpdp.studies.study_budgets import drawn_budgets, require_same_persons
from rpdp.studies.study_data import load_source, make_model
from rpdp.studies.study_file import StudyFile
from rpdp.studies.training_run import train
from rpdp.tasks.models.losses import hazard_loss, multi_label_loss, squared_error
from tests.studies.patients import CLASSES, LABELS, NUMBER, REST, SCHEMA, SURVIVAL, table_study, write_hospitals

MLP = '[model]\nname = "mlp"\nhidden = [4]'


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    write_hospitals(tmp_path, "north", "south", "east")
    return tmp_path


def read(directory: Path, **parts: str) -> StudyFile:
    return StudyFile.read(table_study(directory, **parts))


class TestSilos:
    def test_one_file_divided_by_a_column(self, hospitals: Path) -> None:
        silos = load_source(read(hospitals), 1).silos
        assert list(silos) == ["east", "north", "south"]
        assert all(len(held.train) + len(held.test) == 80 for held in silos.values())
        assert all(one.startswith("north-") for one in silos["north"].ids)

    def test_declared_silos_and_the_rest(self, hospitals: Path) -> None:
        table = 'file = "all.csv"\nsilo = "HOSPITAL"\nsilos = ["south"]\nrest = "elsewhere"'
        silos = load_source(read(hospitals, table=table), 1).silos
        assert list(silos) == ["south", "elsewhere"]
        without = load_source(read(hospitals, table=table.replace('rest = "elsewhere"', "")), 1).silos
        assert list(without) == ["south"]

    def test_a_file_for_each_silo_holds_the_same_records(self, hospitals: Path) -> None:
        own = 'files = { north = "north.csv", south = "south.csv" }'
        apart, together = load_source(read(hospitals, table=own), 1).silos, load_source(read(hospitals), 1).silos
        assert apart["north"].ids == together["north"].ids
        assert torch.equal(apart["north"].train.inputs[0], together["north"].train.inputs[0])

    def test_a_split_by_key_differs_between_seeds_if_asked(self, hospitals: Path) -> None:
        fixed, by_seed = read(hospitals), read(hospitals, rest=REST + 'split = "by_seed"')
        assert load_source(fixed, 1).silos["north"].ids == load_source(fixed, 2).silos["north"].ids
        assert load_source(by_seed, 1).silos["north"].ids != load_source(by_seed, 2).silos["north"].ids

    def test_persons_share_a_budget(self, hospitals: Path) -> None:
        spec = read(hospitals)
        drawn = drawn_budgets(spec, "north", ["a", "b", "c"], 1, ["x", "y", "x"])
        assert drawn.subjects is not None
        assert drawn.epsilon[0] == drawn.epsilon[2]
        require_same_persons(drawn, ["x", "y", "x"])
        with pytest.raises(BudgetError, match="1 records belong to one person"):
            require_same_persons(drawn, ["x", "y", "y"])
        with pytest.raises(BudgetError, match="no column subject"):
            require_same_persons(drawn_budgets(spec, "north", ["a"], 1), ["x"])


class TestRuns:
    def test_doctor_train_report_and_compare(self, hospitals: Path) -> None:
        (hospitals / "declared").mkdir()
        (hospitals / "declared/columns.toml").write_text(SCHEMA.format("", CLASSES), encoding="utf-8")
        path = hospitals / "study.toml"
        path.write_text(
            f'[table]\nfile = "all.csv"\nsilo = "HOSPITAL"\nschema = "declared/columns.toml"\n{REST}', encoding="utf-8"
        )
        spec = StudyFile.read(path)
        done = examine(spec, spec.settings("rpdp"), 1)
        assert done.exit_code == 0, done.findings
        assert any("SMOKER: " in finding.message for finding in done.findings if finding.topic == "table")
        trained = train(spec, spec.settings("rpdp"), 1, hospitals / "run")
        assert trained.result.public.schema_fingerprint == spec.schema_fingerprint
        again = train(spec, spec.settings("rpdp"), 1, hospitals / "run", force=True)
        assert torch.equal(again.result.values, trained.result.values)
        (hospitals / "moved").mkdir()
        moved = (hospitals / "run").rename(hospitals / "moved/run")
        (hospitals / "declared/columns.toml").unlink()
        rebuild_report(moved, "share", hospitals / "report.html")
        shared = (hospitals / "report.html").read_text(encoding="utf-8")
        assert "all.csv: classification of ILL" in shared
        assert "Weights are those of the released model" in shared
        compared = compare(spec, [spec.settings("rpdp"), spec.settings("minimum")], [1], hospitals / "compared")
        assert compared.rows[0].overdrawn == 0

    def test_results_are_reused_only_for_the_same_table(self, hospitals: Path) -> None:
        settings = [read(hospitals).settings("rpdp")]
        assert compare(read(hospitals), settings, [1], hospitals / "c").reused == 0
        assert compare(read(hospitals), settings, [1], hospitals / "c").reused == 1
        with (hospitals / "all.csv").open("a", encoding="utf-8") as file:
            file.write("north-new,50,F,Y,Y,3,no,north\n")
        assert compare(read(hospitals), settings, [1], hospitals / "c").reused == 0
        wider = table_study(hospitals)
        wider.write_text(wider.read_text(encoding="utf-8").replace("[20, 100]", "[20, 110]"), encoding="utf-8")
        assert compare(StudyFile.read(wider), settings, [1], hospitals / "c").reused == 0

    @pytest.mark.parametrize(
        ("target", "outputs", "model"),
        [(CLASSES, 1, ""), (NUMBER, 1, ""), (LABELS, 2, ""), (SURVIVAL, 3, ""), (CLASSES, 1, MLP)],
        ids=["classes", "number", "labels", "survival", "mlp"],
    )
    def test_every_kind_of_target_learns(self, hospitals: Path, target: str, outputs: int, model: str) -> None:
        spec = read(hospitals, target=target, model=model)
        source, module = load_source(spec, 1), make_model(spec, 1)
        records = source.silos["north"].train
        assert module(records.inputs[0]).shape == (len(records), outputs)
        optimiser = torch.optim.Adam(module.parameters(), 0.05)
        losses = []
        for _ in range(40):
            loss = source.loss(module(records.inputs[0]), records.targets)
            assert loss.shape == (len(records),)
            losses.append(float(loss.mean().detach()))
            optimiser.zero_grad()
            loss.mean().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        assert losses[-1] < losses[0]
        assert build(spec, spec.settings("rpdp"), 1).public.schema_fingerprint == spec.schema_fingerprint


class TestSchemaInThePlan:
    def admit(self, spec: StudyFile, plan: PublicPlan | None = None) -> None:
        built = build(spec, spec.settings("rpdp"), 1)
        built.silos[0].admit("run", plan or built.public, built.model, built.source.loss, Seeded(1))

    def test_silos_admit_only_plans_for_their_schema(self, hospitals: Path) -> None:
        spec = read(hospitals)
        self.admit(spec)
        public = build(spec, spec.settings("rpdp"), 1).public
        for other in ("0" * 64, None):
            with pytest.raises(PrivacyRefusal, match=r"the plan is for tables of schema .* use the same schema"):
                self.admit(spec, replace(public, schema_fingerprint=other))

    def test_it_is_in_the_fingerprint_and_survives_writing(self, hospitals: Path) -> None:
        spec = read(hospitals)
        public = build(spec, spec.settings("rpdp"), 1).public
        assert PublicPlan.from_json(public.to_json()) == public
        assert replace(public, schema_fingerprint=None).fingerprint != public.fingerprint
        assert "schema" not in replace(public, schema_fingerprint=None).to_json()


class TestErrors:
    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            ({"table": ""}, 'table needs either file = "patients.csv"'),
            ({"table": 'file = "a.csv"\nfiles = { a = "a.csv" }'}, "table needs either file"),
            ({"table": 'file = "all.csv"\nsilos = ["a"]'}, "table.silo is missing"),
            ({"table": 'file = "all.csv"\nsilo = "X"\nrest = "r"'}, "table.rest='r' needs table.silos"),
            ({"table": 'file = "all.csv"\nsilo = "X"\nsilos = ["r"]\nrest = "r"'}, "is one of table.silos"),
            ({"table": 'file = "all.csv"\nsilso = "X"'}, "table.silso is not a setting; did you mean table.silo?"),
            (
                {"table": 'file = "all.csv"\nschema = "x.toml"'},
                "table.record belongs to the schema",
            ),
            ({"model": '[model]\nname = "mpl"'}, "model.name='mpl'"),
            ({"model": "[model]\nhidden = [3]"}, 'needs name = "mlp"'),
            ({"model": '[task]\nname = "digits"'}, "task.name='digits' and .table. exclude each other"),
            ({"rest": REST.replace("seeds = 2", "")}, None),
        ],
    )
    def test_study_files(self, hospitals: Path, parts: dict[str, str], message: str | None) -> None:
        if message is None:
            read(hospitals, **parts)
            return
        with pytest.raises(InputError, match=message):
            read(hospitals, **parts)

    def test_real_runs_and_seeded_splits_need_what_they_rest_on(self, hospitals: Path) -> None:
        text = table_study(hospitals).read_text(encoding="utf-8")
        path = hospitals / "study.toml"
        path.write_text(text.replace('record = "PATIENT"', "").replace("seeds = 2", ""), encoding="utf-8")
        with pytest.raises(InputError, match=r"table.record is missing: a real run books by the ids"):
            StudyFile.read(path)
        path.write_text(text.replace("[table.split]\ntest_share = 0.25", "") + 'split = "by_seed"', encoding="utf-8")
        with pytest.raises(InputError, match=r"needs table.split with test_share"):
            StudyFile.read(path)

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ('file = "nowhere.csv"', "there is no such table"),
            (
                'file = "all.csv"\nsilo = "HOSPTAL"',
                "all.csv: the table has no column 'HOSPTAL'; did you mean HOSPITAL",
            ),
            (
                'file = "all.csv"\nsilo = "HOSPITAL"\nsilos = ["nort"]',
                "no row has HOSPITAL = 'nort'; did you mean n",
            ),
        ],
    )
    def test_tables(self, hospitals: Path, table: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            load_source(read(hospitals, table=table), 1)


class TestLosses:
    def test_hazards(self) -> None:
        logits = torch.tensor([[0.3, -1.0, 2.0]]).repeat(3, 1)
        hazard = torch.sigmoid(logits[0])
        expected = [
            -((1 - hazard[0]).log() + hazard[1].log()),  # died in the second interval
            -((1 - hazard[0]).log() + (1 - hazard[1]).log()),  # seen until the end of the second
            -(1 - hazard).log().sum(),  # survived all
        ]
        found = hazard_loss(logits, torch.tensor([[1, 1], [2, 0], [3, 0]]))
        assert torch.allclose(found, torch.stack(expected))

    def test_labels_and_numbers(self) -> None:
        outputs, labels = torch.tensor([[0.0, 0.0], [100.0, -100.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        assert torch.allclose(multi_label_loss(outputs, labels), torch.tensor([0.6931, 0.0]), atol=1e-4)
        assert squared_error(torch.tensor([[2.0]]), torch.tensor([-1.0])).tolist() == [4.5]


class TestStart:
    START = '[model]\nname = "linear"\nstart = { AGE = 1.5, "SEX = F" = -0.5 }'

    def test_a_linear_model_starts_where_the_file_says(self, hospitals: Path) -> None:
        spec = read(hospitals, model=self.START)
        assert spec.table is not None
        model = make_model(spec, 1)
        assert isinstance(model, torch.nn.Linear)
        weights = dict(zip(spec.table.schema.feature_names, model.weight[0].tolist(), strict=True))
        assert weights.pop("AGE") == 1.5
        assert weights.pop("SEX = F") == -0.5
        assert not any(weights.values())
        assert not model.bias.any()

    def test_all_methods_share_it_and_it_costs_nothing(self, hospitals: Path) -> None:
        with_start, without = (read(hospitals, model=model) for model in (self.START, ""))
        one, other = (build(spec, spec.settings("rpdp"), 1) for spec in (with_start, without))
        assert one.public == other.public
        assert all(np.array_equal(one.plans[name].q, plan.q) for name, plan in other.plans.items())
        minimum = build(with_start, with_start.settings("minimum"), 1).model
        assert torch.equal(next(minimum.parameters()), next(one.model.parameters()))

    def test_another_start_is_another_result(self, hospitals: Path) -> None:
        keys = set()
        for model in (self.START, "", self.START.replace("1.5", "1.6")):
            spec = read(hospitals, model=model)
            keys.add(MethodRun(spec.settings("rpdp"), 1).key(spec))
        assert len(keys) == 3

    @pytest.mark.parametrize(
        ("model", "parts", "said"),
        [
            ('name = "linear"\nstart = { AGES = 1 }', {}, "no feature is named 'AGES'; did you mean AGE?"),
            ('name = "linear"\nstart = { AGE = "old" }', {}, "model.start.AGE='old' must be a number"),
            ('name = "linear"\nstart = { AGE = nan }', {}, "model.start.AGE=nan must be finite"),
            ('name = "mlp"\nstart = { AGE = 1 }', {}, "model.start is for a linear model"),
            ('name = "linear"\nstart = { AGE = 1 }', {"target": SURVIVAL}, "for models with one output"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, hospitals: Path, model: str, parts: dict[str, str], said: str) -> None:
        with pytest.raises(InputError, match=re.escape(said)):
            read(hospitals, model="[model]\n" + model, **parts)
