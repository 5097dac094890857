"""A strategy of Flower's, or one's own, as the way to average."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rpdp.errors import InputError
from tests.deployment.agent.federations import PUBLIC, agents, coordinator, rounds, simulated, start
from tests.deployment.agent.links import Local

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.federation import Backbone, RunResult


def averaged(folder: Path, backbone: Backbone) -> RunResult:
    return coordinator(folder, PUBLIC, Local(agents(PUBLIC)), backbone=backbone).go()


@pytest.mark.usefixtures("in_flower")
def test_flowers_fedavg_is_ours_up_to_rounding(tmp_path: Path) -> None:
    """With the public weights where it looks for numbers of examples."""
    from flwr.serverapp.strategy import FedAvg

    from rpdp.deployment.flower.strategy_backbone import StrategyBackbone

    result = averaged(tmp_path, StrategyBackbone(FedAvg()))
    expected = simulated(PUBLIC)
    assert rounds(result) == rounds(expected)
    np.testing.assert_allclose(result.values, expected.values, rtol=1e-4, atol=1e-6)
    uniform = coordinator(tmp_path / "uniform", replace(PUBLIC, weights=1.0), Local(agents(PUBLIC))).go()
    assert np.abs(uniform.values.numpy() - expected.values.numpy()).max() > 1e-3  # the control: weights matter


@pytest.mark.usefixtures("in_flower")
def test_flowers_fedadam_runs(tmp_path: Path) -> None:
    from flwr.serverapp.strategy import FedAdam

    from rpdp.deployment.flower.strategy_backbone import StrategyBackbone

    result = averaged(tmp_path, StrategyBackbone(FedAdam(eta=0.05)))
    assert len(result.rounds) == 6
    assert bool(result.values.isfinite().all())
    moved = (result.values - start()).abs()
    assert 0.01 < float(moved.max()) <= 6 * 0.05 * 4  # a few steps of its learning rate


@pytest.mark.usefixtures("in_flower")
def test_a_strategy_that_makes_no_model_is_refused(tmp_path: Path) -> None:
    from flwr.app import ArrayRecord
    from flwr.serverapp.strategy import FedAvg

    from rpdp.deployment.flower.strategy_backbone import StrategyBackbone

    class Wrong(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            assert arrays is not None
            return ArrayRecord({"values": torch.full((5,), float("nan"))}), metrics

    with pytest.raises(InputError, match="strategy Wrong must return 5 finite numbers"):
        averaged(tmp_path, StrategyBackbone(Wrong()))
