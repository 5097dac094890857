"""How the final model does on held-out records, by their budgets: for the silos' own eyes, so without noise."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError
from rpdp.metrics import Predictions
from rpdp.studies.study_data import make_evaluation
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from torch import Tensor

    from rpdp.federation.score import GroupScore
    from rpdp.studies.building import PreparedRun


def held_out_groups(built: PreparedRun, values: Tensor) -> tuple[GroupScore, ...]:
    """The metrics by budget, all silos together; nothing if a metric cannot be computed. Sensitive."""
    tests = {silo.name: built.source.silos[silo.name].test for silo in built.silos}
    flat = FlatModel(copy.deepcopy(built.model))
    flat.values.data.copy_(values)
    budgets = [silo.budgets.per_record().epsilon[silo.purposes.serves("evaluation")] for silo in built.silos]
    try:
        evaluation = make_evaluation(built.spec, tests).checked(built.model)
        found = Predictions.together([evaluation.predict(flat, records) for records in tests.values()])
    except InputError:
        return ()
    return evaluation.by_budget(found, np.concatenate(budgets))
