"""Pages from Jinja2 templates: one HTML file that loads nothing from anywhere.

The templates escape every text. Only `Markup`, which another template has rendered, goes into a page as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rpdp.figures import draw, style_sheet
from rpdp.private_files import OWNER_ONLY, private_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rpdp.figures import Figure

ANYBODY = 0o644
"""The mode of a page that holds nothing private."""


class Alarm(str):
    """A cell of a table that must not be missed."""

    __slots__ = ()


@dataclass(frozen=True)
class Column:
    """A column of a table: its head, and whether its cells are text rather than numbers."""

    head: str
    is_text: bool = False


@dataclass(frozen=True)
class Table:
    """A table; `stack` turns it into a list of cards on a phone."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    stack: bool = True

    def cells(self, row: Sequence[str]) -> Iterator[tuple[Column, str]]:
        """The cells of a row, each with its column."""
        return zip(self.columns, row, strict=True)


@dataclass(frozen=True)
class Card:
    """A figure with its title and caption; `name` is its id on the page."""

    name: str
    title: str
    caption: str
    figure: Figure


def render(template: str, **values: Any) -> Markup:
    """The HTML that a template makes of these values."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 the template escapes


def write_html(path: Path, template: str, *, mode: int = OWNER_ONLY, **values: Any) -> Path:
    """Render a whole page into a file; missing directories are made."""
    html = render(template, **values)
    path.parent.mkdir(parents=True, exist_ok=True)
    with private_file(path, overwrite=True, mode=mode) as file:
        file.write(html.encode())
    return path


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rpdp.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["g"] = lambda value: f"{value:g}"
    environment.filters["thousands"] = lambda value: f"{value:,}"
    environment.tests["alarm"] = lambda cell: isinstance(cell, Alarm)
    environment.globals["draw"] = draw
    environment.globals["figure_style"] = style_sheet
    return environment
