"""Reports: what an edition holds, what it must never hold, and runs of every odd shape."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable, Schedule
from rpdp.errors import InputError
from rpdp.report import ReportFacts, write_report
from rpdp.report.report_runs import ReportRuns

from .runs import public_plan, run, several_metrics, silo_plan, sitting_out, two_silos, unpriced, view

if TYPE_CHECKING:
    from rpdp.federation import RunResult, SiloView

HOSTILE = "<script>alert('x')</script>&\"<b>"


class Texts(HTMLParser):
    """What a reader sees, without style, and the ids of the figures."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.figures: list[str] = []
        self.scripts = 0
        self._hidden = False
        self.feed(html)
        self.text = " ".join(self.text.split())  # as a browser shows it

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in ("script", "style")
        self.scripts += tag == "script"
        if tag == "figure":
            self.figures.append(dict(attrs)["id"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False
        self.text += " "

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += data


def written(tmp_path: Path, results: object, **options: object) -> str:
    path = write_report(results, tmp_path / "report.html", **options)  # type: ignore[arg-type]
    return path.read_text(encoding="utf-8")


def with_other_secrets(result: RunResult) -> RunResult:
    """The same run as everybody outside the silos sees it; budgets, counts, draws and answers differ."""
    views = {}
    for number, (name, old) in enumerate(result.silos.items()):
        plan = silo_plan(result.public, f"other-{name}", len(old.plan) + 5 + number, levels=(0.7, 3.0))
        views[name] = view(plan, joined=(1, 2, 3), seed=5)
    return replace(result, silos=views)


def test_the_edition_to_share_does_not_depend_on_anything_sensitive(tmp_path: Path) -> None:
    ours = {"rpdp": [two_silos(1), two_silos(2)], "minimum": [two_silos(1, "minimum")]}
    others = {method: [with_other_secrets(one) for one in runs] for method, runs in ours.items()}
    facts, elsewhere = ReportFacts(task="t", budgets="secret A"), ReportFacts(task="t", budgets="secret B")
    first = write_report(ours, tmp_path / "a.html", edition="share", facts=facts).read_bytes()
    second = write_report(others, tmp_path / "b.html", edition="share", facts=elsewhere).read_bytes()
    assert first == second
    # the same pair differs where it may, so the comparison above can fail
    assert written(tmp_path, ours) != written(tmp_path, others)


@pytest.mark.parametrize("field", ["plan", "draws", "expected_draws", "correct"])
def test_the_silo_edition_shows_each_sensitive_part_and_the_other_none(tmp_path: Path, field: str) -> None:
    result = two_silos()
    other = with_other_secrets(result).silos if field == "plan" else None
    views: dict[str, SiloView] = {}
    for name, one in result.silos.items():
        if other is not None:
            plan = silo_plan(result.public, name, len(one.plan), levels=(0.7, 3.0))
            views[name] = replace(one, plan=plan)
        elif field == "correct":
            views[name] = replace(one, correct=np.zeros(len(one.plan), dtype=bool))
        else:
            views[name] = replace(one, **{field: getattr(one, field) * 2})
    changed = replace(result, silos=views)
    assert written(tmp_path, result) != written(tmp_path, changed)
    assert written(tmp_path, result, edition="share") == written(tmp_path, changed, edition="share")


@pytest.mark.parametrize("edition", ["silo", "share"])
def test_features_of_a_table_are_named_with_the_weights_of_a_linear_model(tmp_path: Path, edition: str) -> None:
    run = two_silos()
    names = [f"COLUMN{number}" for number in range(len(run.values) - 1)]
    facts = ReportFacts(features=[(name, f"1 if {name} is yes") for name in names])
    page = Texts(written(tmp_path, run, facts=facts, edition=edition)).text
    for name, weight in zip(names, run.values.tolist(), strict=False):
        assert f"{name} 1 if {name} is yes {weight:+.3f}" in " ".join(page.split())
    fewer = ReportFacts(features=facts.features[1:])
    page = Texts(written(tmp_path, run, facts=fewer, edition=edition)).text
    assert "From the public schema alone." in page
    assert "Weights are those" not in page
    assert "From the public schema" not in Texts(written(tmp_path, run, edition=edition)).text


def test_the_promise_box_says_in_how_many_silos_a_person_may_be(tmp_path: Path) -> None:
    one = two_silos()
    declared = replace(one.public, silos_per_person=3, account="renyi", lifetime_delta=1e-3)
    for edition in ("share", "silo"):
        alone = Texts(written(tmp_path, one, edition=edition)).text
        assert "declared that a person has an account in one silo of this federation only" in alone
        several = Texts(written(tmp_path, replace(one, public=declared), edition=edition)).text
        assert "A person may have an account in 3 silos of this federation (declared)" in several


def test_the_silo_edition_shows_everything(tmp_path: Path) -> None:
    facts = ReportFacts("Two hospitals", "three levels", ["features scaled in the silo"], {"rpdp": "its own budget"})
    page = Texts(written(tmp_path, two_silos(), facts=facts))
    assert page.figures == [
        "rounds-accuracy",
        "participation",
        "time",
        "budgets",
        "curve",
        "inclusion",
        "shares",
        "groups-accuracy",
    ]
    for said in (
        "Two hospitals",
        "three levels",
        "features scaled in the silo",
        "a note of the plan",
        "its own budget",
        "One record; with subjects in the budget table, a person within a silo.",
        "adding or removing one record",
        "who took part",
        "δ = 0.0001",
        "σ = 3",
        "L = 1.5",
        "B = 8",
        "4 rounds × 5 local steps, participation 0.5",
        "SIMULATION: seeded, nobody is protected",
        "Do not pass it on",
        "42 records, 0 over budget",
        "1 of 4 rounds without any update",
        "run-rpdp-7",
    ):
        assert said in page.text, said


def test_the_edition_to_share_keeps_the_public_figures(tmp_path: Path) -> None:
    results = {"rpdp": [two_silos(1)], "minimum": [two_silos(1, "minimum", shift=-0.2)]}
    page = Texts(written(tmp_path, results, edition="share"))
    assert page.figures == ["rounds-accuracy", "methods-accuracy", "participation", "curve"]
    assert "Edition to share" in page.text
    assert "over budget" not in page.text
    assert "expected batch" not in page.text


def test_accuracy_is_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    runs = [two_silos(seed, shift=shift) for seed, shift in ((1, 0.0), (2, 0.1))]  # final: 0.7 and 0.8
    text = Texts(written(tmp_path, {"rpdp": runs})).text
    assert "0.750 ± 0.071" in text
    assert "0.760 ± 0.071" in text  # mean over silos
    assert "mean ± deviation of 2 seeds" in text
    assert "±" not in Texts(written(tmp_path, runs[0], edition="share")).text.split("Methods")[0]


def test_costs_given_the_joined_rounds_are_told_where_a_coin_decides(tmp_path: Path) -> None:
    result = two_silos()
    curve = result.public.curve
    text = Texts(written(tmp_path, result, edition="share")).text
    assert "given these rounds" in text
    assert f" {curve.given(3).epsilon(1.0):.4g} " in text  # round 2 of 4 is empty
    assert f"at q = 1: ε = {curve.largest_cost:.4g}" in text
    for schedule in (Schedule(4, 5, participation=1.0), Schedule(4, 5, participations=2)):
        public = public_plan(schedule)
        fixed = run({"north": view(silo_plan(public, "north", 6))})
        assert "given these rounds" not in Texts(written(tmp_path, fixed)).text


def test_the_accountants_bounds_are_stated(tmp_path: Path) -> None:
    result = two_silos()
    bounds = result.public.curve.bounds([0.1, 1.0])
    text = Texts(written(tmp_path, result, edition="share")).text
    for lower, upper in zip(bounds.lower, bounds.upper, strict=True):
        assert re.search(rf"{lower:.4g}\s+{upper:.4g}", text)


def test_production_is_no_simulation(tmp_path: Path) -> None:
    text = Texts(written(tmp_path, two_silos(seed=None))).text
    assert "SIMULATION" not in text
    assert "Cryptographically secure" in text


def test_a_method_that_promises_nothing_says_so(tmp_path: Path) -> None:
    public = public_plan()
    free = run({"north": view(unpriced(silo_plan(public, "north", 9)), overdrawn=9)}, method="privacy_free")
    for edition in ("silo", "share"):
        page = Texts(written(tmp_path, free, edition=edition))
        assert "promises nothing" in page.text
        assert "differentially private" not in page.text
        assert "budgets" not in page.figures
        assert "curve" not in page.figures
    silo = Texts(written(tmp_path, free))
    assert silo.figures == ["rounds-accuracy", "participation", "time", "inclusion"]
    assert "9 of 9" in silo.text


def test_records_over_budget_are_counted_against_what_they_really_allow(tmp_path: Path) -> None:
    public = public_plan()
    own = silo_plan(public, "north", 30)
    level = public.assign(BudgetTable(own.ids.to_pylist(), np.full(30, 2.0)))  # as if all allowed 2; 10 allow 0.5
    uniform = run({"north": view(level, overdrawn=10)}, method="uniform")
    for results in ({"rpdp": [run({"north": view(own)})], "uniform": [uniform]}, uniform):
        assert re.findall(r'class="alarm">([^<]*)<', written(tmp_path, results)) == ["10 of 30"]


def test_names_are_text(tmp_path: Path) -> None:
    public = public_plan(weights={HOSTILE: 1.0})
    result = run(
        {HOSTILE: view(silo_plan(public, "a", 6))}, method=HOSTILE, rejected={HOSTILE: HOSTILE}, accuracies=[0.5, 0.6]
    )
    facts = ReportFacts(HOSTILE, HOSTILE, [HOSTILE], {HOSTILE: HOSTILE}, features=[(HOSTILE, HOSTILE)])
    for edition in ("silo", "share"):
        html = written(tmp_path, {HOSTILE: [result]}, title=HOSTILE, facts=facts, edition=edition)
        page = Texts(html)
        assert "<script>alert" not in html
        assert page.scripts == 0
        assert page.text.count(HOSTILE) >= 5


def test_it_is_one_file_without_anything_to_load(tmp_path: Path) -> None:
    path = write_report(two_silos(), tmp_path / "new" / "report.html")
    text = path.read_text(encoding="utf-8")
    for loading in ("<script", 'rel="stylesheet"', "@import", "@font-face", "cdn", "url(", "http:", "https:"):
        assert loading not in text, loading
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:\">" in text


@pytest.mark.parametrize("edition", ["silo", "share"])
def test_the_largest_report_is_small(tmp_path: Path, edition: str) -> None:
    """Many records that all differ, many rounds, many silos: every figure is as full as it gets."""
    rng = np.random.default_rng(0)
    public = public_plan(Schedule(1_000, 5, participations=500))
    names = [f"silo-{number:03}" for number in range(40)]
    views = {}
    for name in names:
        plan = silo_plan(public, name, 1_000, levels=rng.uniform(0.1, 9.0, 1_000).tolist())
        views[name] = view(plan, joined=range(1, 501))
    result = run(views, accuracies=rng.uniform(0.5, 0.9, 1_000).tolist())
    silos = [tuple(name for name in names if rng.random() < 0.5) for _ in result.rounds]
    rounds = tuple(replace(log, joined=joined) for log, joined in zip(result.rounds, silos, strict=True))
    path = write_report(replace(result, rounds=rounds), tmp_path / "r.html", edition=edition)  # type: ignore[arg-type]
    assert path.stat().st_size <= 1_200_000
    assert path.stat().st_size > 50_000  # the control: this is a large one


class TestSeveralMetrics:
    def test_all_are_shown_and_the_first_one_is_open(self, tmp_path: Path) -> None:
        html = written(tmp_path, several_metrics(), edition="share")
        page = Texts(html)
        assert page.figures == ["rounds-auc", "participation", "rounds-accuracy", "rounds-log_loss", "curve"]
        for said in ("test AUC", "test log loss", "0.789", "0.896", "0.321", "always the largest class", "0.900"):
            assert said in page.text, said
        folded = html.partition("<summary>Other metrics, round by round</summary>")[2].partition("</details>")[0]
        assert "rounds-accuracy" in folded
        assert "rounds-auc" not in folded

    def test_a_model_that_never_leaves_a_class_is_called_that(self, tmp_path: Path) -> None:
        text = Texts(written(tmp_path, several_metrics(), edition="share")).text
        assert "assigns class 0 to every test record: accuracy says nothing about it" in text
        assert "one class only, 1 of 1 seeds" in text
        assert "assigns class" not in Texts(written(tmp_path, two_silos(), edition="share")).text

    def test_groups_are_for_the_silo_alone(self, tmp_path: Path) -> None:
        """The control: the silo's edition does change with them."""
        result = several_metrics()
        other = replace(result, groups=tuple(replace(one, values={"auc": 0.1}) for one in result.groups))
        assert "0.654" in Texts(written(tmp_path, result)).text
        assert written(tmp_path, result) != written(tmp_path, other)
        assert "0.654" not in written(tmp_path, result, edition="share")
        assert ReportRuns.of(result, "share", None).run.groups == ()
        assert ReportRuns.of(result, "silo", None).run.groups == result.groups
        assert written(tmp_path, result, edition="share") == written(tmp_path, other, edition="share")

    def test_further_metrics_add_little(self, tmp_path: Path) -> None:
        few, many = (
            write_report(result, tmp_path / "r.html").read_text() for result in (two_silos(), several_metrics())
        )
        assert len(many) - len(few) < 20_000


ODD_RUNS: dict[str, dict[str, Any]] = {
    "not measured": {"accuracies": (None, None)},
    "measured at the end only": {"accuracies": (None, 0.5)},
    "a single round": {"accuracies": (0.5,)},
    "a single round that nobody joined": {"accuracies": (0.5,), "rejected": {"north": "wrong shape"}},
    "no round at all": {"accuracies": ()},
}


@pytest.mark.parametrize("edition", ["silo", "share"])
@pytest.mark.parametrize("name", ODD_RUNS)
def test_odd_runs(tmp_path: Path, edition: str, name: str) -> None:
    public = public_plan()
    options = ODD_RUNS[name]
    result = run({"north": view(silo_plan(public, "north", 1), joined=(1,))}, **options)
    page = Texts(written(tmp_path, result, edition=edition))
    assert ("rounds-accuracy" in page.figures) == any(value is not None for value in options["accuracies"])
    assert ("Nothing was measured" in page.text) != ("rounds-accuracy" in page.figures)
    assert ("time" in page.figures) == (bool(options["accuracies"]) and edition == "silo")
    assert ("wrong shape" in page.text) == ("rejected" in options)


def test_everybody_sits_out(tmp_path: Path) -> None:
    public = public_plan()
    plan = sitting_out(public.assign(BudgetTable(["a", "b"], [1.0, 2.0])), 0, 1)
    page = Texts(written(tmp_path, run({"north": view(plan, scored=False)})))
    assert "2 records, 0 over budget, 2 sit out" in page.text
    assert "groups-accuracy" not in page.figures


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"edition='shared' must be one of silo, share; did you mean 'share'"):
        write_report(two_silos(), tmp_path / "x.html", edition="shared")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="none of minimum"):
        write_report({"rpdp": [two_silos()], "minimum": []}, tmp_path / "x.html")
    with pytest.raises(InputError, match="none of results"):
        write_report({}, tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_reports_are_read_without_torch() -> None:
    code = "import sys, rpdp.report; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
