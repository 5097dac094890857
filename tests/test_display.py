"""What a prompt and a notebook show: counts, and no record id, no budget, no draw."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import rpdp
from rpdp import BudgetTable, Ledger, PublicPlan, Schedule, Silo
from rpdp.audit import Canaries, Subject
from rpdp.display import counts_repr, html_table
from rpdp.federation import Policy, RoundLog, RunResult, SiloView, Update
from rpdp.federation.checkpoint import Checkpoint
from rpdp.federation.silo import TrainedRound
from rpdp.ledger.memory import MemoryAccount
from rpdp.report.report_records import AllRecords
from rpdp.sampling import Seeded
from rpdp.studies.study_data import SiloSource
from rpdp.tasks.dataset import Dataset, SiloData
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import Records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

IDS = ["patient-4711", "patient-4712", "patient-4713"]
BUDGETS = [0.71317, 1.31719, 6.17293]
SECRET = re.compile(r"patient|0\.71|1\.31|6\.17|987654|8765\.4")
"""Ids, budgets, numbers of draws, and a feature."""

HOSTILE = "<script>alert('x')</script>"
ARRAY = re.compile(r"Array|Tensor|Hashes|list\[str\]|np\.str_")


def public_plan(**changes: Any) -> PublicPlan:
    settings = {"noise_multiplier": 3.0, "delta": 1e-4, "clip_norm": 1.5, "normaliser": 8, "weights": 1.0}
    return PublicPlan(Schedule(4, 5, participations=2), **{**settings, "accountant": "rdp", **changes})


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One of each kind that holds something sensitive, by name."""
    public, draws = public_plan(), np.full(3, 987_654)
    table = BudgetTable(IDS, BUDGETS, delta=[1e-3] * 3, subjects=IDS)
    plan = public.assign(table)
    view = SiloView(plan, (1, 3), draws, draws * 1.0, np.ones(3, dtype=bool), 0)
    log = RoundLog(1, ("north",), {}, None, 0.1)
    result = RunResult("run", public, "rpdp", 7, torch.zeros(14), (log,), {"north": view}, 1.0)
    features = np.full((3, 2), 8765.4)
    records = Records.of(torch.from_numpy(features), torch.zeros(3))
    dataset = Dataset("heart", features, np.zeros(3, dtype=np.int64), np.array(IDS), 2)
    trained = TrainedRound("run", Update("north", 1, torch.zeros(14)), draws)
    checkpoint = Checkpoint("run", torch.zeros(14), (), {}, {"north": draws}, (log,))
    steward_table = BudgetTable(IDS, BUDGETS)
    model = torch.nn.Linear(2, 1)
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    with Ledger.create(path, steward_table, kind="simulation", lifetime_delta=1e-3) as ledger:
        silo = Silo("north", records, table, policy=Policy.of(public))
        account = MemoryAccount(3)
        account.reserve("run", plan, None)
        yield {
            "BudgetTable": table,
            "RecordBudgets": table.per_record(),
            "PublicPlan": public,
            "SiloPlan": plan,
            "SiloView": view,
            "RunResult": result,
            "AllRecords": AllRecords.of(result),
            "Records": records,
            "Dataset": dataset,
            "SiloData": SiloData(dataset, dataset),
            "SiloSource": SiloSource(records, IDS, records),
            "TrainedRound": trained,
            "Checkpoint": checkpoint,
            "Canaries": Canaries.flip((0.71317, 6.17293), 100, Seeded(1)),
            "Subject": Subject(public, model=model, loss=binary_loss, records=records, budgets=np.array(BUDGETS)),
            "Silo": silo,
            "Ledger": ledger,
            "MemoryAccount": account,
            "Explanation": ledger.explain(IDS[0]),
        }


def test_no_repr_shows_an_id_a_budget_or_a_draw(objects: dict[str, Any]) -> None:
    shown = {name: f"{each!r} {each} {[each]}" for name, each in objects.items()}
    assert {name for name, text in shown.items() if SECRET.search(text)} == set()
    assert {name for name, text in shown.items() if len(text) > 1_500} == set()
    for name in ("BudgetTable", "SiloPlan", "SiloView", "RunResult", "TrainedRound", "Checkpoint", "SiloSource"):
        bare = SimpleNamespace(**{field.name: getattr(objects[name], field.name) for field in fields(objects[name])})
        nested = [vars(view) for view in getattr(objects[name], "silos", {}).values()]
        assert SECRET.search(f"{bare} {nested}"), f"{name}: the check above could not fail"


