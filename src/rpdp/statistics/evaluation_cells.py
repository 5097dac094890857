"""What held-out records contribute to private evaluation: the announced model's output beside the target, as cells.

A record's cells depend on that record, the model and the request alone. Three things could break that, and are
excluded. A model that compares the records it gets, or keeps something of them, is refused, as far as made-up records
show it. The last bits of an output depend on how many records the model gets at once, so it always gets whole blocks of
places in the silo's data, whichever of their records are asked for, and made-up records at places that the data do not
have. And a record that makes the model raise must not take its block with it: it is found, and replaced in a second run
of the block by numbers that nobody's record holds.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation.cells import NO_CELL, Cells
from rpdp.statistics.evaluation_measures import CLASSES, ERRORS, SCORES, EvaluationMeasure
from rpdp.statistics.score_counts import BELOW_ONE, contribution
from rpdp.training import FlatModel, Records
from rpdp.training.round_time import SLOW_NUMBERS, median_seconds
from rpdp.training.synthetic_records import synthetic_like, synthetic_variants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor, nn

    from rpdp.planning.request import Request

    Numbers = NDArray[np.float64]
    Places = NDArray[np.int64]

BLOCK = 256
"""How many places of the silo's data the model gets at once."""

_GOLDEN = (5.0**0.5 - 1.0) / 2.0
_ROUNDING = 1e-6
"""By how much of the largest output rounding may move one whose block got other records beside it."""


