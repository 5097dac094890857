"""Lazy public names (PEP 562): importing a package loads a module only when one of its names is first used."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing would double the time of `import rpdp`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module-level `__getattr__` for `package`; `homes` maps each public name to the module that defines it.

    A name whose optional packages are not installed raises `MissingExtraError`, which says what to install.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            from rpdp.extras import missing_extra

            needed = ("ledger",) if homes[name].startswith("rpdp.ledger") else ()
            raise missing_extra(f"{package}.{name}", error, needed) or error from None

    return load
