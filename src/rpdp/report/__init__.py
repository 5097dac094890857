"""The HTML report of a run, and figures of budgets, plans and the frontier."""

from __future__ import annotations

from rpdp.report.planning_figures import (
    FigurePage,
    budgets_figure,
    frontier_figure,
    plan_figure,
    runs_figure,
    write_figure,
)
from rpdp.report.report_facts import ReportFacts
from rpdp.report.report_page import write_report
from rpdp.report.statistics_figures import statistics_figure

__all__ = [
    "FigurePage",
    "ReportFacts",
    "budgets_figure",
    "frontier_figure",
    "plan_figure",
    "runs_figure",
    "statistics_figure",
    "write_figure",
    "write_report",
]
