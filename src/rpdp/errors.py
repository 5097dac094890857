"""The exceptions of rpdp: one small tree, messages that name the value and the way out.

Two kinds matter to a user. `InputError` means that something given is wrong and nothing was done; the command line
turns it into exit code 2. `PrivacyRefusal` means that the request is well formed but would break, or could break, a
promise to a record; nothing was released; exit code 3.
"""

from __future__ import annotations

from enum import StrEnum


class RpdpError(Exception):
    """Base of every exception that rpdp raises on purpose."""

    exit_code = 1


class InputError(RpdpError, ValueError):
    """An argument, a file or a setting is wrong. The message names it, its value and what is allowed."""

    exit_code = 2


class BudgetError(InputError):
    """A budget table cannot be trusted: wrong header, duplicate id, missing or impossible value."""


class PlanError(InputError):
    """A plan is malformed or does not fit the data it is applied to."""


class Reason(StrEnum):
    """Why a silo refuses, in the only words that a server hears of it; none depends on the content of a record."""

    POLICY = "policy"
    MEMBER = "member"
    MODEL = "model"
    RUN = "run"
    PLAN = "plan"
    ROUND = "round"
    SHAPE = "shape"
    VALUES = "values"
    HEAD = "head"
    OTHER_RUN = "other-run"
    CLOSED_RUN = "closed-run"
    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    VERSION = "version"
    BUSY = "busy"
    REFUSED = "refused"
    FAILED = "failed"


class PrivacyRefusal(RpdpError):
    """What was asked for would break, or could break, a promise; nothing was released.

    The message is for the silo, which may read everything; `reason` is what a server may hear.
    """

    exit_code = 3

    def __init__(self, message: str, reason: Reason = Reason.REFUSED) -> None:
        super().__init__(message)
        self.reason = reason


class TamperedPlanError(PrivacyRefusal):
    """A stored plan does not match its fingerprint: somebody or something changed it."""
