"""What records contribute to evaluation depends on the record, the model and the request alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation.cells import NO_CELL, Cells
from rpdp.planning.request import Request
from rpdp.statistics.evaluation_cells import BLOCK, ModelCells
from rpdp.statistics.evaluation_measures import EvaluationMeasure
from rpdp.statistics.score_metrics import ScoreCounts
from rpdp.training import FlatModel, Records
from tests.statistics.odd_settings import changed
from tests.statistics.stumbling import Stumbling


def asked(*metrics: str, **settings: object) -> Request:
    """A request for these metrics."""
    return Request("everyone", (EvaluationMeasure.for_metrics(metrics, **settings).spec(),))  # type: ignore[arg-type]


SCORES, CLASSES = asked("auc", classes=2), asked("accuracy", classes=2)


def records(count: int = 600) -> Records:
    """Records of two classes."""
    inputs = torch.randn(count, 2, generator=torch.Generator().manual_seed(1))
    return Records.of(inputs, (inputs.sum(dim=1) > 0).long())


def values_of(model: nn.Module) -> torch.Tensor:
    """A flat model with fixed numbers."""
    return torch.linspace(-1.0, 1.0, len(FlatModel(model).values))


def total(cells: Cells, size: int) -> np.ndarray:
    """The sum over all records."""
    used = cells.index != NO_CELL
    return np.bincount(cells.index[used], cells.value[used], minlength=size)


def test_the_sums_are_those_of_the_announced_model() -> None:
    data, model = records(), nn.Linear(2, 1)
    values = values_of(model)
    source = ModelCells(data, nn.Linear(2, 1))
    sums = total(source.cells(SCORES, values, np.arange(600)), SCORES.size)
    scores = (data.inputs[0] @ values[:2] + values[2]).numpy()
    counts = ScoreCounts.of_cells(sums, 1.0)
    found = counts.positives.values, counts.negatives.values
    edges = EvaluationMeasure.of(SCORES.measures[0]).edges
    for label, one in zip((1, 0), found, strict=True):
        wanted = np.bincount(np.searchsorted(edges, scores[data.targets == label]), minlength=256)
        np.testing.assert_allclose(one, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("request_", "model"),
    [
        (SCORES, nn.Linear(2, 1)),
        (SCORES, nn.Linear(2, 2)),
        (CLASSES, nn.Linear(2, 1)),
        (asked("mae", "rmse", bound=0.1), nn.Linear(2, 1)),
        (asked("mae", bound=1e9), nn.Linear(2, 1)),
    ],
)
def test_no_record_has_a_norm_above_one(request_: Request, model: nn.Module) -> None:
    source = ModelCells(records(), model)
    source.require(request_)
    cells = source.cells(request_, values_of(model), np.arange(600))
    assert (np.linalg.norm(cells.value, axis=1) <= 1.0).all()
    assert cells.index.max() < request_.size


def test_two_cells_of_norm_one_are_not_one_measure() -> None:
    cells = ModelCells(records(), nn.Linear(2, 1)).cells(asked("mae", "rmse", bound=1e-9), torch.ones(3), np.arange(9))
    assert np.linalg.norm(cells.value, axis=1) == pytest.approx(1.0)
    assert cells.value == pytest.approx(1 / math.sqrt(3))


def test_cells_do_not_depend_on_which_records_are_asked_for() -> None:
    data = records()
    source, values = ModelCells(data, nn.Linear(2, 1)), values_of(nn.Linear(2, 1))
    whole = source.cells(SCORES, values, np.arange(600))
    for rows in (np.array([5]), np.array([5, BLOCK, 599]), np.arange(0, 600, 7)):
        some = source.cells(SCORES, values, rows)
        assert (some.index == whole.index[rows]).all()
        assert (some.value == whole.value[rows]).all()


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, 600])
def test_the_model_gets_equally_many_records_whoever_is_there(count: int) -> None:
    """The last bits of an output depend on how many there are: one more record could move the bins of others."""
    sizes: list[int] = []
    data, model = records(count), nn.Linear(2, 1)
    source = ModelCells(data, model)
    source._model.module.register_forward_hook(lambda _module, _inputs, outputs: sizes.append(len(outputs)))
    source.cells(SCORES, values_of(model), np.arange(count))
    assert sizes == [BLOCK] * -(-count // BLOCK)


@pytest.mark.parametrize("bad", [13.0, float("nan")])
def test_a_record_that_fails_is_as_wrong_as_possible_and_moves_no_other(bad: float) -> None:
    data = records()
    inputs = data.inputs[0].clone()
    inputs[7] = bad
    changed = replace(data, inputs=(inputs,))
    values = values_of(Stumbling())
    before, after = (ModelCells(one, Stumbling()).cells(CLASSES, values, np.arange(600)) for one in (data, changed))
    others = np.arange(600) != 7
    assert (before.index[others] == after.index[others]).all()
    actual = int(data.targets[7])
    assert after.index[7, 0] == actual * 2 + (1 - actual)
    scores = ModelCells(changed, Stumbling()).cells(SCORES, values, np.array([7]))
    assert scores.index[0, 0] == actual * 256


def test_models_that_always_fail_are_refused_beforehand() -> None:
    with pytest.raises(InputError, match=r"the model cannot be evaluated"):
        ModelCells(records(), nn.Linear(3, 1))


def test_targets_that_are_no_class_contribute_nothing() -> None:
    data = Records((torch.zeros(4, 2),), torch.tensor([0.0, 2.0, float("nan"), 0.5]))
    source = ModelCells(data, nn.Linear(2, 1))
    for request in (SCORES, CLASSES):
        cells = source.cells(request, torch.zeros(3), np.arange(4))
        assert (cells.index[1:] == NO_CELL).all()
        assert (cells.value[1:] == 0.0).all()
        assert cells.index[0, 0] != NO_CELL


def test_errors_are_cut_at_the_bound() -> None:
    data = Records((torch.zeros(3, 2),), torch.tensor([0.5, -7.0, float("inf")]))
    cells = ModelCells(data, nn.Linear(2, 1)).cells(asked("mae", bound=1.0), torch.zeros(3), np.arange(3))
    assert cells.value * math.sqrt(2) == pytest.approx(np.array([[1.0, 0.5], [1.0, 1.0], [0.0, 0.0]]))


def test_groups_have_cells_of_their_own() -> None:
    request = asked("accuracy", classes=2, column="sex", levels=["f", "m"])
    data = Records((torch.zeros(3, 2),), torch.tensor([0, 0, 0]))
    source = ModelCells(data, nn.Linear(2, 1), {"sex": ["m", "f", "?"]})
    source.require(request)
    assert source.cells(request, torch.zeros(3), np.arange(3)).index.tolist() == [[4], [0], [NO_CELL]]


@pytest.mark.parametrize(
    ("request_", "model", "message"),
    [
        (asked("accuracy", classes=3), nn.Linear(2, 1), r"about 3 classes"),
        (asked("mae", bound=1.0), nn.Linear(2, 2), r"one output per record"),
        (asked("auc", classes=2, column="sex", levels=["f"]), nn.Linear(2, 1), r"'sex' is no column"),
        (Request("everyone", SCORES.measures * 2), nn.Linear(2, 1), r"one measure, not 2"),
    ],
)
def test_requests_that_do_not_fit_are_refused(request_: Request, model: nn.Module, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModelCells(records(), model).require(request_)


@pytest.mark.parametrize(
    "wanted",
    [SCORES, CLASSES, asked("mae", bound=1.0), asked("accuracy", classes=2, column="sex", levels=["f", "m"])],
    ids=["scores", "classes", "errors", "groups"],
)
def test_whatever_a_server_writes_is_refused_in_words_or_keeps_the_norm(wanted: Request) -> None:
    source, passed = ModelCells(records(3), nn.Linear(2, 1), {"sex": ["m", "f", "?"]}), 0
    given = wanted.measures[0].plain()
    for values in (given, *changed(given)):
        try:
            request = Request.of({"estimator": "everyone", "measures": [values]})
            source.require(request)
        except InputError:
            continue
        passed += 1
        cells = source.cells(request, torch.ones(3), np.arange(3))
        assert (np.linalg.norm(cells.value, axis=1) <= 1.0).all()
        assert cells.index.max() < request.size
    assert 0 < passed <= 20


def test_another_model_is_refused() -> None:
    with pytest.raises(InputError, match=r"the announced model has"):
        ModelCells(records(), nn.Linear(2, 1)).cells(SCORES, torch.zeros(4), np.arange(3))


def test_nobody_is_an_empty_table() -> None:
    cells = ModelCells(records(), nn.Linear(2, 1)).cells(SCORES, torch.zeros(3), np.zeros(0, dtype=np.int64))
    assert cells.index.shape == (0, 256)
    assert len(ModelCells(records(), nn.Linear(2, 1))) == 600


def test_groups_must_fit_the_records() -> None:
    with pytest.raises(InputError, match=r"2 groups of 'sex' for 600 records"):
        ModelCells(records(), nn.Linear(2, 1), {"sex": ["f", "m"]})


class Comparing(nn.Module):
    """Subtracts the mean of the records that it gets at once; at first that has no effect."""

    def __init__(self, is_zero: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 1)
        if is_zero:
            nn.init.zeros_(self.last.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs, each less their mean."""
        hidden = self.first(inputs)
        outputs: torch.Tensor = self.last(hidden - hidden.mean(0))
        return outputs


class Remembering(nn.Module):
    """Adds what it saw last to what it sees now."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.last: torch.Tensor
        self.register_buffer("last", torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs."""
        outputs: torch.Tensor = self.linear(inputs)
        self.last.copy_(outputs.mean().reshape(1))
        return outputs


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (Comparing(is_zero=False), "it compares the records of a block"),
        (Comparing(is_zero=True), "it compares the records of a block"),
        (Remembering(), r"changes its buffers \['last'\]"),
    ],
)
def test_a_model_in_which_records_reach_each_other_is_refused(model: nn.Module, what: str) -> None:
    """One record would move the outputs of 255 others: far more than its norm."""
    with pytest.raises(PrivacyRefusal, match=what):
        ModelCells(records(), model)


@pytest.mark.parametrize("model", [nn.BatchNorm1d(2), nn.LayerNorm(2), nn.Dropout(0.5)])
def test_layers_that_see_one_record_at_a_time_when_they_are_evaluated_pass(model: nn.Module) -> None:
    ModelCells(records(), nn.Sequential(nn.Linear(2, 2), model, nn.Linear(2, 1)))
