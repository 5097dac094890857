"""`[table] scale = "private"`: the scale of features is asked of the silos, charged, and public before training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from rpdp.budgets import BudgetTable
from rpdp.cli.output import INTERRUPTED
from rpdp.errors import InputError
from rpdp.federation import release_sums
from rpdp.ledger import Ledger
from rpdp.planning import PublicPlan
from rpdp.statistics import answers
from rpdp.studies import read_result
from rpdp.studies.private_scale import PrivateScale, read_scale
from rpdp.studies.private_tuning import read_tuning
from rpdp.studies.study_file import StudyFile
from tests.studies.patients import ONE_FILE, REST, table_study, write_hospitals
from tests.studies.steward import REAL, SILOS, own_limits
from tests.studies.test_private_tuning import reservations

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.federation.released_sums import ReleasedSums
    from tests.studies.steward import Steward

SCALED = f'{ONE_FILE}\nscale = "private"\nscale_share = 0.3\n'
GENEROUS = REST.replace(
    "records_per_silo = 60", "records_per_silo = 150\noverrides = { levels = [10.0, 20.0, 50.0] }"
).replace("max_epsilon = 10.0", 'noise_multiplier = 1.0\naccountant = "rdp"')
DECLARED = (-50.0, 200.0)


@pytest.fixture
def hospitals(steward: Steward) -> Steward:
    write_hospitals(steward.home, *SILOS, rows=200)
    return steward


def scaled_study(directory: Path, *, table: str = SCALED, rest: str = GENEROUS, declared: str = "[-50, 200]") -> Path:
    """A study of hospitals whose patients are 20 to 100 years old."""
    file = table_study(directory, table=table, rest=rest)
    file.write_text(file.read_text().replace("range = [20, 100]", f"range = {declared}"))
    return file


def scale_in(directory: str | Path) -> PrivateScale:
    found = read_scale(directory)
    assert found is not None
    return found


def test_training_is_on_what_private_statistics_found(hospitals: Steward) -> None:
    file = scaled_study(hospitals.home)
    assert hospitals.types("train", file, "--seed", 1, "--out", "sim") == 0, hospitals.err
    scale = scale_in("sim")
    low, high = scale.ranges["AGE"]
    assert DECLARED[0] <= low < high <= DECLARED[1]
    assert (low, high) != DECLARED
    mean, deviation = (one["value"] for one in scale.facts["columns"]["AGE"]["estimates"])
    assert low == pytest.approx(max(mean - 2 * deviation, DECLARED[0]), rel=1e-3)
    assert high == pytest.approx(min(mean + 2 * deviation, DECLARED[1]), rel=1e-3)
    spec = StudyFile.read(file)
    plan = PublicPlan.read("sim/public-plan.json")
    assert plan.schema_fingerprint == scale.applied(spec).schema_fingerprint != spec.schema_fingerprint
    assert scale.note in plan.notes
    assert "at most 30 % of every lifetime budget" in hospitals.out
    assert f"private scale: AGE −1 at {low:g}, 1 at {high:g}" in hospitals.out
    for name in ("report.html", "report-share.html"):
        text = Path(f"sim/{name}").read_text()
        assert f"1 at {high:g}" in text
        assert "at most 30 % of every lifetime budget" in text
    assert hospitals.types("report", "sim", "--out", "again.html") == 0, hospitals.err
    assert f"1 at {high:g}" in Path("again.html").read_text()
    assert hospitals.types("train", file, "--seed", 1, "--out", "sim", "--resume", "--json") == 0
    assert json.loads(hospitals.out)["private_scale"] == scale.facts


def test_scale_and_training_draw_on_one_account(hospitals: Steward, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training takes all that is left, so with an account of its own a record would pay more than it allows."""
    booked, costs = reservations(monkeypatch), costs_of_requests(monkeypatch)
    file = scaled_study(hospitals.home)
    assert hospitals.types("train", file, "--seed", 1, "--out", "sim") == 0, hospitals.err
    assert [len(set(runs)) for runs in booked.values()] == [2, 2]
    for silo in SILOS:
        plan = read_result("sim").silos[silo].plan
        spent = plan.cost + costs[silo]
        assert (spent <= plan.epsilon * (1 + 1e-12)).all()
        assert (costs[silo] > 0.25 * plan.epsilon).any()
        assert (spent > 0.95 * plan.epsilon).any()


