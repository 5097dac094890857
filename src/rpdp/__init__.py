"""rpdp: record-level personalized differential privacy for cross-silo federated learning.

The public names load on first use (PEP 562). `import rpdp` therefore costs a fraction of a second, and planning never
imports PyTorch. A name whose packages are not installed raises `errors.MissingExtraError`, which says what to install.
"""

from __future__ import annotations

from importlib import import_module

from rpdp.lazy import lazy_names
from rpdp.version import __version__

TYPE_CHECKING = False  # importing typing would double the time of `import rpdp`
if TYPE_CHECKING:
    from typing import Any

    from rpdp import errors as errors
    from rpdp import methods as methods
    from rpdp.accounting import PrivacyCurve as PrivacyCurve
    from rpdp.accounting import Schedule as Schedule
    from rpdp.accounting import calibrate_noise as calibrate_noise
    from rpdp.budgets import BudgetTable as BudgetTable
    from rpdp.federation import Evaluation as Evaluation
    from rpdp.federation import Policy as Policy
    from rpdp.federation import RunResult as RunResult
    from rpdp.federation import Silo as Silo
    from rpdp.federation import TensorBoardLog as TensorBoardLog
    from rpdp.federation import run_production as run_production
    from rpdp.federation import simulate as simulate
    from rpdp.ledger import Ledger as Ledger
    from rpdp.ledger import runs_that_fit as runs_that_fit
    from rpdp.metrics import Metric as Metric
    from rpdp.one_silo import PersonalClassifier as PersonalClassifier
    from rpdp.one_silo import PersonalRegressor as PersonalRegressor
    from rpdp.one_silo import PersonalTrainer as PersonalTrainer
    from rpdp.planning import PublicPlan as PublicPlan
    from rpdp.planning import Recipe as Recipe
    from rpdp.planning import SiloPlan as SiloPlan
    from rpdp.planning import declared_plan as declared_plan
    from rpdp.planning import frontier as frontier
    from rpdp.report import write_report as write_report
    from rpdp.sampling import Secure as Secure
    from rpdp.sampling import Seeded as Seeded
    from rpdp.training import Records as Records
    from rpdp.training import train_central as train_central

_HOME_OF = {
    "BudgetTable": "rpdp.budgets",
    "Evaluation": "rpdp.federation",
    "Ledger": "rpdp.ledger",
    "Metric": "rpdp.metrics",
    "PersonalClassifier": "rpdp.one_silo",
    "PersonalRegressor": "rpdp.one_silo",
    "PersonalTrainer": "rpdp.one_silo",
    "Policy": "rpdp.federation",
    "PrivacyCurve": "rpdp.accounting",
    "PublicPlan": "rpdp.planning",
    "Recipe": "rpdp.planning",
    "Records": "rpdp.training",
    "RunResult": "rpdp.federation",
    "Schedule": "rpdp.accounting",
    "Secure": "rpdp.sampling",
    "Seeded": "rpdp.sampling",
    "Silo": "rpdp.federation",
    "SiloPlan": "rpdp.planning",
    "TensorBoardLog": "rpdp.federation",
    "calibrate_noise": "rpdp.accounting",
    "declared_plan": "rpdp.planning",
    "frontier": "rpdp.planning",
    "run_production": "rpdp.federation",
    "runs_that_fit": "rpdp.ledger",
    "simulate": "rpdp.federation",
    "train_central": "rpdp.training",
    "write_report": "rpdp.report",
}
_MODULES = ("errors", "methods")

__all__ = [
    "__version__",
    *_MODULES,
    *_HOME_OF,
]


_load = lazy_names(__name__, _HOME_OF)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    value = _load(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
