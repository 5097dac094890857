from __future__ import annotations

import pytest
from rpdp_lab.reproduction.suites.table_3 import COMMON, TRAINING, estimated_and_trained


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("model", ["cnn", "cnn, public start"])
def test_a_network_of_table_3_trains(model: str) -> None:
    settings = {
        **COMMON,
        **TRAINING[model]["group-3"],
        "model": model,
        "scenario": "group-3",
        "steps": 3,
    }
    numbers = estimated_and_trained({**settings, "estimator": "certified", "seed": 0, "train": True}, "cpu")
    assert numbers["largest_ratio"] <= 1.0
    assert 0.05 < numbers["accuracy"] < 1.0