def costs_of_requests(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray[Any, Any]]:
    """What the statistics of a simulation cost each record, by silo."""
    found: dict[str, np.ndarray[Any, Any]] = {}

    def noticed(public: Any, silos: Any, **named: Any) -> ReleasedSums:
        released = release_sums(public, silos, **named)
        found.update({silo.name: silo.plan.cost for silo in silos})
        return released

    monkeypatch.setattr(answers, "release_sums", noticed)
    return found


def test_the_scale_is_made_of_what_was_released_alone(hospitals: Steward, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[ReleasedSums] = []

    def released(*given: Any, **named: Any) -> ReleasedSums:
        kept.append(release_sums(*given, **named))
        return kept[0]

    file = scaled_study(hospitals.home)
    monkeypatch.setattr(answers, "release_sums", released)
    scales = []
    for out, rows in (("one", 200), ("other", 190)):
        write_hospitals(hospitals.home, *SILOS, rows=rows)
        assert hospitals.types("train", file, "--seed", 1, "--out", out) == 0, hospitals.err
        scales.append(scale_in(out).ranges)
    assert scales[0] == scales[1]
    assert (kept[0].sums != kept[1].sums).any(), "the data differ"
    del kept[0]
    assert hospitals.types("train", file, "--seed", 1, "--out", "third") == 0
    assert scale_in("third").ranges != scales[0]


def test_quantiles_find_the_scale_in_a_very_wide_range(hospitals: Steward) -> None:
    table = SCALED + 'scale_by = "quantiles"\n'
    file = scaled_study(hospitals.home, table=table, declared="[-300, 1000], missing = 900")
    assert hospitals.types("train", file, "--seed", 1, "--out", "sim") == 0, hospitals.err
    low, high = scale_in("sim").ranges["AGE"]
    assert -100 < low < 40
    assert 80 < high < 300
    fill = scale_in("sim").applied(StudyFile.read(file)).table.schema.columns["AGE"].missing  # type: ignore[union-attr]
    assert fill == high, "the public fill stays in the range"


def test_a_scale_that_is_not_clear_stays_as_declared(hospitals: Steward) -> None:
    file = scaled_study(hospitals.home, declared="[20, 3000]")
    assert hospitals.types("train", file, "--seed", 1, "--out", "sim") == 0, hospitals.err
    assert scale_in("sim").ranges == {}
    assert "as declared: the private statistics do not say enough" in hospitals.out


LIMITS = {
    name.removeprefix("policy."): value
    for name, value in REAL
    if name.startswith("policy.") and name not in ("policy.max_rounds", "policy.max_local_steps")
} | {"max_rounds": "10", "max_local_steps": "5"}


def real_study(steward: Steward, *, limits: dict[str, str] | None = None) -> Path:
    """Ledgers for all training records of both hospitals, and the file of a real run."""
    rest = GENEROUS.replace("seeds = 2", 'id = "spring"\noutput = "study"').replace("delta = 1e-3", "delta = 1e-4")
    declared = 'files = { a = "a-budgets.csv", b = "b-budgets.csv" }\ndeclared = "ThreeLevels"'
    rest = rest.replace('distribution = "ThreeLevels"', declared).replace("[schedule]", "[schedule]", 1)
    rest = rest.replace("[privacy]", "[privacy]\nshare = 0.5")
    file = scaled_study(steward.home, rest=rest + '[ledgers]\na = "a/ledger.db"\nb = "b/ledger.db"\n')
    spec = StudyFile.read(file)
    assert spec.table is not None
    stated = "".join(f"{name} = {value}\n" for name, value in {**LIMITS, **(limits or {})}.items())
    for silo, table in spec.table.load(spec.directory, 0).items():
        ids = table.ids[~table.is_test].tolist()
        BudgetTable(ids, np.full(len(ids), 20.0)).write(steward.home / f"{silo}-budgets.csv")
        (steward.home / silo).mkdir(exist_ok=True)
        own_limits(steward.home, silo).write_text(stated)
        more = ["--budgets", f"{silo}-budgets.csv", "--lifetime-delta", "1e-3"]
        assert steward.types("ledger", "create", f"{silo}/ledger.db", *more) == 0, steward.err
    return file


class TestRealRuns:
    def test_the_scale_is_a_run_of_its_own_in_the_ledger(self, hospitals: Steward) -> None:
        file = real_study(hospitals)
        assert hospitals.types("train", file) == 0, hospitals.err
        assert [hospitals.runs(silo) for silo in SILOS] == [[("spring-scale", 1), ("spring", 2)]] * 2
        for silo in SILOS:
            ids = pa.chunked_array([BudgetTable.read(hospitals.home / f"{silo}-budgets.csv").ids.to_pylist()])
            with Ledger.read(hospitals.home / silo / "ledger.db") as ledger:
                plans = {run: ledger.resume(run, ids) for run in ("spring-scale", "spring")}
            assert [plan.public.purpose for plan in plans.values()] == ["statistics", "training"]
            assert (plans["spring-scale"].cost <= 0.3 * 20.0 * (1 + 1e-12)).all()
            assert (plans["spring-scale"].cost > 0.0).all()
            assert (plans["spring-scale"].cost + plans["spring"].cost <= 20.0).all()
        before = scale_in("study/spring")
        assert hospitals.types("train", file, "--resume") == 0
        assert scale_in("study/spring") == before

    def test_an_interrupted_run_goes_on_with_the_same_scale(self, hospitals: Steward) -> None:
        file = real_study(hospitals)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "store", interrupted_in("spring", Ledger.store))
            assert hospitals.types("train", file) == INTERRUPTED
        assert [hospitals.runs(silo)[0] for silo in SILOS] == [("spring-scale", 1)] * 2
        asked = answered(hospitals)
        assert hospitals.types("train", file, "--resume") == 0, hospitals.err
        assert [hospitals.runs(silo) for silo in SILOS] == [[("spring-scale", 1), ("spring", 2)]] * 2
        assert answered(hospitals) == asked

    def test_a_scale_that_was_charged_and_not_released_is_not_asked_again(self, hospitals: Steward) -> None:
        file = real_study(hospitals)
        for _ in SILOS:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Ledger, "store", interrupted_in("spring-scale", Ledger.store))
                assert hospitals.types("train", file, "--resume") == INTERRUPTED
        assert hospitals.types("train", file, "--resume") == 2
        assert "no silo released its sums" in hospitals.err
        assert [hospitals.runs(silo) for silo in SILOS] == [[("spring-scale", 1)]] * 2

    @pytest.mark.parametrize(
        ("limits", "expected"), [({"max_runs": "1"}, "max_runs=1"), ({"max_clip_norm": "0.5"}, "clip_norm")]
    )
    def test_nothing_is_charged_for_a_training_that_would_be_refused(
        self, hospitals: Steward, limits: dict[str, str], expected: str
    ) -> None:
        file = real_study(hospitals, limits=limits)
        assert hospitals.types("train", file) == 3, hospitals.out
        assert expected in hospitals.err
        assert [hospitals.runs(silo) for silo in SILOS] == [[], []]

    def test_nothing_is_charged_for_a_training_that_strict_stops(self, hospitals: Steward) -> None:
        file = real_study(hospitals)
        first = BudgetTable.read(hospitals.home / "a-budgets.csv").ids[0].as_py()
        assert hospitals.types("ledger", "withdraw", "a/ledger.db", first) == 0, hospitals.err
        assert hospitals.types("train", file, "--strict") == 3, hospitals.out
        assert "--strict: not every record can take part" in hospitals.err
        assert [hospitals.runs(silo) for silo in SILOS] == [[], []]


