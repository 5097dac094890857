"""One module per table or figure, with its settings, its work and its section of the page; beside them what they share.

Importing them loads no torch: work that trains imports it when it runs.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp_lab.reproduction.suites import (
    fairness,
    figure_2,
    figure_5,
    figure_6,
    figure_7,
    figure_8,
    figure_9,
    soundness,
    table_2,
    table_3,
    table_4,
    utility,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp_lab.reproduction.suite import Suite

SUITES: dict[str, Suite] = {
    module.SUITE.name: module.SUITE
    for module in (
        figure_2,
        figure_5,
        figure_6,
        table_2,
        figure_7,
        table_3,
        figure_8,
        figure_9,
        table_4,
        soundness,
        fairness,
        utility,
    )
}
"""In the order of the page."""


def suites_named(names: Sequence[str]) -> list[Suite]:
    """Suites by name; "all" is every one."""
    if "all" in names:
        return list(SUITES.values())
    for name in names:
        if name not in SUITES:
            close = get_close_matches(name, SUITES, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InputError(f"{name!r} is not a suite{hint} (there are {', '.join(SUITES)}, or all)")
    return [SUITES[name] for name in dict.fromkeys(names)]
