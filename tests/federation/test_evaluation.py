from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rpdp.errors import InputError
from rpdp.federation import Evaluation
from rpdp.training import FlatModel, Records


def is_equal(output: Tensor, targets: Tensor) -> Tensor:
    return output[:, 0] == targets


def make_test(*targets: float) -> Records:
    return Records.of(torch.ones(len(targets), 1), torch.tensor(targets))


def identity() -> FlatModel:
    """A model that answers 1, and in training mode something else."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    return FlatModel(nn.Sequential(layer, nn.Dropout(0.999)).train())


TESTS = {"a": make_test(1, 1, 1, 0), "b": make_test(0, 0), "c": Records.of(torch.ones(0, 1), torch.ones(0))}


def test_pooled_accuracy_and_the_mean_over_silos() -> None:
    """By hand: 3 of 4 and 0 of 2; a silo without test records has no accuracy."""
    tests, model = Evaluation(TESTS, is_equal), identity()
    score = tests.score({name: tests.hits(model, name) for name in TESTS})
    assert score.accuracy == 0.5
    assert score.mean_over_silos == 0.375
    assert score.by_silo == {"a": 0.75, "b": 0.0}
    assert model.module.training


def test_evaluation_leaves_every_layer_in_the_mode_that_it_was_in() -> None:
    """A dropout layer that was switched off must stay so: the kernel has no masks for it."""
    model = FlatModel(nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5).eval()))
    Evaluation(TESTS, is_equal).answers(model, TESTS["a"])
    assert [layer.training for layer in model.module.modules()] == [True, True, False]


def test_answers_by_record() -> None:
    tests = Evaluation(TESTS, is_equal)
    assert tests.answers(identity(), TESTS["a"]).tolist() == [True, True, True, False]
    assert tests.answers(identity(), TESTS["c"]).tolist() == []
    many = make_test(*([1.0, 0.0] * 2500))
    assert int(tests.answers(identity(), many).sum()) == 2500


@pytest.mark.parametrize("tests", [{}, {"c": TESTS["c"]}], ids=["no silo", "no record"])
def test_nothing_to_evaluate_on_is_refused(tests: dict[str, Records]) -> None:
    with pytest.raises(InputError, match="no test record"):
        Evaluation(tests, is_equal)