def interrupted_in(run: str, store: Callable[..., None]) -> Callable[..., None]:
    def interrupted(self: Ledger, name: str, *more: Any) -> None:
        if name == run:
            raise KeyboardInterrupt
        store(self, name, *more)

    return interrupted


def answered(steward: Steward) -> list[bytes | None]:
    """What silos released for the scale."""
    found = []
    for silo in SILOS:
        with Ledger.read(steward.home / silo / "ledger.db") as ledger:
            found.append(ledger.stored("spring-scale", 1))
    return found


def test_trials_of_tuning_share_one_scale(hospitals: Steward, monkeypatch: pytest.MonkeyPatch) -> None:
    booked = reservations(monkeypatch)
    more = (
        '[evaluation]\nmetrics = ["accuracy"]\nshare = 0.5\nrecords = 50\nwidest = 0.9\n'
        '[tuning]\ncandidates = [{ name = "a" }, { name = "b", learning_rate = 0.1 }]\n'
    )
    file = table_study(
        hospitals.home, table=SCALED, rest=GENEROUS.replace("[privacy]", "[privacy]\nshare = 0.6") + more
    )
    assert hospitals.types("tune", file, "--plan") == 0, hospitals.err
    assert "private scale: at most 30 % of every lifetime budget; to be expected: mean of AGE ± " in hospitals.out
    assert hospitals.types("tune", file, "--seed", 1, "--out", "sim") == 0, hospitals.err
    assert [len(set(runs)) for runs in booked.values()] == [1 + 2 + 1] * 2
    scales = [scale_in(f"sim/trials/{name}") for name in ("a", "b")]
    assert scales[0] == scales[1]
    assert len({PublicPlan.read(f"sim/trials/{name}/public-plan.json").schema_fingerprint for name in ("a", "b")}) == 1
    assert read_tuning("sim")["chosen"] in ("a", "b")


