"""Columns that are known late are proposed as such: by name in public, by rows for their holder alone."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pytest

from rpdp.tables.late_columns import late_by_name, late_columns
from rpdp.tables.schema_proposal import Roles, late_features, propose_schema

TODAY = date(2024, 1, 1)


ROWS = range(200)


def days(shift: int, step: int = 1) -> list[str]:
    return [(TODAY + timedelta(days=shift + step * number)).isoformat() for number in ROWS]


def where(share: int, yes: str, no: str = "") -> list[str]:
    return [yes if number % share == 0 else no for number in ROWS]


TABLE = {
    "ADMITTED": days(0),
    "BORN": days(-20_000, 30),
    "LEFT": days(3),
    "LETTER": [day if number % 3 else "" for number, day in enumerate(days(0))],
    "REVIEW": [day if number % 3 else "" for number, day in enumerate(days(-200, 11))],
    "CAUSE": where(8, "stroke"),
    "WHERE_TO": where(4, "", "home"),
    "EARLY": where(8, "1", "0"),
    "STAY": [str(number if number % 4 else 1000 + number) for number in ROWS],
    "AGE": [str(20 + number % 70) for number in ROWS],
    "WARD": where(3, "b", "a"),
    "PRIOR_DEATHS": [str(number % 3) for number in ROWS],
    "DIED": where(5, "yes", "no"),
    "ILL": where(4, "yes", "no"),
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


def test_dates_and_values_that_give_the_target_away_are_found() -> None:
    """LETTER is on the day of admission, WARD and AGE tell little, and everything is later than a birth."""
    found = late_columns(TABLE, "ILL", [name for name in TABLE if name != "ILL"])
    assert found == {
        "LEFT": "is never before ADMITTED",
        "CAUSE": "goes with ILL = yes almost always where it is filled",
        "WHERE_TO": "goes with ILL = yes almost always where it is missing",
        "EARLY": "goes with ILL = yes almost always where it is “1”",
        "STAY": "goes with ILL = yes almost always where it is from 1040 to 1116",
        "DIED": "has a name of something that happens later",
    }


def test_a_common_value_and_few_rows_say_nothing() -> None:
    common = {"A": ["x"] * 60 + [""] * 40, "ILL": ["no"] * 60 + ["yes"] * 40}
    few = {"A": ["x"] * 19 + [""] * 81, "ILL": ["no"] * 19 + ["yes"] * 81}
    enough = {"A": ["x"] * 20 + [""] * 80, "ILL": ["no"] * 20 + ["yes"] * 80}
    assert late_columns(common, "ILL", ["A"]) == {"A": "goes with ILL = yes almost always where it is missing"}
    assert late_columns({**common, "A": ["x"] * 60 + [""] * 40}, "A", ["ILL"]) == {}
    assert late_columns(few, "ILL", ["A"]) == {}
    assert late_columns(enough, "ILL", ["A"]) == {"A": "goes with ILL = no almost always where it is filled"}


def test_the_schema_tells_what_names_say_and_nothing_of_rows() -> None:
    """It goes to all silos."""
    table, roles = pa.table(TABLE), Roles("ILL")
    lines = propose_schema(table, roles, "t.csv").splitlines()
    marked = [line.split(" = ")[0] for line in lines if "known only later?" in line]
    assert marked == ["DIED"]
    assert set(late_features(table, roles)) == {"LEFT", "EARLY", "STAY", "DIED"}  # the others are proposed as ignored