class ModelCells:
    """Runs a model on a silo's records for requests of private evaluation.

    | record | its cells |
    |---|---|
    | output NaN, or the model raises | of the wrong answer: the lowest score of its class, another class, the bound |
    | target that is no class, or not finite; group that is not declared | none |

    Args:
        records: All records of the silo, in its order.
        module: The model, from the silo's own code; it is copied.
        groups: By column: the name of each record's group.
    """

    def __init__(self, records: Records, module: nn.Module, groups: Mapping[str, ArrayLike] | None = None) -> None:
        self._records = records
        self._model = FlatModel(copy.deepcopy(module))
        self._groups = {column: np.asarray(named, dtype=object).tolist() for column, named in (groups or {}).items()}
        for column, named in self._groups.items():
            if len(named) != len(records):
                raise InputError(f"{len(named):,} groups of {column!r} for {len(records):,} records; give one for each")
        self._stand_in, self._columns = self._probe()
        self._require_independent_records()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def outputs(self) -> int:
        """The number of outputs of the model per record."""
        return self._columns

    def seconds(self, size: int) -> float:
        """How long the model takes for so many made-up records, with the slowest numbers in inputs and weights."""
        own, times = self._model.values.data.clone(), []
        try:
            for number in (None, *SLOW_NUMBERS):
                ends = (0.0, 1.0) if number is None else (number, number)
                made = synthetic_like(self._records, size, *ends, whole=0)
                self._model.values.data.copy_(own if number is None else torch.full_like(own, number))
                times.append(median_seconds(partial(self._tried, made)))
        finally:
            self._model.values.data.copy_(own)
        return max(times)

    def _tried(self, block: Records) -> None:
        with suppress(Exception):  # user code may raise anything
            self._forward(block)

    def _probe(self) -> tuple[Records, int]:
        """A block of made-up records that the model takes, and the number of outputs per record."""
        for made in synthetic_variants(self._records, BLOCK):
            with suppress(Exception):  # user code may raise anything
                outputs = self._forward(made)
                return made, outputs.shape[1]
        raise InputError(
            "the model cannot be evaluated: it returns no tensor of shape (records,) or (records, outputs) for records "
            "of these shapes"
        )

    def _require_independent_records(self) -> None:
        """Refuse a model in which records reach each other, or later ones: no bound on what one contributes holds then.

        The outputs of a made-up block must stay where half of the others are replaced. That is tried with made-up
        parameters, too, because layers that begin at zero hide what happens before them.
        """
        own = self._model.values.data.clone()
        before = {name: buffer.clone() for name, buffer in self._model.module.named_buffers()}
        made_up = torch.arange(1, 1 + own.numel(), dtype=torch.float64).mul(_GOLDEN).frac().sub(0.5).to(own)
        is_mixing = self._is_mixing(made_up) | self._is_mixing(own)  # both: the model's own parameters stay
        changed = [name for name, now in self._model.module.named_buffers() if not torch.equal(now, before[name])]
        if is_mixing or changed:
            what = f"it changes its buffers {changed} when it runs" if changed else "it compares the records of a block"
            raise PrivacyRefusal(
                f"the model cannot be evaluated in private: {what}, so one record moves the outputs of others, and "
                "nothing bounds what it contributes; remove batch statistics and comparisons of records from the model"
            )

    def _is_mixing(self, values: Tensor) -> bool:
        """Whether outputs change if every other record of a block is replaced by the first."""
        self._load(values)
        first = Records(
            tuple(tensor[:1].expand(tensor.shape) for tensor in self._stand_in.inputs), self._stand_in.targets
        )
        with suppress(Exception):  # user code may raise anything, also because no real model has such parameters
            one = self._forward(self._stand_in)[::2]
            other = self._forward(_replaced(self._stand_in, first, np.arange(1, BLOCK, 2)))[::2]
            scale = np.abs(one[np.isfinite(one)]).max(initial=0.0)
            return not np.allclose(one, other, rtol=0.0, atol=_ROUNDING * scale, equal_nan=True)
        return False

    def require(self, request: Request) -> None:
        """Refuse a request that is not one known measure which fits the model. Records are not looked at."""
        self._measure(request)

    def _measure(self, request: Request) -> EvaluationMeasure:
        if len(request.measures) != 1:
            raise InputError(f"a private evaluation has one measure, not {len(request.measures)}")
        measure = EvaluationMeasure.of(request.measures[0])
        if measure.classes and measure.classes != max(2, self._columns):
            raise InputError(
                f"the request is about {measure.classes} classes, but the model has {self._columns} outputs per record"
            )
        if not measure.classes and self._columns != 1:
            raise InputError(f"errors need one output per record, but the model has {self._columns}")
        if measure.column and measure.column not in self._groups:
            raise InputError(f"{measure.column!r} is no column of groups here: there are {sorted(self._groups)}")
        return measure

    def cells(self, request: Request, values: Tensor, rows: Places) -> Cells:
        """The cells of the records at these places, by the announced model."""
        measure = self._measure(request)
        self._load(values)
        outputs = np.concatenate([np.zeros((0, self._columns)), *self._blocks(rows)])
        targets = self._records.targets[torch.from_numpy(rows)].numpy(force=True)
        columns = targets.astype(np.float64).reshape(len(rows), int(np.prod(targets.shape[1:])))
        index, value = _KINDS[measure.kind](measure, outputs, columns)
        return Cells(self._grouped(measure, index, rows), value)

    def _load(self, values: Tensor) -> None:
        own = self._model.values.data
        if values.shape != own.shape or values.dtype != own.dtype:
            raise InputError(f"the announced model has {tuple(values.shape)} values, but this one {tuple(own.shape)}")
        own.copy_(values)

    def _blocks(self, rows: Places) -> list[Numbers]:
        """The outputs at these places, block by block."""
        numbers = rows // BLOCK
        return [self._outputs(int(one) * BLOCK)[rows[numbers == one] % BLOCK] for one in np.unique(numbers)]

    def _outputs(self, start: int) -> Numbers:
        """The outputs of all records of a block; NaN for those that make the model raise."""
        block = _filled(self._records.rows(start, start + BLOCK), self._stand_in)
        with suppress(Exception):  # user code may raise anything
            return self._forward(block)
        failing = self._failing(block, 0, len(block))
        outputs = np.full((len(block), self._columns), np.nan)
        with suppress(Exception):
            outputs = self._forward(_replaced(block, self._stand_in, failing))
            outputs[failing] = np.nan
        return outputs

    def _failing(self, block: Records, start: int, stop: int) -> Places:
        """Which records make the model raise, found by halving."""
        try:
            self._forward(block.rows(start, stop))
            return np.zeros(0, dtype=np.int64)
        except Exception:  # user code may raise anything
            if stop - start == 1:
                return np.array([start], dtype=np.int64)
        middle = (start + stop) // 2
        return np.concatenate([self._failing(block, start, middle), self._failing(block, middle, stop)])

    def _forward(self, block: Records) -> Numbers:
        """The outputs of a block, one row per record; raises if the model does, or if its output has another shape."""
        model = self._model
        with model.evaluating(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = model.module(*[model.prepare(tensor) for tensor in block.inputs])
        found = outputs.double().cpu().numpy()
        found = found[:, None] if found.ndim == 1 else found
        if found.ndim != 2 or len(found) != len(block):
            raise InputError(f"outputs of shape {found.shape} for {len(block)} records")
        return np.asarray(found)

    def _grouped(self, measure: EvaluationMeasure, index: Places, rows: Places) -> Places:
        """The same cells in the part of each record's group; none for groups that are not declared."""
        if not measure.levels:
            return index
        named, numbers = self._groups[measure.column], {level: place for place, level in enumerate(measure.levels)}
        group = np.array([numbers.get(named[row], NO_CELL) for row in rows], dtype=np.int64)
        known = (index != NO_CELL) & (group != NO_CELL)[:, None]
        return np.where(known, index + group[:, None] * measure.size, NO_CELL)


def _filled(block: Records, stand_in: Records) -> Records:
    """The block with other records behind its own, so that it always has `BLOCK`: else its last record would show."""
    missing = stand_in.rows(len(block), BLOCK)
    if len(missing) == 0:
        return block
    inputs = (torch.cat(both) for both in zip(block.inputs, missing.inputs, strict=True))
    return Records(tuple(inputs), torch.cat([block.targets, missing.targets]))


def _replaced(block: Records, stand_in: Records, places: Places) -> Records:
    """The block with other records at these places."""
    rows = torch.from_numpy(places)
    inputs = [
        tensor.index_copy(0, rows, other[rows]) for tensor, other in zip(block.inputs, stand_in.inputs, strict=True)
    ]
    return Records(tuple(inputs), block.targets)


def _true_class(targets: Numbers, classes: int) -> tuple[Places, NDArray[np.bool_]]:
    """The class of each record, 0 where there is none, and whether there is one."""
    with np.errstate(invalid="ignore"):
        valid = (targets.shape[1] == 1) & (targets[:, 0] == np.round(targets[:, 0]))
        valid &= (targets[:, 0] >= 0) & (targets[:, 0] < classes)
    return np.where(valid, targets[:, 0], 0.0).astype(np.int64), valid


def _score_cells(measure: EvaluationMeasure, outputs: Numbers, targets: Numbers) -> tuple[Places, Numbers]:
    actual, valid = _true_class(targets, 2)
    with np.errstate(invalid="ignore"):
        scores = outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]
    bins = measure.bins
    place = np.searchsorted(measure.edges, scores)
    place = np.where(actual == 1, place, bins - 1 - place)  # class 0 is counted from the highest score down
    place = np.where(np.isnan(scores), 0, place)
    onwards = place[:, None] + np.arange(bins)
    index = np.where(valid[:, None] & (onwards < bins), actual[:, None] * bins + onwards, NO_CELL)
    return index, np.where(index == NO_CELL, 0.0, contribution(bins))


