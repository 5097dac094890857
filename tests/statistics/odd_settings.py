"""Settings as a hostile server may write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ODD: tuple[Any, ...] = (
    *(None, True, "", "sex", [], {}, [[]], 0, -1, 1.0, 7, 1e308, -1e308, 5e-324, 10**400, [1e308, 1.7e308]),
    *([40.0], [100.0, 40.0], {"column": "age"}, [40.0, 100.0, 1e308], ["F", "F"], [None]),
)
"""What a server may write in the place of any setting."""


def changed(values: Any) -> Iterator[Any]:
    """Settings with one odd value in every place, or without it."""
    if isinstance(values, dict):
        for name, one in values.items():
            yield {key: each for key, each in values.items() if key != name}
            yield from ({**values, name: each} for each in (*ODD, *changed(one)))
        yield {**values, "more": 1}
    elif isinstance(values, list):
        for place, one in enumerate(values):
            yield from ([*values[:place], each, *values[place + 1 :]] for each in (*ODD, *changed(one)))
