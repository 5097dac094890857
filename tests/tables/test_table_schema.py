"""A schema turns each row into numbers by that row and public declarations alone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpdp.errors import InputError
from rpdp.tables import TableSchema
from rpdp.tables.table_columns import Reading
from tests.tables.schemas import ANN, BOB, EVE, LEFT, VALUES, patients, schema

if TYPE_CHECKING:
    from pathlib import Path


class TestFeatures:
    def test_names_in_the_order_of_declaration(self) -> None:
        assert schema().feature_names == (
            *("AGE", "AGE missing", "PRESSURE", "SEX = F", "SEX = M", "SEX = other"),
            *("TYPE = a", "TYPE = b", "TYPE = 3", "TYPE = other", "TYPE missing", "ASPIRIN", "ASPIRIN missing", "SEEN"),
        )

    def test_every_feature_says_what_its_values_mean(self) -> None:
        """The way back, from declarations alone."""
        meanings = dict(zip(schema().feature_names, schema().feature_meanings, strict=True))
        assert meanings["AGE"] == "−1 at 20, 1 at 100"
        assert meanings["AGE missing"] == "1 if missing, which counts as 60"
        assert meanings["TYPE = b"] == "1 if it is b"
        assert meanings["TYPE = other"] == "1 if it is another value"
        assert meanings["TYPE missing"] == "1 if missing"
        assert meanings["ASPIRIN"] == "1 if yes, 0 if no, ½ otherwise"
        assert meanings["SEEN"] == "−1 at 1991-01-01, 1 at 1996-12-31"
        columns = {
            "SEX": {"kind": "category", "levels": ["F", "M"], "base": "M"},
            "OK": {"kind": "yes_no", "yes": "J", "no": "N"},
        }
        assert schema(columns=columns).feature_meanings == (
            "1 if it is F; all 0: M",
            "1 if it is another value",
            "1 if j, 0 if n, ½ otherwise",
        )

    def test_values_as_declared(self) -> None:
        row = schema().encode(patients(ANN)).features[0]
        assert row[:-1].tolist() == [0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0]
        assert row[-1] == pytest.approx(0.0, abs=1e-3)

    def test_values_not_as_declared(self) -> None:
        found = schema().encode(patients(BOB))
        assert found.features[0].tolist() == [0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0.5, 1, -1]
        readings = found.survey.readings
        assert readings["AGE"][Reading.MISSING] == 1
        assert readings["PRESSURE"][Reading.CLIPPED] == readings["SEEN"][Reading.CLIPPED] == 1
        assert readings["SEX"][Reading.UNKNOWN] == 1

    def test_values_that_cannot_be_read(self) -> None:
        found = schema().encode(patients(EVE))
        assert found.features[0].tolist() == [0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]
        readings = found.survey.readings
        assert readings["AGE"][Reading.UNREADABLE] == readings["SEEN"][Reading.UNREADABLE] == 1
        assert readings["PRESSURE"][Reading.MISSING] == 1

    def test_the_base_of_a_category_has_no_feature(self) -> None:
        columns = {"SEX": {"kind": "category", "levels": ["F", "M"], "base": "M", "missing": True}}
        found = schema(columns=columns)
        assert found.feature_names == ("SEX = F", "SEX = other", "SEX missing")
        rows = [(name, 1, 1, sex, *ANN[4:]) for name, sex in zip("abcd", ["F", "M", "X", ""], strict=True)]
        assert found.encode(patients(*rows)).features.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
        with pytest.raises(InputError, match=r"columns.SEX.base='Q' must be one of the levels: F, M"):
            schema(columns={"SEX": {**columns["SEX"], "base": "Q"}})

    def test_only_kept_rows(self) -> None:
        found = schema().encode(patients(ANN, LEFT, EVE))
        assert found.ids.tolist() == ["ann", "eve"]
        assert (found.survey.rows, found.survey.kept) == (3, 2)
        assert found.targets.tolist() == [1, 1]

    def test_rows_in_which_a_column_is_not_missing(self) -> None:
        found = schema(keep={"AGE": True}).encode(patients(ANN, BOB))
        assert found.ids.tolist() == ["ann"]

    def test_frames_with_types_give_the_same_features(self) -> None:
        texts = schema().encode(patients(ANN, BOB))
        typed = pa.table(
            {
                "PATIENT": pa.array(["ann", "bob"]).dictionary_encode(),
                "AGE": [60.0, None],
                "PRESSURE": [160, 400],
                "SEX": ["F", "X"],
                "TYPE": ["a", "3"],
                "ASPIRIN": [True, None],
                "SEEN": pa.array([8766, 7429], pa.date32()),
                "OUTCOME": [1.0, 4.0],
            }
        )
        given = schema().encode(typed)
        assert given.features.tolist() == texts.features.tolist()
        assert given.targets.tolist() == texts.targets.tolist()


cells = st.sampled_from(["", "NA", "F", "M", "a", "3", "50", "1e9", "-1", "Y", "1992-02-02", "x", "nan", "inf", "٣"])
rows = st.lists(st.tuples(cells, cells, cells, cells, cells, cells, cells, st.sampled_from([1, 2, 3, 4])), max_size=6)


class TestPurity:
    """What other rows hold has no influence on a row: the promise covers the transformation."""

    @given(rows)
    @settings(max_examples=60, deadline=None)
    def test_a_row_is_encoded_alike_in_every_table(self, others: list[tuple[Any, ...]]) -> None:
        table = patients(ANN, *((f"r{number}", *row) for number, row in enumerate(others)))
        together = schema().encode(table)
        for place in range(len(table)):
            alone = schema().encode(table.slice(place, 1))
            assert alone.features[0].tolist() == together.features[place].tolist()
            assert alone.targets[0] == together.targets[place]
            assert alone.is_test[0] == together.is_test[place]
        assert np.abs(together.features).max() <= 1.0

    def test_the_check_would_find_a_statistic_of_the_table(self) -> None:
        table = patients(ANN, BOB)
        standardised = [
            schema().encode(part).features - schema().encode(part).features.mean(0) for part in (table, table[:1])
        ]
        assert standardised[0][0].tolist() != standardised[1][0].tolist()


class TestSplit:
    def test_a_keyed_hash_takes_about_the_share(self) -> None:
        # 4,000 ids, share 0.25: the count has standard deviation 27; a false alarm at 5 of them: 6e-7.
        table = patients(*((f"p{number}", *ANN[1:]) for number in range(4000)))
        found = schema().encode(table)
        assert abs(int(found.is_test.sum()) - 1000) < 137
        assert (schema().encode(table, seed=1).is_test != found.is_test).any()
        assert (schema(split={"test_share": 0.25, "key": "autumn"}).encode(table).is_test != found.is_test).any()

    def test_all_records_of_a_person_are_on_one_side(self) -> None:
        table = patients(*((f"p{number}", number % 50, *ANN[2:]) for number in range(500)))
        columns = {name: each for name, each in VALUES["columns"].items() if name != "AGE"}
        found = schema(subject="AGE", columns=columns).encode(table)
        assert found.subjects is not None
        sides = set(zip(found.subjects.tolist(), found.is_test.tolist(), strict=True))
        assert len(sides) == 50
        assert 0 < found.is_test.mean() < 1

    def test_a_column(self) -> None:
        table = patients(ANN, BOB)
        assert schema(split={"column": "COMMENT", "test": "late"}).encode(table).is_test.tolist() == [False, True]

    @pytest.mark.parametrize("split", [{}, {"column": "A"}, {"test": "x"}, {"test_share": 0.1, "column": "A"}])
    def test_one_way(self, split: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="split needs either"):
            schema(split=split)


class TestTargets:
    def test_regression(self) -> None:
        target = {"kind": "regression", "column": "OUTCOME", "range": [0, 4]}
        assert schema(target=target).encode(patients(ANN, BOB)).targets.tolist() == [-0.5, 1.0]

    def test_labels(self) -> None:
        columns = {"AGE": VALUES["columns"]["AGE"]}
        target = {"kind": "multi_label", "columns": ["SEX", "ASPIRIN"], "yes": ["F", "Y"], "no": ["M", "no"]}
        found = schema(target=target, columns=columns).encode(patients(ANN, EVE))
        assert found.targets.tolist() == [[1, 1], [0, 0]]

    @pytest.mark.parametrize(
        ("time", "event", "expected"),
        [
            *((0, "Y", [0, 1]), (1, "Y", [0, 1]), (2, "Y", [1, 1]), (7, "Y", [1, 1]), (30, "Y", [2, 1])),
            *((31, "Y", [3, 0]), (0, "N", [0, 0]), (1, "N", [1, 0]), (6.9, "N", [1, 0]), (99, "N", [3, 0])),
        ],
    )
    def test_survival(self, time: float, event: str, expected: list[int]) -> None:
        target = {"kind": "survival", "time": "AGE", "event": "ASPIRIN", "edges": [1, 7, 30]}
        columns = {"SEX": VALUES["columns"]["SEX"]}
        table = patients(("x", time, *ANN[2:5], event, *ANN[6:]))
        assert schema(target=target, columns=columns).encode(table).targets.tolist() == [expected]

    def test_a_row_without_a_target_is_named(self) -> None:
        with pytest.raises(InputError, match=r"1 of 2 rows have no target, the first with OUTCOME = '9'.*one of 3, 4"):
            TableSchema.of({key: each for key, each in VALUES.items() if key != "keep"}).encode(patients(ANN, LEFT))


class TestFingerprint:
    def test_it_covers_whatever_decides_on_numbers(self) -> None:
        columns = VALUES["columns"]
        turned = dict(reversed(columns.items()))
        wider = {**columns, "AGE": {**columns["AGE"], "range": [20, 101]}}
        filled = {**columns, "AGE": {**columns["AGE"], "missing": 61}}
        levels = {**columns, "SEX": {"kind": "category", "levels": ["M", "F"]}}
        made = [
            schema(),
            *(schema(columns=each) for each in (turned, wider, filled, levels)),
            schema(target={**VALUES["target"], "classes": {"ill": [1, 2], "well": [3, 4]}}),
            schema(target={**VALUES["target"], "classes": {"well": [4], "ill": [1, 2, 3]}}),
            schema(missing=["NA"]),
            schema(keep={"OUTCOME": [1, 2, 3]}),
        ]
        for one, other in itertools.combinations(made, 2):
            assert one.fingerprint != other.fingerprint

    def test_it_leaves_out_what_each_silo_calls_its_records(self) -> None:
        ignored = {**VALUES["columns"], "NOTES": {"kind": "ignore"}}
        for same in (
            schema(record="ID"),
            schema(subject="NAME"),
            schema(columns=ignored),
            schema(split={"test_share": 0}),
        ):
            assert same.fingerprint == schema().fingerprint

    def test_it_is_stable(self) -> None:
        assert schema().fingerprint == "9051575d86c8863cb9ffcafc45ab9cc5ace1540158b056c420cd4f4fec139de8"


class TestErrors:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"colums": {}}, "colums is not part of a schema; did you mean columns"),
            ({"columns": {}}, "columns must have one line for each column"),
            ({"columns": {"A": {"kind": "numbr", "range": [0, 1]}}}, "columns.A.kind='numbr'.*did you mean number"),
            ({"columns": {"A": {"kind": "number"}}}, "columns.A.range is missing: the public range"),
            ({"columns": {"A": {"kind": "number", "range": [3, 1]}}}, "columns.A.range=.* must rise"),
            ({"columns": {"A": {"kind": "number", "range": [0, 1], "missing": 9}}}, "columns.A.missing must lie in"),
            ({"columns": {"A": {"kind": "yes_no", "yes": "N"}}}, "columns.A.yes and no both contain 'n'"),
            ({"columns": {"A": {"kind": "ignore"}}}, "no column of features"),
            ({"columns": {"OUTCOME": {"kind": "number", "range": [0, 1]}}}, "is the target of the table and must not"),
            ({"target": {"kind": "classification", "column": "A", "classes": ["x"]}}, "two or more classes"),
            ({"target": {"kind": "survival", "time": "A", "event": "B", "edges": [7, 1]}}, "edges=.* must rise"),
            ({"target": {"column": "OUTCOME"}}, "must say its kind: classification, regression"),
            ({"split": {"test_share": 1.0}}, "at least 0 and below 1"),
        ],
    )
    def test_schemas(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            schema(**changes)

    def test_a_missing_column(self) -> None:
        table = patients(ANN).rename_columns(["PATIENT", "age", *patients(ANN).column_names[2:]])
        with pytest.raises(InputError, match="no column 'AGE'; did you mean age"):
            schema().encode(table)

    def test_ids(self) -> None:
        with pytest.raises(InputError, match="1 ids occur more than once, the first is 'ann'"):
            schema().encode(patients(ANN, ANN))
        with pytest.raises(InputError, match="1 of 2 rows have no value; every record needs one"):
            schema().encode(patients(ANN, ("", *ANN[1:])))

    def test_nothing_kept(self) -> None:
        with pytest.raises(InputError, match="none of 1 rows is left"):
            schema().encode(patients(LEFT))

    def test_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "schema.toml"
        path.write_text("[columns]\nA = 3", encoding="utf-8")
        with pytest.raises(InputError, match=r"schema.toml: the section \[target\] is missing"):
            TableSchema.read(path)


def test_survey_and_table_show_counts_only() -> None:
    found = schema().encode(patients(ANN, BOB))
    assert "ann" not in repr(found)
    remarks = found.survey.remarks()
    assert (True, "PRESSURE: 1 of 2 values lie outside the range", "declare a wider range, from knowledge") in remarks
    assert (False, "AGE: 1 of 2 values are missing", "") in remarks
