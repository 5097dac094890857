"""Labelled points of the ledger's protocol. They do nothing; the crash tests replace `reached` and kill there.

Every durable step has a point before and after it, so "killed at every point" means at every place where the outcome
can differ.
"""

from __future__ import annotations

LABELS = (
    "create: built",
    "create: in place",
    "reserve: begun",
    "reserve: booked",
    "reserve: committed",
    "charge: begun",
    "charge: coin drawn",
    "charge: marked",
    "charge: committed",
    "charge: head noted",
    "store: begun",
    "store: written",
    "store: committed",
    "inbox: begun",
    "inbox: in place",
    "prune: begun",
    "prune: written",
    "prune: committed",
    "actions: booked",
    "actions: removed",
)


def reached(label: str) -> None:
    """The process has come to this point."""
