"""Bugs of admission in two phases: holds, their commit, cancellation and expiry."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FILE = "tests/ledger/test_holds.py::"
_UPGRADE = "tests/ledger/test_format_upgrade.py::"
_LEDGER = f"{_FILE}TestLedgerHolds::"
_MEMORY = f"{_FILE}TestMemoryHolds::"
_PHASES = "tests/deployment/agent/test_two_phases.py::"
_PRODUCTION = "tests/federation/test_production.py::"

HOLDS = (
    # Ledgers
    Mutant(
        "a-run-that-has-begun-is-cancelled",
        "rule 10",
        "ledger/store/run_book.py",
        "        if progress.announced:\n            raise refuse_charged(run, progress.announced)\n",
        "",
        (f"{_LEDGER}test_after_the_first_charge_nothing_is_cancelled_or_expires",),
    ),
    Mutant(
        "a-run-that-has-begun-is-cancelled-in-memory",
        "rule 10",
        "ledger/memory.py",
        '        if held.state != "held":\n            raise refuse_charged(run, held.announced)\n',
        "",
        (f"{_MEMORY}test_after_the_first_charge_nothing_is_cancelled_or_expires",),
    ),
    Mutant(
        "cancelled-run-returns",
        "section 8",
        "ledger/store/run_book.py",
        "            cancelled = self.cancellation(run)\n"
        "            if cancelled is not None:\n"
        "                raise refuse_cancelled(run, cancelled.state)\n",
        "",
        (f"{_LEDGER}test_a_cancelled_run_never_returns",),
    ),
    Mutant(
        "cancelled-run-returns-in-memory",
        "section 8",
        "ledger/memory.py",
        "        if self._runs[run].is_over:\n            raise refuse_cancelled(run, self._runs[run].state)\n",
        "",
        (f"{_MEMORY}test_a_cancelled_run_never_returns",),
    ),
    Mutant(
        "cancelling-returns-too-much",
        "rule 10",
        "ledger/store/holds.py",
        "        epsilon = epsilon_before - booked[index]\n",
        "        epsilon = 0 * epsilon_before\n",
        (f"{_LEDGER}test_cancelling_returns_all_of_it_exactly",),
    ),
    Mutant(
        "cancelling-keeps-the-delta",
        "rule 10",
        "ledger/store/holds.py",
        "        deltas = delta_before - delta[index]\n",
        "        deltas = delta_before\n",
        (f"{_LEDGER}test_cancelling_returns_all_of_it_exactly",),
    ),
    Mutant(
        "return-with-a-rounding-error",
        "rule 10",
        "ledger/memory.py",
        "        self._bookings.book(held.plan, sign=-1)\n",
        "        drawn = held.plan.q > 0.0\n"
        "        self._bookings.booked -= np.where(drawn, (held.plan.cost * 2.0**52).astype(np.int64), 0)\n"
        "        self._bookings.booked_delta -= np.where(drawn, (held.plan.delta * 2.0**62).astype(np.int64), 0)\n",
        (f"{_MEMORY}test_cancelling_returns_all_of_it_exactly",),
    ),
    Mutant(
        "expiry-not-checked-in-the-transaction",
        "section 8",
        "ledger/store/run_book.py",
        "            if has_passed(progress.admission.expires, moment):\n"
        '                raise refuse_cancelled(run, "expired")\n',
        "",
        (f"{_FILE}test_the_expiry_is_checked_again_inside_the_transaction",),
    ),
    Mutant(
        "expired-hold-free-before-it-is-booked",
        "section 8",
        "ledger/store/run_book.py",
        '        state: RunState = "committed" if announced else "held"\n',
        '        state: RunState = "committed" if announced else "held"\n'
        "        if not announced and has_passed(admission.expires, datetime.now(UTC).timestamp() + 1e9):\n"
        '            state = "expired"\n',
        (f"{_FILE}test_an_expiry_is_booked_when_the_ledger_is_opened",),
    ),
    Mutant(
        "rounds-drawn-again-after-a-restart",
        "section 4",
        "ledger/store/run_book.py",
        "            to_join = admission.rounds_to_join or self._drawn_rounds(run)\n",
        "            to_join = admission.rounds_to_join\n",
        (f"{_FILE}test_a_hold_is_there_when_it_is_opened_again_and_can_be_committed_or_cancelled",),
    ),
    Mutant(
        "rounds-of-release-0-1-drawn-again",
        "section 4",
        "ledger/store/run_book.py",
        "            if progress.rounds_to_join is None:\n",
        "            if True:\n",
        (f"{_FILE}test_an_admission_of_release_0_1_is_a_hold_that_does_not_expire",),
    ),
    Mutant(
        "drawn-rounds-in-the-public-head",
        "rule 14",
        "ledger/store/chain.py",
        '        fields |= {"round": event.round}\n',
        '        fields |= {"round": event.round, "join": facts.get("join")}\n',
        (f"{_FILE}test_the_rounds_drawn_with_the_first_charge_are_not_in_the_public_head",),
    ),
    Mutant(
        "totals-in-the-public-head",
        "rule 14",
        "ledger/store/chain.py",
        '        fields |= {"by": facts["by"], "reason": facts["reason"]}\n',
        '        fields |= {"by": facts["by"], "reason": facts["reason"], "totals": facts["totals"]}\n',
        (f"{_FILE}test_the_public_head_tells_who_cancelled_and_nothing_of_records",),
    ),
    Mutant(
        "older-versions-may-write-a-ledger-with-cancelled-runs",
        "section 8",
        "ledger/ledger.py",
        "        self._require_own_format()\n",
        "",
        (f"{_UPGRADE}test_an_older_ledger_is_read_and_not_written",),
    ),
    Mutant(
        "stewards-act-on-ledgers-of-older-formats",
        "section 8",
        "ledger/stewardship/steward_actions.py",
        "        self._require_own_format()\n",
        "",
        (f"{_UPGRADE}test_an_older_ledger_is_read_and_not_written",),
    ),
    Mutant(
        "an-upgrade-keeps-the-old-number",
        "section 8",
        "ledger/store/database.py",
        '        self.rows(f"PRAGMA user_version={FORMAT}")\n',
        "",
        (f"{_UPGRADE}test_an_upgraded_ledger_says_what_it_said",),
    ),
    Mutant(
        "an-upgrade-without-a-transaction",
        "rule 9",
        "ledger/format_upgrade.py",
        "            with self._writing():\n                self.database.upgrade()\n",
        "            self.database.upgrade()\n",
        (f"{_UPGRADE}test_an_interrupted_upgrade_leaves_the_old_file",),
    ),
    Mutant(
        "verify-accepts-a-cancelled-run-that-has-begun",
        "rule 10",
        "ledger/inspection/replay.py",
        '        if self._announced:\n            yield f"run {event.run!r} was cancelled after',
        '        if False:\n            yield f"run {event.run!r} was cancelled after',
        (f"{_FILE}test_verify_finds_a_changed_hold",),
    ),
    Mutant(
        "steward-cancels-without-a-reason-and-is-covered",
        "section 8",
        "ledger/store/holds.py",
        '        return self.by != "steward" or bool(self.reason)\n',
        "        return True\n",
        (f"{_FILE}test_every_inspection_knows_every_state",),
    ),
    # Silos
    Mutant(
        "expiry-shows-how-long-planning-took",
        "rule 14",
        "federation/silo.py",
        "self.account.reserve(run, plan, began + held_for, ",
        "self.account.reserve(run, plan, self.account.clock() + held_for, ",
        (f"{_PHASES}test_an_expiry_counts_from_the_request_and_not_from_the_end_of_planning",),
    ),
    Mutant(
        "holds-as-long-as-the-server-likes",
        "section 8",
        "federation/policy.py",
        "        if hold > self.max_hold:\n",
        "        if hold > LONGEST_HOLD:\n",
        (f"{_PHASES}test_a_hold_is_as_long_as_the_policy_allows",),
    ),
    Mutant(
        "ledger-filled-with-cancelled-runs",
        "rule 12",
        "federation/policy.py",
        "        if cancelled_before >= most:\n",
        "        if cancelled_before > 10**6 * most:\n",
        (f"{_PHASES}test_a_server_cannot_fill_the_ledger_with_cancelled_runs",),
    ),
    Mutant(
        "old-copy-of-a-ledger-cancels-what-was-charged",
        "rule 10",
        "deployment/agent/agent.py",
        "        self._acknowledge(run, head)\n        self.silo.cancel(run)\n",
        "        self.silo.cancel(run)\n",
        (f"{_PHASES}test_a_rolled_back_ledger_does_not_cancel_what_was_charged",),
    ),
    Mutant(
        "failed-admission-cannot-be-cancelled",
        "section 8",
        "deployment/agent/agent.py",
        "        if self.silo.announced(run) is None:\n",
        "        if False:\n",
        (f"{_PHASES}test_one_hospitals_full_disk_costs_nobody_anything",),
    ),
    # Servers
    Mutant(
        "others-pay-for-a-refusal",
        "section 8",
        "federation/coordinator.py",
        "        waiting, cancelled = dict(self._address), set[str]()\n",
        "        waiting, cancelled = dict[str, str](), set[str]()\n",
        (f"{_PHASES}test_one_hospitals_refusal_costs_nobody_anything",),
    ),
    Mutant(
        "others-pay-for-a-refusal-on-one-machine",
        "section 8",
        "federation/production.py",
        "        cancelled, failed = _cancel(run, [silo for silo in silos if silo.holds(run)])\n",
        "        cancelled, failed = _cancel(run, [])\n",
        (f"{_PRODUCTION}test_a_silo_that_does_not_admit_costs_nobody_anything",),
    ),
    Mutant(
        "begun-run-cancelled-by-a-server-that-died",
        "rule 10",
        "federation/coordinator.py",
        "            if not self._has_begun:\n",
        "            if False:\n",
        (f"{_PHASES}test_a_server_that_dies_after_the_first_charge_cancels_nothing",),
    ),
    Mutant(
        "round-1-before-all-silos-hold",
        "section 8",
        "federation/coordinator.py",
        "        while self._admitted != wanted - set(self._refusals) and time.monotonic() < until:\n",
        "        while not self._admitted and time.monotonic() < until:\n",
        (f"{_PHASES}test_round_1_is_announced_when_all_silos_hold_and_not_before",),
    ),
)
