"""Consent in tables: CSV and REDCap's exports, every line named that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rpdp.consent import ConsentMap, read_consents
from rpdp.errors import InputError

from .made import MAP, NOW, the_map, written

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "record_id,consent,consent_date,consent_status,consent_until\n"
BOXES = "record_id,consent___1,consent___2,consent___0,consent_date,consent_status,consent_until\n"


def decided(directory: Path, text: str) -> dict[str, tuple[str, float | None]]:
    found = read_consents(written(directory, text, "consents.csv"), the_map(directory), NOW)
    return {one.person: (one.kind, one.choice.epsilon if one.choice else None) for one in found.decisions.latest}


def test_lines_are_statements(tmp_path: Path) -> None:
    text = (
        HEADER + 'p1,1,2026-05-03,1,\n"p,2",2,2026-05-03 10:30,1,2027-01-01\n\np3,1,2026-05-03,0,\np4,1,,1,2026-05-31\n'
    )
    assert decided(tmp_path, text) == {
        "p1": ("allows", 2.0),
        "p,2": ("allows", 0.5),
        "p3": ("ended", None),
        "p4": ("ended", None),
    }


def test_redcaps_checkboxes(tmp_path: Path) -> None:
    text = BOXES + "p1,1,0,0,2026-05-03,1,\np2,0,1,,2026-05-03,1,\np3,0,0,1,2026-05-03,1,\n"
    assert decided(tmp_path, text) == {"p1": ("allows", 2.0), "p2": ("allows", 0.5), "p3": ("ended", None)}


def test_the_latest_line_counts_and_the_hour_that_comes_twice_is_a_tie(tmp_path: Path) -> None:
    text = HEADER + "p,1,2025-10-26 01:59,1,\np,2,2025-10-26 03:00,1,\n"
    assert decided(tmp_path, text) == {"p": ("allows", 0.5)}
    with pytest.raises(InputError, match=r"line 2 and line 3|line 3 and line 2"):  # the clock went back at 3 to 2
        decided(tmp_path, HEADER + "p,1,2025-10-26 02:30,1,\np,2,2025-10-26 02:45,1,\n")


WRONG = {
    "an unknown choice": ("p,7,2026-05-03,1,\n", "line 3: the choice '7' is not in"),
    "no choice": ("p,,2026-05-03,1,\n", "line 3: the choice '' is not in"),
    "an unknown status": ("p,1,2026-05-03,perhaps,\n", "line 3: the status 'perhaps' is neither"),
    "a date of the country": ("p,1,03.05.2026,1,\n", "line 3: '03.05.2026' is not a date"),
    "a day that is none": ("p,1,2026-02-30,1,\n", "line 3: '2026-02-30' is no date"),
    "nobody": (",1,2026-05-03,1,\n", "line 3: the person is ''"),
    "too few cells": ("p,1\n", "line 3: it has 2 cells, and the header 5"),
    "a quote that is open": ('"p,1,2026-05-03,1,\n', "line 3: not CSV"),
    "the person above, on the same day": ("ok,2,2026-05-03,1,\n", "line 2 and line 3"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_the_line(tmp_path: Path, what: str) -> None:
    line, said = WRONG[what]
    with pytest.raises(InputError, match=said):
        decided(tmp_path, f"{HEADER}ok,1,2026-05-03,1,\n{line}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no column 'record_id'"),
        (HEADER, "no line of consent"),
        (HEADER.replace("consent_until", "consent"), "'consent' is there more than once"),
        (BOXES + "p1,1,1,0,2026-05-03,1,\n", "line 2: several choices are ticked: 1, 2"),
        (BOXES + "p1,x,1,0,2026-05-03,1,\n", "line 2: consent___1='x' must be 0 or 1"),
    ],
)
def test_tables_that_are_wrong_as_a_whole(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        decided(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format = 1", "format = 2", "format must be 1"),
        ("format = 1", "formatt = 1\nformat = 1", "formatt is not a setting"),
        ("Europe/Berlin", "Berlin", "time_zone='Berlin' is not known"),
        ("epsilon = 2.0", "epsilon = 0.0", "epsilon=0 must lie between"),
        ("epsilon = 2.0", 'epsilon = "2"', "must be numbers"),
        ("epsilon = 2.0", "epsilon = nan", "epsilon=nan must lie between"),
        ("delta = 5e-4", "delta = 1.0", "delta=1 between 0 and 1"),
        ('other_codes = ["urn:example:choices|newsletter"]', 'other_codes = ["urn:example:choices|tiny"]', "is in"),
        ('scope = ["http', 'scopes = ["http', "fhir.scope is missing"),
        ('active = ["1"]', 'active = ["0"]', "table.status goes with"),
        ('ledger_id = "subject"', 'ledger_id = "patient"', "ledger_id='patient' must be one of"),
        ("VERSION", "R4", "fhir.version='R4' must be one of"),
    ],
)
def test_a_map_is_checked_when_it_is_read(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in MAP
    path = written(tmp_path, MAP.replace(old, new, 1).replace("VERSION", "R4B"), "map.toml")
    with pytest.raises(InputError, match=said):
        ConsentMap.read(path)


def test_a_map_reads_what_it_describes_only(tmp_path: Path) -> None:
    text = MAP.replace("VERSION", "R4B")
    without = ConsentMap.read(written(tmp_path, text[: text.index("[fhir]")], "map.toml"))
    for name, said in (("a.csv", r"no \[table\]"), ("a.json", r"no \[fhir\]")):
        with pytest.raises(InputError, match=said):
            read_consents(written(tmp_path, "{}", name), without, NOW)