def _class_cells(measure: EvaluationMeasure, outputs: Numbers, targets: Numbers) -> tuple[Places, Numbers]:
    actual, valid = _true_class(targets, measure.classes)
    predicted = outputs.argmax(axis=1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).astype(np.int64)
    wrong = (actual + 1) % measure.classes
    predicted = np.where(np.isnan(outputs).any(axis=1), wrong, predicted)
    index = np.where(valid, actual * measure.classes + predicted, NO_CELL)[:, None]
    return index, np.where(index == NO_CELL, 0.0, 1.0)


def _error_cells(measure: EvaluationMeasure, outputs: Numbers, targets: Numbers) -> tuple[Places, Numbers]:
    target = targets[:, 0]
    valid = np.isfinite(target) & (targets.shape[1] == 1)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(outputs[:, 0] - target) / measure.bound
    error = np.where(np.isnan(error), 1.0, np.minimum(error, 1.0))
    parts = [np.ones_like(error), *(error if name == "mae" else error**2 for name in measure.metrics)]
    value = np.stack(parts, axis=1) * (BELOW_ONE / np.sqrt(len(parts)))
    index = np.where(valid[:, None], np.arange(len(parts)), NO_CELL)
    return index, np.where(index == NO_CELL, 0.0, value)


_KINDS = {SCORES: _score_cells, CLASSES: _class_cells, ERRORS: _error_cells}
