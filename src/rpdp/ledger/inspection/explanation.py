"""An explanation of one record in plain language: its budget, its runs, what is spent and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.renyi_filter import ORDERS
from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.ledger.inspection.account_chunks import Accounts, IndexedAction
from rpdp.ledger.inspection.carried_over import carried_over
from rpdp.ledger.store.record_keys import as_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.stewardship.actions import Action
    from rpdp.ledger.store.holds import Cancellation
    from rpdp.ledger.store.record_store import Chunk
    from rpdp.ledger.store.run_book import Admission


@dataclass(frozen=True)
class RunExplanation:
    """What one run took from a record.

    Attributes:
        run: The name of the run.
        admitted: The time of its admission.
        q: The probability of being drawn into a local step, or the weight in a run with a request; 0 if the record sat
            the run out.
        epsilon: The ε that was reserved, which counts as spent, also while it is held; 0 if it was returned. In a Rényi
            account, what this run alone costs at the plan's δ: that does not add up over runs.
        delta: The δ that was reserved, likewise.
        share: The share of the lifetime budget that was reserved.
        purpose: What the run was for.
        study: The study that it belonged to.
        rounds: The number of planned rounds.
        active_rounds: The number of rounds in which the record may be drawn.
        announced: The number of rounds announced so far.
        joined: The number of those rounds that the silo joined while the record was active.
        given_joined: The cost given that the silo joined this many rounds: for auditors, not part of the promise.
        state: "held", "committed", "cancelled" or "expired". What a cancelled or expired run held was returned.
        cancelled_by: Who cancelled it; None if nobody did. A steward is named as far as the ledger knows.
        reason: The public reason that a steward gave for it.
    """

    run: str
    admitted: str
    q: float
    epsilon: float
    delta: float
    rounds: int
    active_rounds: int
    announced: int
    joined: int
    given_joined: float
    state: str = "committed"
    share: float = 0.0
    purpose: str = "training"
    study: str = ""
    cancelled_by: str | None = None
    reason: str = ""

    __repr__ = counts_repr


@dataclass(frozen=True)
class Explanation:
    """Everything that the ledger knows about a record. What is spent and left is NaN for a Rényi account."""

    record: str
    hash: str
    first_epsilon: float
    first_delta: float
    epsilon: float
    delta: float
    spent_epsilon: float
    spent_delta: float
    left_epsilon: float
    left_delta: float
    account: str
    order: float
    share_used: float
    withdrawn: bool
    switched_off: bool
    changes: tuple[str, ...]
    runs: tuple[RunExplanation, ...]
    added: str = ""

    __repr__ = counts_repr

    @property
    def text(self) -> str:
        """The explanation in plain language."""
        lines = [
            f"Record {self.record} came with a lifetime budget of ε = {self.first_epsilon:.4g}, δ = "
            f"{self.first_delta:.3g}{self.added}.",
            *self.changes,
            *(_run_text(run, self._used) for run in self.runs),
            self._total,
        ]
        if self.withdrawn:
            lines.append(f"It has been withdrawn and is not drawn any more. What was {self._used} stays {self._used}.")
        elif self.switched_off:
            lines.append("Its budget is now below what was reserved, so it is no longer drawn.")
        else:
            lines.append(self._left)
        return "\n".join(lines)

    @property
    def _used(self) -> str:
        """What reserving means: a sum account spends ε; a Rényi account is a filter, of which a share is used."""
        return "spent" if self.account == "sums" else "used"

    @property
    def _total(self) -> str:
        if self.account == "sums":
            return (
                f"In total, ε = {self.spent_epsilon:.4g} and δ = {self.spent_delta:.3g} are spent of the budget in "
                f"force, ε = {self.epsilon:.4g} and δ = {self.delta:.3g}."
            )
        return (
            f"In total, {self.share_used:.1%} of its lifetime budget is used. The promise is ε = {self.epsilon:.4g} at "
            f"δ = {self.delta:.3g} for all runs together, kept by a Rényi account at order {self.order:.4g}; no part "
            "of that ε belongs to a single run."
        )

    @property
    def _left(self) -> str:
        if self.account == "sums":
            return f"ε = {self.left_epsilon:.4g} and δ = {self.left_delta:.3g} are left for further runs."
        return f"{max(0.0, 1.0 - self.share_used):.1%} of it is left for further runs."


def explanation_of(ledger: LedgerBase, record: str) -> Explanation:
    """Explain one record. Reads a few rows, whatever the size of the ledger."""
    return explanation_of_hash(ledger, ledger.key.record(record), record)


def explanation_of_hash(ledger: LedgerBase, hashed: NDArray[np.uint64], record: str) -> Explanation:
    """Explain the record with this hash; `record` is what the text calls it."""
    found = ledger.records.find(hashed)
    if found is None:
        raise InputError(
            f"there is no record {record!r} among the {len(ledger.records):,} of {ledger.files.database}; ids are "
            "compared exactly"
        )
    chunk, row = found
    about = [action for action in ledger.actions() if (action.hashes == hashed).all(axis=1).any()]
    accounts = Accounts(ledger, chunk, [IndexedAction(action) for action in about])
    first_epsilon, first_delta = ledger.records.budgets(chunk)
    return Explanation(
        record,
        as_bytes(hashed).hex(),
        float(first_epsilon[row]),
        float(first_delta[row]),
        float(accounts.epsilon[row]),
        float(accounts.delta[row]),
        float(accounts.spent_epsilon[row]),
        float(accounts.spent_delta[row]),
        float(accounts.left_epsilon[row]),
        float(accounts.left_delta[row]),
        "renyi" if accounts.order[row] else "sums",
        float(ORDERS[accounts.order[row]]),
        float(accounts.share_used[row]),
        bool(accounts.withdrawn[row]),
        bool(accounts.is_off[row]),
        (
            *carried_over(ledger, chunk, row, accounts),
            *(_change(action, int(np.flatnonzero((action.hashes == hashed).all(axis=1))[0])) for action in about),
        ),
        tuple(_run(ledger, admission, chunk, row, accounts) for admission in ledger.runs.admissions()),
        _added(ledger, chunk) + _enrolled(ledger, chunk, row),
    )


def _added(ledger: LedgerBase, chunk: Chunk) -> str:
    """When and by whom a record was added to a ledger that was there already."""
    for event in ledger.chain.events("add"):
        if event.seq == chunk.segment:
            facts = event.facts
            return f", added on {facts['at']}{_by(facts.get('actor'))}{_because(facts.get('reason'))}"
    return ""


def _enrolled(ledger: LedgerBase, chunk: Chunk, row: int) -> str:
    """When and by whom a record was given a Rényi account in place of a sum account."""
    for event in ledger.chain.events("enrol"):
        before, after = (ledger.records.orders(chunk, before=event.seq + late)[row] for late in (0, 1))
        if before != after:
            facts = event.facts
            acted = f"{_by(facts.get('actor'))}{_because(facts.get('reason'))}"
            return f", and was enrolled anew as a Rényi account on {facts['at']}{acted}"
    return ""


def _by(actor: str | None) -> str:
    """Who acted; actions of release 0.1 do not say."""
    return "" if actor is None else f" by {actor}"


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _change(action: Action, row: int) -> str:
    acted = f"{_by(action.actor)}{_because(action.reason)}"
    if action.kind == "withdraw":
        return f"On {action.at} it was withdrawn{acted}."
    if action.kind == "reconsent":
        return (
            f"On {action.at} its withdrawal was ended, with the steward's signature{acted}; runs that were admitted "
            "before stay without it."
        )
    parts = [
        f"{name} = {value:.4g}"
        for name, value in (("ε", float(action.epsilon[row])), ("δ", float(action.delta[row])))
        if not np.isnan(value)
    ]
    word = {"lower": "lowered", "raise": "raised, with the steward's signature,"}[action.kind]
    return f"On {action.at} its budget was {word} to {' and '.join(parts)}{acted}."


def _run(ledger: LedgerBase, admission: Admission, chunk: Chunk, row: int, accounts: Accounts) -> RunExplanation:
    members = ledger.runs.members
    classes = members.of(admission)
    index = members.index(admission.seq, chunk, classes)
    number = 0 if index is None else int(index[row])
    status, cancelled = ledger.runs.status_of(admission), ledger.runs.cancellation(admission.run)
    is_booked = number > 0 and not status.is_over
    q, active = float(classes.q[number]), int(classes.active[number])
    joined = sum(1 for round_number in status.joined if round_number <= active)
    public, budget = admission.public, float(accounts.lifetime()[0][row])
    cost, delta = float(classes.cost[number]), float(classes.delta[number]) or public.delta
    # Only weights have one price at every δ; a curve of training at an own δ would take seconds.
    curve = public.curve if public.request is None else public.curve_at(delta)
    alone = cost if classes.order[number] == 0 else curve.epsilon(q)
    return RunExplanation(
        admission.run,
        admission.at,
        q,
        alone if is_booked else 0.0,
        delta if is_booked else 0.0,
        status.rounds,
        active,
        status.announced,
        joined,
        curve.given(joined).epsilon(q) if is_booked else 0.0,
        status.state,
        cost / budget if is_booked and budget > 0.0 else 0.0,
        public.purpose,
        public.study,
        None if cancelled is None else _ended_by(cancelled),
        "" if cancelled is None else cancelled.reason,
    )


def _ended_by(cancelled: Cancellation) -> str:
    return f"the steward {cancelled.actor}" if cancelled.actor is not None else f"the {cancelled.by}"


def _run_text(run: RunExplanation, used: str) -> str:
    if run.state in ("cancelled", "expired"):
        ended = f"was cancelled by {run.cancelled_by}" if run.state == "cancelled" else "expired"
        return (
            f"Run {run.run} ({_what_for(run)}{run.admitted}): it {ended} before its first round{_because(run.reason)}. "
            "All that it held was returned."
        )
    if run.q == 0.0:
        return f"Run {run.run} ({_what_for(run)}{run.admitted}): it sat out and {used} nothing."
    rounds = f"{run.announced} of {run.rounds} rounds announced, {run.joined} of them joined while it was active"
    word = f"Reserved, and therefore {used}" if run.state == "committed" else "Held, and therefore taken"
    how = "drawn into each local step with probability" if run.purpose == "training" else "in each release with weight"
    early = "" if run.active_rounds == run.rounds else f", active in the first {run.active_rounds}"
    return (
        f"Run {run.run} ({_what_for(run)}{run.admitted}): {how} {run.q:.4g}. "
        f"{word}: {run.share:.1%} of its lifetime budget; this run alone costs ε = {run.epsilon:.4g} at δ = "
        f"{run.delta:.3g} ({rounds}{early}). Given exactly these joined rounds, the cost is ε = {run.given_joined:.4g}."
    )


def _what_for(run: RunExplanation) -> str:
    study = f" for study {run.study}" if run.study else ""
    return f"{run.purpose}{study}, "
