"""The page of a report: one HTML file without anything to load. Every text given to it is escaped here."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rpdp.report.style import DRAW, STYLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
"""The browser itself refuses to load anything from anywhere."""


@dataclass(frozen=True)
class Card:
    """A figure with its words. `name` is its id on the page."""

    name: str
    title: str
    caption: str
    figure: go.Figure


@dataclass(frozen=True)
class Column:
    """A column of a table: its head, and how it is set."""

    head: str
    words: bool = False


def page(title: str, body: Sequence[str]) -> str:
    """A whole document around parts that are HTML already; plotly is inside, once."""
    from plotly.offline import get_plotlyjs

    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f'<script id="plotly">{get_plotlyjs()}</script></head><body><main>',
            *body,
            f"</main><script>{DRAW}</script></body></html>\n",
        ]
    )


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph, with a class if it has one."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def heading(text: str, level: int = 2) -> str:
    """A heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def banner(text: str, kind: str) -> str:
    """A line that nobody should miss; `kind` is "warn" or "info"."""
    return f'<div class="banner {kind}">{escape(text)}</div>'


def tiles(numbers: Sequence[tuple[str, str]]) -> str:
    """The numbers of the head: what, and how much."""
    each = [f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for what, value in numbers]
    return f'<div class="tiles">{"".join(each)}</div>'


def definitions(entries: Sequence[tuple[str, str | Sequence[str]]]) -> str:
    """Terms and what is said of them: a text, or several as a list."""
    parts = []
    for term, said in entries:
        inner = (
            escape(said) if isinstance(said, str) else f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in said)}</ul>"
        )
        parts.append(f"<dt>{escape(term)}</dt><dd>{inner}</dd>")
    return f"<dl>{''.join(parts)}</dl>"


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    caption: str = "",
    alarms: frozenset[tuple[int, int]] = frozenset(),
    stack: bool = True,
) -> str:
    """A table, on a phone a list of cards if `stack`. `alarms` are the cells (row, column) that are wrong."""
    head = "".join(f"<th{_class(column.words)}>{escape(column.head)}</th>" for column in columns)
    lines = []
    for i, row in enumerate(rows):
        cells = [
            f'<td data-label="{escape(column.head)}"{_class(column.words, (i, j) in alarms)}>{escape(cell)}</td>'
            for j, (column, cell) in enumerate(zip(columns, row, strict=True))
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    kind = ' class="stack"' if stack else ""
    return f"<table{kind}>{above}<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def cards(shown: Sequence[Card]) -> str:
    """Figures side by side where there is room, else below each other."""
    return f'<div class="figures">{"".join(map(_card, shown))}</div>'


def _card(card: Card) -> str:
    height = int(card.figure.layout.height)
    data = card.figure.to_json().replace("<", "\\u003c")  # no name in it can end the script
    return (
        f'<figure><h3>{escape(card.title)}</h3><div id="{escape(card.name)}" style="height:{height}px"></div>'
        f"<figcaption>{escape(card.caption)}</figcaption></figure>"
        f'<script type="application/json" class="drawing" data-plot="{escape(card.name)}">{data}</script>'
    )


def _class(words: bool, alarm: bool = False) -> str:
    names = " ".join(name for name, on in (("words", words), ("alarm", alarm)) if on)
    return f' class="{names}"' if names else ""
