"""Centralised rPDP-SGD beside its rivals, on pooled data: the paper's table of SCF against Filter, and more.

    python -m rpdp_lab.central --task heart --seeds 5

`settings` says what is compared and how it was chosen, `case` holds data and plans of one task, `methods` runs
each method on it, `comparison` makes the table.
"""

from rpdp_lab.central.command import main
from rpdp_lab.central.comparison import CentralComparison, CentralRow, compare
from rpdp_lab.central.methods import METHODS
from rpdp_lab.central.settings import SETTINGS, CentralSettings, FilterChoice

__all__ = [
    "METHODS",
    "SETTINGS",
    "CentralComparison",
    "CentralRow",
    "CentralSettings",
    "FilterChoice",
    "compare",
    "main",
]
