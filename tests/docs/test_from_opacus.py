"""The port of a loop of Opacus: six lines, shown on the page as they are, and the same mechanism at equal budgets."""

from __future__ import annotations

import difflib
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from rpdp.errors import InputError
from tests.docs.console import DOCS, ROOT, fences

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = ROOT / "examples" / "opacus"
PAGE = DOCS / "tutorials" / "from-opacus.md"
MOST_LINES = 6


def difference() -> list[str]:
    """The lines of the two loops, each marked as new (+), gone (-) or the same."""
    before, after = (
        (EXAMPLE / f"{name}_loop.py").read_text(encoding="utf-8").splitlines() for name in ("opacus", "rpdp")
    )
    return list(difflib.unified_diff(before, after, n=100, lineterm=""))[3:]


def test_the_port_writes_six_lines() -> None:
    written = [line for line in difference() if line.startswith("+")]
    assert 0 < len(written) <= MOST_LINES
    assert all(len(line) <= 121 for line in written)  # and no line holds two


def test_the_page_shows_the_port_as_it_is() -> None:
    (shown,) = (fence.text for fence in fences(PAGE.read_text(encoding="utf-8")) if fence.words == ("diff",))
    assert shown.splitlines() == [line.rstrip() for line in difference()]


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The modules of the example by name."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    names = ("digits", "opacus_loop", "rpdp_loop")
    yield {name: import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


def small(loops: Any, **settings: Any) -> Any:
    """Images that are noise, in one epoch of two steps."""
    generator = torch.Generator().manual_seed(1)
    made = TensorDataset(torch.randn(60, 1, 28, 28, generator=generator), torch.arange(60) % 10)
    chosen = {"epochs": 1, "steps": 2, "batch": 30, "delta": 1e-3, "budgets": np.full(60, 50.0), **settings}
    return loops["digits"].Run(made, test=made, **chosen)


@pytest.mark.filterwarnings("ignore")  # those of Opacus and torch.func
@pytest.mark.parametrize("name", ["opacus_loop", "rpdp_loop"])
def test_both_loops_train(loops: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.random.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        first, second = (loops[name].train(small(loops), seed) for seed in (1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    parts = [next(iter(model.parameters())).detach() for model in (first, second)]
    assert float((parts[0] - parts[1]).abs().max()) > 0
    assert capsys.readouterr().out.startswith("epoch 1: accuracy 0.")


def test_the_port_asks_for_a_budget_of_every_record(loops: Any) -> None:
    with pytest.raises(InputError, match="every record needs one"):
        loops["rpdp_loop"].train(small(loops, budgets=np.full(59, 1.0)), seed=1)
