"""What people look at: figures."""

from __future__ import annotations

from rpdp.report.figures import budgets_figure, frontier_figure, plan_figure, write_figure

__all__ = ["budgets_figure", "frontier_figure", "plan_figure", "write_figure"]
