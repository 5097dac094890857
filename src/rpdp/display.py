"""What objects show at a prompt and in a notebook: public facts and counts, never ids, budgets, draws or records.

An object that is printed ends up in logs and shared notebooks, so `repr` must not print what a silo keeps to itself.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def counts_repr(self: Any) -> str:
    """A `__repr__` for dataclasses: whole numbers, and the sizes of what the other fields hold.

    >>> import numpy as np
    >>> from rpdp.budgets import RecordBudgets
    >>> RecordBudgets(epsilon=np.array([0.5, 8.0]), delta=None)
    RecordBudgets(epsilon[2])
    """
    shown = [_counted(field.name, getattr(self, field.name)) for field in fields(self) if field.repr]
    return f"{type(self).__name__}({', '.join(filter(None, shown))})"


def _counted(name: str, value: object) -> str:
    if isinstance(value, int):
        return f"{name}={value}"
    if isinstance(value, str | bytes):
        return ""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):  # of an array or a tensor
        return f"{name}[{'×'.join(map(str, shape))}]"
    return f"{name}[{len(value)}]" if isinstance(value, Sized) else ""


def html_table(title: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """A small table for `_repr_html_`; every text is escaped."""
    from markupsafe import Markup

    def line(cells: Sequence[object], tag: str) -> Markup:
        cell = Markup(f'<{tag} style="text-align:left">{{}}</{tag}>')  # noqa: S704 the tag is th or td
        return Markup("<tr>{}</tr>").format(Markup("").join(cell.format(each) for each in cells))

    body = Markup("").join(line(row, "td") for row in rows)
    above = line(head, "th") if head else ""
    caption = Markup('<caption style="text-align:left">{}</caption>').format(title)
    return str(Markup("<table>{}{}{}</table>").format(caption, above, body))
