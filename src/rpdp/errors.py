"""The exceptions of rpdp: one tree, with messages that name the value and the way out.

The tree::

    RpdpError                        exit code 1: rpdp failed, or what it depends on did
    ├── InputError                   exit code 2: something given is wrong; nothing was done
    │   ├── BudgetError
    │   ├── PlanError
    │   ├── MissingExtraError        also a ModuleNotFoundError
    │   └── DataError                rpdp_lab.data.data_files
    ├── PrivacyRefusal               exit code 3: it would, or could, break a promise; nothing was released
    │   ├── TamperedPlanError
    │   └── LedgerInUseError         rpdp.ledger.store.writer_lock
    ├── GridTooLongError             rpdp.accounting.composition
    ├── UnsupportedModelError        rpdp.training.ghost.recorder
    │   └── StrayParametersError     rpdp.training.ghost.recorder
    ├── TooLate                      rpdp.federation.silo
    ├── WorkerError                  rpdp.federation.workers
    ├── StoppedRunError              rpdp.federation.run_stops
    ├── FleetError                   rpdp.deployment.flower.fleet_link
    │   ├── ServerAway               rpdp.deployment.flower.fleet_link
    │   ├── NodeUnknown              rpdp.deployment.flower.fleet_link
    │   ├── NodeRefused              rpdp.deployment.flower.fleet_link
    │   └── RunOver                  rpdp.deployment.flower.fleet_link
    └── Unreachable                  rpdp.deployment.agent.agent_client
    UserWarning
    ├── SlowKernelWarning            rpdp.training.kernel_choice
    │   └── OneRecordAtATimeWarning  rpdp.training.kernel_choice
    └── BadRecordWarning             rpdp.training.noisy_step

An exception without a module beside it is defined here. The command line turns each into one line on standard error
(one JSON object with `--json`) and its exit code.
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


class MissingExtraError(InputError, ModuleNotFoundError):
    """What was asked for needs a package that an extra of rpdp installs; the message says which extra."""

    def __init__(self, message: str, module: str) -> None:
        super().__init__(message)
        self.name = module


class Reason(StrEnum):
    """Why a silo refuses: all that a server learns of a refusal. No reason depends on the content of a record."""

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
    CANCELLED = "cancelled"
    CHARGED = "charged"
    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    VERSION = "version"
    BUSY = "busy"
    STORAGE = "storage"
    REFUSED = "refused"
    FAILED = "failed"


class PrivacyRefusal(RpdpError):
    """The request would break, or could break, a promise to a record; nothing was released.

    The message is for the silo, which may read everything. A server is sent only the `reason`.
    """

    exit_code = 3

    def __init__(self, message: str, reason: Reason = Reason.REFUSED) -> None:
        super().__init__(message)
        self.reason = reason


class TamperedPlanError(PrivacyRefusal):
    """A stored plan does not match its fingerprint: it was changed after it was written."""
