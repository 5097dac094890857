"""Every table and figure of the paper as a named suite of cells, run on real data and set beside the published numbers.

    rpdp reproduce all --profile quick
    rpdp reproduce render

A *cell* is one computation: settings in, numbers out, kept as JSON under a key of settings and code, so that an
interrupted suite goes on. A *suite* lists its cells for a profile and writes its section of docs/reproduction.md from
them. `work` computes, `sections` write; neither needs the other. Nothing here is covered by a promise: all runs are
seeded simulations.

Names load on first use (PEP 562): listing suites and writing the page need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.lazy import lazy_names

if TYPE_CHECKING:
    from rpdp_lab.reproduction.cell import PROFILES as PROFILES
    from rpdp_lab.reproduction.cell import Cell as Cell
    from rpdp_lab.reproduction.cell import CellResult as CellResult
    from rpdp_lab.reproduction.cell import Profile as Profile
    from rpdp_lab.reproduction.engine import run_cells as run_cells
    from rpdp_lab.reproduction.page import render as render
    from rpdp_lab.reproduction.suite import Suite as Suite
    from rpdp_lab.reproduction.suites import SUITES as SUITES
    from rpdp_lab.reproduction.suites import suites_named as suites_named

_HOME_OF = {
    "PROFILES": "rpdp_lab.reproduction.cell",
    "SUITES": "rpdp_lab.reproduction.suites",
    "Cell": "rpdp_lab.reproduction.cell",
    "CellResult": "rpdp_lab.reproduction.cell",
    "Profile": "rpdp_lab.reproduction.cell",
    "Suite": "rpdp_lab.reproduction.suite",
    "render": "rpdp_lab.reproduction.page",
    "run_cells": "rpdp_lab.reproduction.engine",
    "suites_named": "rpdp_lab.reproduction.suites",
}

__all__ = [*_HOME_OF]

__getattr__ = lazy_names(__name__, _HOME_OF)
