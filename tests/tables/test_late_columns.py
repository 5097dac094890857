"""Columns that are known late are proposed as such: by name in public, by rows for their holder alone."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pytest

from rpdp.tables.late_columns import late_by_name, late_columns
from rpdp.tables.schema_proposal import Roles, late_features, propose_schema

TODAY = date(2024, 1, 1)


def days(shift: int, step: int = 1) -> list[str]:
    return [(TODAY + timedelta(days=shift + step * number)).isoformat() for number in range(40)]


TABLE = {
    "ADMITTED": days(0),
    "BORN": days(-20_000, 30),
    "LEFT": days(3),
    "LETTER": ["" if number % 3 else day for number, day in enumerate(days(0))],
    "REVIEW": [day if number % 3 else "" for number, day in enumerate(days(-200, 11))],
    "CAUSE": ["stroke" if number % 4 == 0 else "" for number in range(40)],
    "WARD": ["a" if number % 3 else "b" for number in range(40)],
    "PRIOR_DEATHS": [str(number % 3) for number in range(40)],
    "DIED": ["yes" if number % 5 == 0 else "no" for number in range(40)],
    "ILL": ["yes" if number % 4 == 0 else "no" for number in range(40)],
}


@pytest.mark.parametrize(
    "name", ["DIED", "DateOfDeath", "discharge_day", "OUTCOME2", "LOS", "FU_DAYS", "ILLNESS_DAY", "30dReadmission"]
)
def test_names_of_later_things_are_found(name: str) -> None:
    assert late_by_name(name, "ILLNESS") is not None


@pytest.mark.parametrize(
    "name", ["AGE", "FUNCTION", "CLOSENESS", "PRIOR_DEATHS", "FamilyHistoryOfDeath", "GENDER", "LOSS", "Weekend"]
)
def test_other_names_are_not(name: str) -> None:
    assert late_by_name(name, "ILLNESS") is None


def test_dates_and_gaps_that_give_the_target_away_are_found() -> None:
    """LETTER is on the day of admission, WARD is always filled, and everything is later than a birth."""
    found = late_columns(TABLE, "ILL", [name for name in TABLE if name != "ILL"])
    assert found == {
        "LEFT": "is never before ADMITTED",
        "CAUSE": "is filled in almost only where ILL = yes",
        "DIED": "has a name of something that happens later",
    }


def test_a_common_value_and_few_rows_say_nothing() -> None:
    common = {"A": ["x"] * 38 + ["", ""], "ILL": ["no"] * 38 + ["yes"] * 2}
    few = {"A": ["x"] * 5 + [""] * 35, "ILL": ["no"] * 5 + ["yes"] * 35}
    assert late_columns(common, "ILL", ["A"]) == {}
    assert late_columns(few, "ILL", ["A"]) == {}


def test_the_schema_tells_what_names_say_and_nothing_of_rows() -> None:
    """It goes to all silos."""
    table, roles = pa.table(TABLE), Roles("ILL")
    lines = propose_schema(table, roles, "t.csv").splitlines()
    marked = [line.split(" = ")[0] for line in lines if "known only later?" in line]
    assert marked == ["DIED"]
    assert set(late_features(table, roles)) == {"LEFT", "DIED"}  # CAUSE has one value, so it is proposed as ignored
