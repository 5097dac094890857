"""Labelled points in the ledger's protocol, at which the crash tests kill the process.

`reached` does nothing; the tests replace it. Every durable step has a point before and after it, so killing the process
at every point covers every place where the outcome can differ.
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
    "cancel: begun",
    "cancel: booked",
    "cancel: committed",
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

RARE_LABELS = ("upgrade: tables made", "upgrade: written")
"""In acts that a ledger sees once, if ever. They have crash tests of their own."""


def reached(label: str) -> None:
    """Mark that the process has reached this point."""
