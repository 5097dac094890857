"""Bugs of steward actions: who acted, consent that is given again, records of persons who are known already."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ACTORS = "tests/ledger/test_actors.py::"

STEWARDS = (
    Mutant(
        "consent-given-again-rejoins-the-run",
        "section 8",
        "ledger/balances.py",
        "            self._of_run = known = (run, off, pending, np.union1d(off, since))\n",
        "            self._of_run = known = (run, off, pending, np.union1d(off, since[:0]))\n",
        (f"{_ACTORS}test_consent_given_again_holds_from_the_next_run_on",),
    ),
    Mutant(
        "a-resumed-run-forgets-who-withdrew",
        "section 8",
        "ledger/ledger.py",
        "                balances.follow(admission.run, self.booked_actions(after=admission.seq))\n",
        "                balances.follow(admission.run, ())\n",
        (f"{_ACTORS}test_a_run_that_is_resumed_stays_without_the_record",),
    ),
    Mutant(
        "a-withdrawal-ended-without-a-signature",
        "rule 12",
        "ledger/stewardship/actions.py",
        'SIGNED: tuple[ActionKind, ...] = ("raise", "reconsent")\n',
        'SIGNED: tuple[ActionKind, ...] = ("raise",)\n',
        (f"{_ACTORS}test_only_the_steward_ends_a_withdrawal",),
    ),
    Mutant(
        "the-server-learns-which-steward-acted",
        "rule 14",
        "ledger/store/chain.py",
        '        fields |= {"by": facts["by"], "reason": facts["reason"]}\n',
        '        fields |= {"by": facts["by"], "reason": facts["reason"], "actor": facts.get("actor")}\n',
        (f"{_ACTORS}test_the_actor_of_a_cancellation_is_not_public",),
    ),
    Mutant(
        "an-export-without-ids-names-who-acted",
        "rule 6",
        "ledger/inspection/export.py",
        '_PERSONAL = ("action", "actor", "reason",',
        '_PERSONAL = ("action", "reason",',
        (f"{_ACTORS}test_an_export_names_actors_unless_it_is_without_ids",),
    ),
)
