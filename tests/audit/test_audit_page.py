"""Pages of audits: no text of a run or a file can become markup."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rpdp.audit import RunAudit
from rpdp.audit.audit_page import canary_section, membership_section, write_page
from rpdp.audit.membership_inference import MembershipGroup, MembershipResult
from rpdp.audit.offline_lira import Interval
from rpdp.audit.risk_comparison import RiskComparison, Scenario
from rpdp.audit.run_audit import ModelAudit
from tests.audit.world import audited

HOSTILE = "</script><script>alert('x')</script>&\"<b>"


class Tags(HTMLParser):
    """The scripts and bold texts of a page; its own text in `text`."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text = ""
        self.feed(str(html))  # not as markup, which would escape what is added to it

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def run_audit() -> RunAudit:
    part = audited(groups=(1.0, 5.0), per_group=200)
    return RunAudit("rpdp", "north", part, part, replace(part, ledger=()))


def test_names_of_an_audit_are_text(run_audit: RunAudit) -> None:
    part = replace(run_audit.alone, kernel=HOSTILE, plan=HOSTILE)
    served = replace(part, ledger=(HOSTILE,))
    plain = Tags(canary_section(run_audit, heading="Audit"))
    shown = Tags(canary_section(RunAudit(HOSTILE, HOSTILE, part, part, served), heading=HOSTILE))
    assert shown.found == plain.found
    assert shown.text.count(HOSTILE) >= 7
    assert Tags(f"{canary_section(run_audit)}{HOSTILE}").found.count("script") == plain.found.count("script") + 1


def test_names_of_a_model_audit_are_text() -> None:
    interval, roc = Interval(0.5, 0.4, 0.6), ((0.0, 1.0), (0.0, 1.0))
    membership = MembershipResult(
        (MembershipGroup(1.0, 0.1, 0.2, interval, interval, roc),), interval, 8, 40, 0.95, "plan"
    )
    scenario = Scenario(HOSTILE, 1.0, 0.1, 1.0, 0.2, 0.0, (0.2,))
    result = ModelAudit("rpdp", membership, (RiskComparison(1.0, (0.0,), scenario, (replace(scenario),)),), HOSTILE)
    shown = Tags(membership_section(result))
    assert shown.text.count(HOSTILE) == 2  # the scenario and the advice
    assert "b" not in shown.found
    assert "script" not in shown.found
    assert "svg" in shown.found


def test_a_page_of_its_own_is_for_its_owner(run_audit: RunAudit, tmp_path: Path) -> None:
    path = write_page(tmp_path / "new" / "audit.html", "Audit of <i>", canary_section(run_audit))
    assert path.stat().st_mode & 0o777 == 0o600
    assert "<title>Audit of &lt;i&gt;</title>" in path.read_text(encoding="utf-8")
