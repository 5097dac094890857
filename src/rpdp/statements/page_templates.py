"""Pages from Jinja2 templates: every text is escaped, nothing is loaded from anywhere."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from rpdp.statements.odds_words import CHANCE

if TYPE_CHECKING:
    from rpdp.statements.statement_words import Catalogue


def render_page(template: str, words: Catalogue, **values: Any) -> str:
    """The page that a template makes, in a language."""
    return _environment().get_template(template).render(t=words, **values)


def percent(share: float, *, up: bool) -> str:
    """A share in whole per cent: what is used is rounded up, what is left down."""
    exact = round(100.0 * share, 9)  # 0.07 * 100 is not 7
    return str(math.ceil(exact) if up else math.floor(exact))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rpdp.statements"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["used_percent"] = lambda share: percent(share, up=True)
    environment.filters["left_percent"] = lambda share: percent(share, up=False)
    environment.globals["CHANCE"] = CHANCE
    return environment
