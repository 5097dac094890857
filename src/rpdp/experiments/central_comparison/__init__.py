"""Centralised rPDP-SGD beside its rivals, on pooled data: the paper's table of SCF against Filter, and more.

    python -m rpdp.experiments.central_comparison --task heart --seeds 5

`settings` says what is compared and how it was chosen, `case` holds data and plans of one task, `methods` runs
each method on it, `comparison` makes the table.
"""

from rpdp.experiments.central_comparison.command import main
from rpdp.experiments.central_comparison.comparison import Comparison, Row, compare
from rpdp.experiments.central_comparison.methods import METHODS
from rpdp.experiments.central_comparison.settings import SETTINGS, FilterChoice, Settings

__all__ = ["METHODS", "SETTINGS", "Comparison", "FilterChoice", "Row", "Settings", "compare", "main"]