def test_what_a_repr_says(objects: dict[str, Any]) -> None:
    assert repr(objects["BudgetTable"]) == "BudgetTable(3 records, delta, subjects)"
    assert repr(objects["SiloPlan"]) == "SiloPlan(3 records, 0 left out, certified)"
    assert repr(objects["SiloView"]) == "SiloView(3 records, 2 rounds joined, 0 overdrawn)"
    assert repr(objects["RunResult"]) == ("RunResult('run', rpdp, simulation, 1 rounds, 1 silo views, 14 parameters)")
    assert repr(objects["TrainedRound"]) == "TrainedRound(draws[3])"
    assert repr(objects["Records"]) == "Records(inputs[1], targets[3])"
    assert "σ = 3, δ = 0.0001" in repr(objects["PublicPlan"])
    assert repr(objects["Ledger"]).endswith("ledger.db', simulation, 3 records)")


@pytest.mark.parametrize("name", ["RunResult", "PublicPlan", "SiloPlan", "Ledger", "BudgetTable"])
def test_a_notebook_shows_a_small_table_without_ids(objects: dict[str, Any], name: str) -> None:
    html = objects[name]._repr_html_()
    assert html.startswith("<table>")
    assert html.endswith("</table>")
    assert len(html) < 3_000
    assert "patient" not in html
    assert "987654" not in html


@pytest.mark.parametrize(("name", "columns"), [("BudgetTable", 2), ("SiloPlan", 3)])
def test_budgets_are_counted_by_fixed_bands(objects: dict[str, Any], name: str, columns: int) -> None:
    """Groups that follow the budgets would show one: here every record is alone in its group."""
    html = objects[name]._repr_html_()
    assert SECRET.search(html) is None
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html)
    assert dict(zip(cells[::columns], cells[1::columns], strict=True)) == {
        "ε up to 0.1": "0",
        "ε up to 0.2": "0",
        "ε up to 0.5": "0",
        "ε up to 1": "1",
        "ε up to 2": "1",
        "ε up to 5": "0",
        "ε up to 10": "1",
        "ε above 10": "0",
    }


def test_a_budget_on_the_edge_of_a_band_is_in_it() -> None:
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", BudgetTable(IDS, [0.1, 5.0, 5.01])._repr_html_())
    found = dict(zip(cells[::2], cells[1::2], strict=True))
    assert (found["ε up to 0.1"], found["ε up to 5"], found["ε up to 10"]) == ("1", "1", "1")


def test_texts_in_a_notebook_are_escaped() -> None:
    plan = public_plan(weights={HOSTILE: 1.0}, notes=[HOSTILE])
    silo = plan.assign(BudgetTable(IDS, BUDGETS, delta=[1e-3] * 3))
    view = SiloView(silo, (1,), np.zeros(3, dtype=np.int64), np.zeros(3), None, 0)
    result = RunResult(HOSTILE, plan, HOSTILE, None, torch.zeros(1), (), {HOSTILE: view}, 1.0)
    for html in (plan._repr_html_(), result._repr_html_(), html_table(HOSTILE, [(HOSTILE, 1)], (HOSTILE, "n"))):
        assert "<script>" not in html
        assert "&lt;script&gt;" in html


def test_a_closed_ledger_still_shows_itself(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "l.db", BudgetTable(IDS, BUDGETS), kind="simulation", lifetime_delta=1e-3) as ledger:
        shown = repr(ledger), ledger._repr_html_()
    assert (repr(ledger), ledger._repr_html_()) == shown


def test_a_plan_of_nobody_or_without_prices_is_shown() -> None:
    plan = public_plan().assign(BudgetTable(IDS, [1e-9] * 3, delta=[1e-99] * 3))
    assert repr(plan) == "SiloPlan(3 records, 3 left out, certified)"
    assert "<table>" in plan._repr_html_()


@dataclass
class Careless:
    draws: NDArray[np.int64]


@dataclass
class Careful:
    draws: NDArray[np.int64]
    name: str = "patient"
    share: float = 0.5
    count: int = 3

    __repr__ = counts_repr


def shows_content(kind: type) -> bool:
    """Whether a dataclass with arrays, tensors or ids has the `repr` that prints them all."""
    types = [str(field.type) for field in fields(kind) if field.repr]
    has_arrays = any(ARRAY.search(name) and not name.startswith("Callable") for name in types)
    return has_arrays and hasattr(kind.__repr__, "__wrapped__")  # as dataclasses make it


def test_every_dataclass_with_arrays_shows_their_sizes_only() -> None:
    found = set()
    for module in pkgutil.walk_packages(rpdp.__path__, "rpdp."):
        if module.name.startswith(("rpdp.accounting", "rpdp.deployment.flower")):
            continue  # numbers of an accountant belong to no record
        for kind in vars(import_module(module.name)).values():
            if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.name and shows_content(kind):
                found.add(f"{module.name}.{kind.__name__}")
    assert found == set()
    assert shows_content(Careless)
    assert not shows_content(Careful)
    assert repr(Careful(np.zeros((2, 3), dtype=np.int64))) == "Careful(draws[2×3], count=3)"