class TestRefusals:
    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            ('record = "PATIENT"', 'record = "PATIENT"\nfrom_data = true', "this schema has none: from_data says"),
            ('kind = "number", range = [-50, 200]', 'kind = "ignore"', "columns of numbers with a public range"),
            ("scale_share = 0.3", "scale_share = 0.0001", "tells next to nothing"),
            ("[privacy]", "[privacy]\nshare = 0.8", "add up to more than the whole budget"),
            ('scale = "private"', 'scale = "own"', "table.scale"),
        ],
    )
    def test_in_words(self, hospitals: Steward, old: str, new: str, expected: str) -> None:
        file = scaled_study(hospitals.home)
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        assert hospitals.types("train", file, "--seed", 1, "--out", "sim") == 2
        assert expected in hospitals.err
        assert not Path("sim").exists()

    def test_elsewhere_than_in_training(self, hospitals: Steward) -> None:
        file = scaled_study(hospitals.home)
        assert hospitals.types("compare", file, "--seeds", 1, "--out", "compared") == 2
        assert 'table.scale="private" is asked for by rpdp train and rpdp tune alone' in hospitals.err
        assert hospitals.types("doctor", file) == 0, hospitals.out
        assert "private scale: at most 30 % of every lifetime budget" in hospitals.out

    def test_damaged_files(self, tmp_path: Path) -> None:
        for text in ("", "{}", '{"format": "rpdp-scale/9", "columns": {}}'):
            (tmp_path / "scale.json").write_text(text)
            with pytest.raises(InputError, match="damaged"):
                read_scale(tmp_path)
