"""What a record adds to a request: norm 1 at most for every measure, from that record alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rpdp.errors import InputError
from rpdp.federation.cells import NO_CELL
from rpdp.planning import MeasureSpec, Request
from rpdp.statistics import Columns, ColumnSource, NumberRange
from rpdp.statistics.axis import Axis
from rpdp.statistics.column_source import MOST_ENTRIES
from rpdp.statistics.measures import (
    CountMeasure,
    HistogramMeasure,
    Measure,
    MomentsMeasure,
    RunningMeasure,
    SumMeasure,
    read_measure,
)
from rpdp.statistics.score_counts import adding_up
from tests.statistics.odd_settings import changed
from tests.statistics.world import RANGES, World, axis, contributions, dense

AGE, PRESSURE = (NumberRange(*RANGES[name]) for name in ("age", "pressure"))
ONE = ("age",), (AGE,)
BOTH = ("age", "pressure"), (AGE, PRESSURE)
EVERY: list[Measure] = [
    CountMeasure(),
    SumMeasure("age", AGE),
    *(MomentsMeasure(*ONE, *powers) for powers in ((1, 1), (1, 2), (2, 2), (2, 4))),
    MomentsMeasure(*ONE, 1, 2, axis("sex")),
    MomentsMeasure(*BOTH, 2, 2),
    MomentsMeasure(*BOTH, 2, 4),
    HistogramMeasure((axis("age"),)),
    HistogramMeasure((axis("sex"), axis("type"))),
    RunningMeasure(axis("age")),
    RunningMeasure(axis("pressure", 1)),
]


def extreme_columns() -> Columns:
    """Values at, inside and far outside the ends of their ranges, missing ones, and levels nobody declared."""
    values = [40.0, 55.0, 70.0, 100.0, -1e9, 1e9, np.nan, 85.0]
    age, pressure = (each.ravel() for each in np.meshgrid(values, [90.0, 125.0, 160.0, 230.0, np.nan, 1e300]))
    sex = np.resize(["F", "M", "", "X"], len(age))
    kinds = np.resize(["a", "b", "c", "", "?"], len(age))
    return Columns.of_arrays(
        {"age": age, "pressure": pressure, "sex": sex, "type": kinds},
        ranges=RANGES,
        levels={"sex": ("F", "M"), "type": ("a", "b", "c")},
    )


@pytest.mark.parametrize("measure", EVERY, ids=repr)
def test_no_part_is_longer_than_1(measure: Measure) -> None:
    source = ColumnSource(extreme_columns())
    request = Request("everyone", (measure.spec,))
    matrix = dense(source.cells(request, None, np.arange(len(source))), request.size)
    assert np.linalg.norm(matrix, axis=1).max() <= 1.0 + 2**-30


@pytest.mark.parametrize("measure", [m for m in EVERY if isinstance(m, MomentsMeasure)], ids=repr)
def test_moments_use_most_of_the_norm(measure: MomentsMeasure) -> None:
    source = ColumnSource(extreme_columns())
    request = Request("everyone", (measure.spec,))
    matrix = dense(source.cells(request, None, np.arange(len(source))), request.size)
    assert np.linalg.norm(matrix, axis=1).max() >= 0.99


@pytest.mark.parametrize("measure", EVERY, ids=repr)
def test_a_measure_reads_what_it_wrote(measure: Measure) -> None:
    request = Request.of(Request("everyone", (measure.spec,)).plain())
    assert read_measure(request.measures[0]) == measure


def test_a_record_s_cells_do_not_depend_on_other_records_or_on_which_are_asked_for() -> None:
    world = World.make(40)
    request = Request("everyone", tuple(measure.spec for measure in EVERY))
    source = ColumnSource(world.columns)
    together = source.cells(request, None, np.arange(40))
    for row in (0, 17, 39):
        alone = source.cells(request, None, np.array([row]))
        assert np.array_equal(alone.index[0], together.index[row])
        assert np.array_equal(alone.value[0], together.value[row])


def test_parts_of_a_request_do_not_overlap() -> None:
    world = World.make(30)
    request = Request("everyone", (CountMeasure().spec, HistogramMeasure((axis("sex"),)).spec, CountMeasure().spec))
    total = contributions(world, request).sum(axis=0)
    assert total[0] == total[-1] == 30
    assert total[1:-1].sum() == 30


def test_missing_values_have_a_cell_of_their_own_or_add_nothing() -> None:
    columns = Columns.of_arrays({"age": [50.0, np.nan]}, ranges={"age": (40, 100)})
    source = ColumnSource(columns)
    for measure, cells in (
        (SumMeasure("age", AGE), [0, NO_CELL]),
        (HistogramMeasure((axis("age", 2),)), [0, 2]),
        (RunningMeasure(axis("age", 2)), [0, 2]),
    ):
        request = Request("everyone", (measure.spec,))
        assert source.cells(request, None, np.arange(2)).index[:, 0].tolist() == cells


def test_a_value_on_an_edge_belongs_to_the_bin_that_begins_there() -> None:
    edges = Axis("age", AGE, (40.0, 60.0, 100.0))
    assert edges.places(np.array([40.0, 59.999, 60.0, 100.0, 1e9, -5.0])).tolist() == [0, 0, 1, 1, 1, 0]


BAD: dict[str, tuple[MeasureSpec, str]] = {
    "unknown kind": (MeasureSpec("median", 1, {}), "not a measure known here"),
    "unknown setting": (MeasureSpec("count", 1, {"column": "age"}), "not its own"),
    "wrong size": (MeasureSpec("count", 2, {}), "not its own"),
    "missing setting": (MeasureSpec("sum", 1, {}), "KeyError"),
    "range that falls": (MeasureSpec("sum", 1, {"column": "age", "range": [100, 40]}), "must rise"),
    "text for a range": (MeasureSpec("sum", 1, {"column": "age", "range": "ab"}), "must be a number"),
    "degree": (
        MeasureSpec("moments", 6, {"columns": [{"column": "age", "range": [40, 100]}], "interest": 1, "degree": 5}),
        "degree",
    ),
    "truth value for a degree": (
        MeasureSpec(
            "moments", 2, {"columns": [{"column": "age", "range": [40.0, 100.0]}], "interest": 1, "degree": True}
        ),
        "degree",
    ),
    "edges inside the range": (
        MeasureSpec("histogram", 2, {"axes": [{"column": "age", "range": [40.0, 100.0], "edges": [50.0, 100.0]}]}),
        "must rise from 40 to 100",
    ),
    "no axis": (MeasureSpec("histogram", 1, {"axes": []}), "one axis or two"),
    "axis that is none": (MeasureSpec("histogram", 1, {"axes": [3]}), "an axis must map"),
    "number that no float can hold": (MeasureSpec("sum", 1, {"column": "age", "range": [0, 10**400]}), "OverflowError"),
    "edge that no float can hold": (
        MeasureSpec("histogram", 2, {"axes": [{"column": "age", "range": [40.0, 100.0], "edges": [40.0, 10**400]}]}),
        "OverflowError",
    ),
    "column that is a list": (MeasureSpec("sum", 1, {"column": ["age"], "range": [40.0, 100.0]}), "name of a column"),
    "running counts of levels": (
        MeasureSpec(
            "running", 3, {"axis": {"column": "sex", "levels": ["F", "M"], "has_other": True, "has_missing": True}}
        ),
        "have no order",
    ),
    "moments of levels": (
        MeasureSpec(
            "moments",
            2,
            {
                "columns": [{"column": "sex", "levels": ["F"], "has_other": True, "has_missing": True}],
                "interest": 1,
                "degree": 1,
            },
        ),
        "has levels",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_strange_measure_is_refused_from_its_text(name: str) -> None:
    spec, message = BAD[name]
    with pytest.raises(InputError, match=message):
        ColumnSource(World.make(10).columns).require(Request("everyone", (spec,)))


@pytest.mark.parametrize("measure", EVERY, ids=repr)
def test_whatever_a_server_writes_is_refused_in_words_or_keeps_the_norm(measure: Measure) -> None:
    """Refused as an `InputError`, from the text alone; any other error would leave by another way."""
    source, passed = ColumnSource(extreme_columns()), 0
    for values in changed(measure.spec.plain()):
        try:
            request = Request.of({"estimator": "everyone", "measures": [values]})
            source.require(request)
        except InputError:
            continue
        passed += 1
        matrix = dense(source.cells(request, None, np.arange(len(source))), request.size)
        assert np.linalg.norm(matrix, axis=1).max() <= 1.0 + 2**-30
    assert passed <= 20  # settings that mean another measure, or the same


def test_how_much_a_record_adds_is_limited() -> None:
    """Else a server could choose how long a silo works, and how much memory it takes."""
    source = ColumnSource(World.make(10).columns)
    running = RunningMeasure(axis("age", 64)).spec
    source.require(Request("everyone", (running,) * (MOST_ENTRIES // 64)))
    with pytest.raises(InputError, match="add to 1,025 cells, but to 1,024 at most"):
        source.require(Request("everyone", (*(running,) * (MOST_ENTRIES // 64), CountMeasure().spec)))
    with pytest.raises(InputError, match="must be between 1 and 512"):
        RunningMeasure(axis("age", 513))


@pytest.mark.parametrize("bins", [1, 2, 24])
def test_running_measures_add_up_to_the_records_below_each_edge(bins: int) -> None:
    columns = extreme_columns()
    request = Request("everyone", (RunningMeasure(axis("age", bins)).spec, CountMeasure().spec))
    source = ColumnSource(columns)
    sums = dense(source.cells(request, None, np.arange(len(source))), request.size).sum(axis=0)
    ages = np.clip(columns.values["age"], *RANGES["age"])
    counts = np.histogram(ages[~np.isnan(ages)], axis("age", bins).edges)[0]
    np.testing.assert_allclose(adding_up(bins) @ sums[:bins], np.cumsum(counts), rtol=1e-9)
    assert sums[bins] == np.isnan(ages).sum()


@pytest.mark.parametrize(
    ("column", "facts", "message"),
    [("aeg", AGE, "did you mean age"), ("age", NumberRange(0, 200), "is declared here as")],
)
def test_a_column_must_be_declared_alike_here(column: str, facts: NumberRange, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ColumnSource(World.make(10).columns).require(Request("everyone", (SumMeasure(column, facts).spec,)))


def test_a_function_of_one_record_is_a_column_with_a_public_range() -> None:
    def ratio(record: dict[str, Any]) -> float:
        return float(record["weight"] / record["height"] ** 2)

    records = [{"weight": 80, "height": 1.8}, {"weight": 500, "height": 1.0}, {"weight": 70}]
    columns = World.make(3).columns.with_function("bmi", ratio, records, (10, 60))
    request = Request("everyone", (SumMeasure("bmi", NumberRange(10, 60)).spec,))
    cells = ColumnSource(columns).cells(request, None, np.arange(3))
    assert cells.value[:, 0].tolist() == [80 / 1.8**2 / 60, 1.0, 0.0]
    with pytest.raises(InputError, match="must be new"):
        columns.with_function("bmi", ratio, records, (10, 60))


def test_columns_fit_together() -> None:
    with pytest.raises(InputError, match="different lengths"):
        Columns.of_arrays({"age": [1, 2], "bp": [1]}, ranges={"age": (0, 9), "bp": (0, 9)})
    with pytest.raises(InputError, match="needs a public range"):
        Columns.of_arrays({"age": [1, 2]})


@pytest.mark.parametrize("ends", [(0.0, 5e-324), (-1.7e308, 1.7e308), (1e308, 1.7e308), (1.0, 1.0 + 1e-15)])
def test_a_range_that_floats_cannot_scale_is_refused(ends: tuple[float, float]) -> None:
    """Else every value would count as missing, or as the middle, and nothing would say so."""
    with pytest.raises(InputError, match="too narrow or too wide"):
        NumberRange(*ends)
