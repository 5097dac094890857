"""Training in one place with an account: inside a training loop of one's own, or with fit and predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.lazy import lazy_names

if TYPE_CHECKING:
    from rpdp.one_silo.personal_trainer import DrawnBatch as DrawnBatch
    from rpdp.one_silo.personal_trainer import PersonalTrainer as PersonalTrainer
    from rpdp.one_silo.personal_trainer import TrainingRound as TrainingRound
    from rpdp.one_silo.tabular_estimators import PersonalClassifier as PersonalClassifier
    from rpdp.one_silo.tabular_estimators import PersonalRegressor as PersonalRegressor

_HOME_OF = {
    "DrawnBatch": "rpdp.one_silo.personal_trainer",
    "PersonalClassifier": "rpdp.one_silo.tabular_estimators",  # needs scikit-learn, which the trainer does not
    "PersonalRegressor": "rpdp.one_silo.tabular_estimators",
    "PersonalTrainer": "rpdp.one_silo.personal_trainer",
    "TrainingRound": "rpdp.one_silo.personal_trainer",
}

__all__ = [*_HOME_OF]
__getattr__ = lazy_names(__name__, _HOME_OF)
