"""Who acts on a ledger, and why: every steward action states both, in the chain. Neither leaves the silo.

The one exception is the reason for cancelling a run, which is public by definition.
"""

from __future__ import annotations

import os
import pwd

from rpdp.errors import InputError

_LONGEST = 500


def acting_user() -> str:
    """Return the name of the operating system's user whose process this is; its number if it has no name."""
    user = os.geteuid()
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def checked_actor(actor: str | None) -> str:
    """Return the name of who acts, by default the user of this process."""
    return acting_user() if actor is None else _plain("actor", actor.strip())


def checked_reason(what: str, reason: str, *, is_needed: bool) -> str:
    """Return the reason of an action; refused if there must be one and there is none.

    A withdrawal or a lowered budget needs none: nothing may stand in its way.
    """
    if not reason.strip():
        if is_needed:
            raise InputError(
                f"to {what} in a production ledger needs a reason, such as the new consent form; nothing was changed. "
                "It is kept with the action and stays in the silo"
            )
        return ""
    return _plain("reason", reason.strip())


def _plain(name: str, text: str) -> str:
    if not text or len(text) > _LONGEST or not text.isprintable():
        raise InputError(f"{name}={text[:40]!r} must be one line of 1 to {_LONGEST} characters")
    return text
