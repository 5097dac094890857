"""Bugs of the steward's console: who gets in, what gets through, what it may change."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GUARD = "tests/console/test_request_guard.py::"
_PAGES = "tests/console/test_console_pages.py::"

CONSOLE = (
    Mutant(
        "console-answers-to-any-host",
        "rule 12",
        "console/request_guard.py",
        "    if not (name in _HOSTS and",
        "    if not (name and",
        (f"{_GUARD}TestOtherSites::test_other_names_for_this_machine",),
    ),
    Mutant(
        "console-takes-forms-of-other-sites",
        "rule 12",
        "console/request_guard.py",
        '    is_own = origin == f"http://{host}" or',
        "    is_own = origin is not None or",
        (f"{_GUARD}TestOtherSites::test_their_forms",),
    ),
    Mutant(
        "console-form-token-not-compared",
        "rule 12",
        "console/request_guard.py",
        '    if session is None or not same(form.pop("form_token", ""), session.form_token):\n',
        '    if session is None or not form.pop("form_token", "x"):\n',
        (f"{_GUARD}TestOtherSites::test_forms_without_the_token",),
    ),
    Mutant(
        "console-token-good-twice",
        "rule 12",
        "console/sign_in.py",
        "            self._token = None\n            now",
        "            now",
        (f"{_GUARD}TestSigningIn::test_a_token_is_good_once",),
    ),
    Mutant(
        "console-session-never-ends",
        "rule 12",
        "console/sign_in.py",
        "now - found.seen > self._idle or",
        "now < found.seen or",
        (f"{_GUARD}TestSigningIn::test_a_session_ends_after_some_idle_time_and_a_new_token_is_offered",),
    ),
    Mutant(
        "console-takes-a-stolen-cookie",
        "rule 12",
        "console/sign_in.py",
        " and same(key, found.key) and user == found.user:\n",
        " and same(key, found.key):\n",
        (f"{_GUARD}TestSigningIn::test_another_user_of_this_machine_cannot_use_a_stolen_cookie",),
    ),
    Mutant(
        "console-shows-a-ledger-that-others-read",
        "rule 12",
        "console/console_silo.py",
        "        if found.st_mode & _OTHERS:\n",
        "        if found.st_mode & stat.S_IWOTH:\n",
        (f"{_PAGES}TestStarting::test_a_ledger_that_others_could_read_is_refused",),
    ),
    Mutant(
        "console-acts-without-the-id-typed",
        "rule 12",
        "console/person_story.py",
        '    if form.get("confirmation", "") != person.id:\n',
        '    if not form.get("confirmation", "x"):\n',
        (f"{_PAGES}TestPeople::test_what_is_wrong_changes_nothing",),
    ),
    Mutant(
        "console-acts-without-the-key",
        "rule 12",
        "console/person_story.py",
        "    key = silo.key\n",
        '    key = silo.key if form.get("action") in ("raise", "reconsent") else None\n',
        (f"{_PAGES}TestPeople::test_without_the_key_it_only_shows",),
    ),
)
