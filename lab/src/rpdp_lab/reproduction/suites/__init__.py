"""All suites, in the order of the page."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp_lab.reproduction.suites import by_class, central, curves, figure_8, soundness, utility

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp_lab.reproduction.suite import Suite

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        curves.FIGURE_2,
        curves.FIGURE_5_SUITE,
        curves.FIGURE_6,
        central.TABLE_2,
        central.FIGURE_7,
        central.TABLE_3_SUITE,
        figure_8.SUITE,
        by_class.FIGURE_9,
        by_class.TABLE_4,
        soundness.SUITE,
        by_class.FAIRNESS,
        utility.SUITE,
    )
}


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
