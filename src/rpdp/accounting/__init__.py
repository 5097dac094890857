"""Privacy accounting: what a run costs each record.

`Schedule` describes a run. `PrivacyCurve` gives the cost ε*(q) of a record that is sampled with probability q, and the
largest q that a budget allows, from Rényi moments and privacy-loss distributions. `calibrate_noise` finds the noise
for a given cost.
"""

from __future__ import annotations

from rpdp.accounting.calibration import calibrate_noise
from rpdp.accounting.curve import ACCOUNTANTS, Accountant, Bounds, PrivacyCurve
from rpdp.accounting.paper_bounds import paper_type_1, paper_type_2
from rpdp.accounting.schedule import Schedule

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Bounds",
    "PrivacyCurve",
    "Schedule",
    "calibrate_noise",
    "paper_type_1",
    "paper_type_2",
]
