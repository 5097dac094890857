"""Notebook pages: run when the site is built, and nothing about single records is left in their outputs."""

from __future__ import annotations

import re
import runpy
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sphinx.errors import ExtensionError

from rpdp import BudgetTable
from tests.docs.console import DOCS

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = DOCS / "tutorials" / "notebook.md"
HEAD = "---\nkernelspec:\n  name: python3\n---\n"
with_outputs: Callable[[str, str], str] = runpy.run_path(str(DOCS / "_ext" / "notebook_pages.py"))["with_outputs"]


def cell(code: str) -> str:
    return f"```{{code-cell}} ipython3\n{code}\n```\n"


def outputs(ran: str) -> str:
    return "\n".join(re.findall(r"^```(?:text|\{raw\} html)\n(.*?)^```$", ran, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def ran() -> str:
    return with_outputs("tutorials/notebook", PAGE.read_text(encoding="utf-8"))


def test_jupytext_knows_the_page_as_a_notebook() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith("---\njupytext:\n")
    assert "format_name: myst" in text
    assert "kernelspec:" in text
    assert text.count("```{code-cell} ipython3\n") == text.count("```{code-cell}") >= 5


def test_every_cell_was_run(ran: str) -> None:
    assert "{code-cell}" not in ran
    assert "kernelspec" not in ran
    assert "simulation: nobody is protected" in outputs(ran)
    assert "SiloView(94 records, 12 rounds joined, 0 overdrawn)" in outputs(ran)
    assert float(re.findall(r"^auc: (0\.\d+)$", ran, re.MULTILINE)[0]) > 0.95


def sensitive(shown: str) -> list[str]:
    """Ids, single probabilities and costs of the tutorial's records."""
    return re.findall(r"breast-cancer-\d+|0\.02[0-9]{2,}|0\.1[5][0-9]{2,}|0\.57[0-9]{2,}|4\.9[0-9]+", shown)


def test_no_output_is_about_a_single_record(ran: str) -> None:
    assert sensitive(outputs(ran)) == []


def test_the_search_finds_what_a_careless_cell_prints() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for code in ("view.plan.q[:3]", "print(view.plan.explain('breast-cancer-0005'))", "view.plan.ids.to_pylist()[:2]"):
        assert sensitive(outputs(with_outputs("careless", page + "\n" + cell(code))))


def test_cells_share_names_and_show_what_a_notebook_shows() -> None:
    page = HEAD + "# Title\n" + cell("a = 2\nprint('said')\na + 1") + "between\n" + cell("a * 5;") + cell("a * 7")
    text = with_outputs("page", page)
    assert text.startswith("# Title\n```python\na = 2")
    assert outputs(text) == "said\n\n3\n\n14\n"


def test_objects_with_a_table_show_it() -> None:
    table = BudgetTable(["a"], np.array([1.0]))
    assert table._repr_html_() in with_outputs(
        "page", HEAD + cell("import rpdp, numpy as np\nrpdp.BudgetTable(['a'], np.array([1.0]))")
    )


@pytest.mark.parametrize("code", ["1 / 0", "import warnings\nwarnings.warn('old')", "a = ("])
def test_a_failing_cell_stops_the_build(code: str) -> None:
    with pytest.raises(ExtensionError, match=r"page, cell 2: "):
        with_outputs("page", HEAD + cell("1") + cell(code))


def test_other_pages_stay_as_they_are() -> None:
    fill = runpy.run_path(str(DOCS / "_ext" / "notebook_pages.py"))["_fill"]
    source = ["# Title\n" + cell("1 / 0")]
    fill(SimpleNamespace(), "page", source)
    assert source == ["# Title\n" + cell("1 / 0")]
