"""What a run costs a record: schedule, Rényi and privacy-loss-distribution routes, the curve ε*(q) and its inverse."""

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
