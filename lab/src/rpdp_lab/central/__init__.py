"""Centralised rPDP-SGD beside its rivals, on pooled data: the paper's table of SCF against Filter, and more.

    rpdp-lab central --task heart --seeds 5

`central_settings` says what is compared and how it was chosen, `pooled_task` holds data and plans of one task,
`central_methods` runs each method on it, `central_comparison` makes the table. Imports torch.
"""

from rpdp_lab.central.central_comparison import CentralComparison, CentralRow, compare
from rpdp_lab.central.central_methods import METHODS
from rpdp_lab.central.central_settings import SETTINGS, CentralSettings, FilterChoice

__all__ = ["METHODS", "SETTINGS", "CentralComparison", "CentralRow", "CentralSettings", "FilterChoice", "compare"]
