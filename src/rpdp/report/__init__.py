"""What people look at: figures, and the report of a run."""

from __future__ import annotations

from rpdp.report.facts import ReportFacts
from rpdp.report.figures import budgets_figure, frontier_figure, plan_figure, write_figure
from rpdp.report.run_report import write_report

__all__ = ["ReportFacts", "budgets_figure", "frontier_figure", "plan_figure", "write_figure", "write_report"]
