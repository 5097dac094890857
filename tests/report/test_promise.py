"""The promise of a run with a request: it speaks of weights, and of nothing that such a run does not have."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rpdp import PublicPlan
from rpdp.planning import MeasureSpec, Request
from rpdp.report.promise import promise_values
from rpdp.report.rendering import render
from tests.report.runs import public_plan

REQUEST = PublicPlan.of_request(
    Request("representative", (MeasureSpec("count", 1), MeasureSpec("histogram", 10))),
    noise_multiplier=7.0,
    delta=1e-4,
    purpose="statistics",
    rounds=2,
)


def promise_of(public: PublicPlan) -> str:
    report = SimpleNamespace(
        run=SimpleNamespace(public=public, is_simulation=False),
        is_protected=True,
        for_silo=False,
        method="rpdp",
        promise=lambda method: f"what {method} promises",
        facts=SimpleNamespace(notes=[], budgets=None),
        depends_on_coins=False,
        unprotected=[],
    )
    return " ".join(str(render("promise.html.j2", report=report, **promise_values(public, is_protected=True))).split())


def test_the_promise_of_a_request_says_how_it_is_kept() -> None:
    text = promise_of(REQUEST)
    assert "2 releases of 11 cells, estimator representative." in text
    assert "Nobody is sampled." in text
    assert "the record's own weight w" in text
    assert "sL to every cell, with s = 7" in text
    assert "the price of a Gaussian that a record of weight w moves" in text
    assert "the true cost of a record with weight w lies between" in text


@pytest.mark.parametrize("words", ["local step", "sampling probability", "draws every record"])
def test_the_promise_of_a_request_has_no_words_of_training(words: str) -> None:
    """Those of training have them: the control."""
    assert words not in promise_of(REQUEST)
    assert words in promise_of(public_plan())
