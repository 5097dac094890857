from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.budgets import BudgetTable

if TYPE_CHECKING:
    from tests.cli.conftest import Command

FACTS = {
    "records",
    "different_budgets",
    "epsilon_quantiles",
    "levels",
    "has_delta",
    "has_subjects",
    "largest_subject",
}


def test_make_and_check_a_few_levels(rpdp: Command) -> None:
    made = rpdp("budgets", "make", "b.csv", "-n", 1000)
    assert made.code == 0
    assert made.out.startswith("b.csv: 1,000 records\n")
    assert "drawn with seed 0 from ThreeLevels(" in made.out
    assert "parameters of the paper's text" in " ".join(made.out.split())
    assert BudgetTable.read("b.csv").ids[999].as_py() == "r-1000"
    assert Path("b.csv").stat().st_mode & 0o777 == 0o600
    checked = rpdp("budgets", "check", "b.csv")
    assert checked.code == 0
    assert checked.out.splitlines()[0] == "b.csv: 1,000 records, all good"
    assert [line.split() for line in checked.out.splitlines()[3:]] == [
        ["0.1", "700", "70.0%"],
        ["1", "200", "20.0%"],
        ["5", "100", "10.0%"],
    ]


def test_many_budgets_are_shown_by_quantiles_that_somebody_has(rpdp: Command) -> None:
    rpdp("budgets", "make", "p.parquet", "--distribution", "BoundedPareto", "-n", 500, "--seed", 7)
    facts = rpdp("budgets", "check", "p.parquet", "--json").json
    assert set(facts) == {"file", *FACTS}
    assert facts["levels"] is None
    assert facts["different_budgets"] > 400
    assert set(facts["epsilon_quantiles"].values()) <= set(BudgetTable.read("p.parquet").epsilon)
    assert "median" in rpdp("budgets", "check", "p.parquet").out


def test_make_as_json(rpdp: Command) -> None:
    made = rpdp("budgets", "make", "b.csv", "--set", "levels=1,3,10", "--parameters", "authors", "--json").json
    assert set(made) == {"file", "plot", "distribution", "seed", *FACTS}
    assert made["distribution"] == {
        "name": "ThreeLevels",
        "parameters": "authors",
        "changed": True,
        "levels": [1.0, 3.0, 10.0],
        "shares": [0.7, 0.2, 0.1],
    }
    assert made["levels"] == [{"epsilon": e, "records": n} for e, n in ((1.0, 700), (3.0, 200), (10.0, 100))]


def test_the_seed_decides(rpdp: Command) -> None:
    for name, seed in (("a.csv", 1), ("b.csv", 1), ("c.csv", 2)):
        assert rpdp("budgets", "make", name, "--seed", seed).code == 0
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes() != Path("c.csv").read_bytes()


def test_plot(rpdp: Command) -> None:
    made = rpdp("budgets", "make", "b.csv", "-n", 50, "--plot", "figures/b.html", "--prefix", "x")
    assert made.out.endswith("figure: figures/b.html\n")
    assert Path("figures/b.html").read_text().count('class="area"') == 2
    assert BudgetTable.read("b.csv").ids[0].as_py() == "x-0001"


def test_refuses_overwriting(rpdp: Command) -> None:
    Path("b.csv").write_text("precious")
    Path("b.html").write_text("precious")
    refused = rpdp("budgets", "make", "b.csv")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "error: b.csv exists and is not overwritten; choose another name, or add --force\n"
    assert rpdp("budgets", "make", "new.csv", "--plot", "b.html").code == 2
    assert not Path("new.csv").exists()
    assert Path("b.csv").read_text() == "precious"
    assert rpdp("budgets", "make", "b.csv", "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["b.txt"], "b.txt: the name of a budget file must end in .csv or .parquet"),
        (["nowhere/b.csv"], "nowhere is not a directory; make it first"),
        (["b.csv", "--distribution", "Pareto"], "did you mean 'BoundedPareto'?"),
        (["b.csv", "--parameters", "mine"], "unknown parameters 'mine'"),
        (["b.csv", "-n", "0"], "records=0 must be between 1 and 100,000,000"),
        (["b.csv", "-n", "10000000000"], "records=10000000000 must be between 1 and 100,000,000"),
        (["b.csv", "-n", "many"], "Invalid value for '--records' / '-n': 'many' is not a valid integer"),
        (["b.csv", "--seed", "-1"], "seed=-1 must be at least 0"),
        (["b.csv", "--set", "levels"], "--set 'levels' must look like levels=0.1,1,5"),
        (["b.csv", "--set", "levels=1,x"], "--set levels '1,x' must be numbers separated by commas"),
        (["b.csv", "--set", "levels=1,2,3", "--set", "levels=1,2,4"], "--set levels is given twice"),
        (["b.csv", "--set", "level=1"], "did you mean 'levels'?"),
        (["b.csv", "--set", "levels=1,2"], "shares=(0.7, 0.2, 0.1) must be 2 numbers"),
        (["b.csv", "--set", "levels=1,2,2000"], "epsilon is 2000"),
        (["b.csv", "--plot", "b.png"], "--plot b.png: the name of the figure must end in .html"),
        ([], "Missing argument 'FILE'. See rpdp budgets make --help"),
    ],
)
def test_bad_input_of_make(rpdp: Command, tmp_path: Path, arguments: list[str], message: str) -> None:
    refused = rpdp("budgets", "make", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: ")
    assert message in refused.err
    assert list(tmp_path.iterdir()) == []


def test_check_names_the_line(rpdp: Command) -> None:
    Path("b.csv").write_text("record,epsilon\na,1\nb,zero\n")
    refused = rpdp("budgets", "check", "b.csv")
    assert refused.code == 2
    assert refused.err.startswith("error: b.csv: line 3: epsilon is 'zero', which is not a number")
    as_json = rpdp("budgets", "check", "b.csv", "--json")
    assert as_json.code == 2
    assert as_json.json["kind"] == "BudgetError"
    assert as_json.json["exit_code"] == 2
    assert as_json.json["error"].startswith("b.csv: line 3: epsilon is 'zero'")


def test_check_tells_about_delta_and_subjects(rpdp: Command) -> None:
    Path("b.csv").write_text("record,epsilon,delta,subject\na,1,0.1,p\nb,1,0.1,p\n")
    text = " ".join(rpdp("budgets", "check", "b.csv").out.split())
    assert "Every record has a lifetime δ of its own" in text
    assert "split over its records (at most 2 here)" in text
    assert "subjects shared between silos are not covered" in text


def test_names_are_data_and_no_markup(rpdp: Command) -> None:
    Path("[red] :smile:.csv").write_text("record,epsilon\n[bold],1\n")
    assert rpdp("budgets", "check", "[red] :smile:.csv").out.startswith("[red] :smile:.csv: 1 record, all good")
    assert "[/no].csv: no such file" in rpdp("budgets", "check", "[/no].csv").err
