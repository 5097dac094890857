"""Requests are decoded strictly, and every limit is where the documentation says it is."""

from __future__ import annotations

import pytest

from rpdp.deployment.agent.request_decoding import checked_facts
from rpdp.errors import PrivacyRefusal, Reason
from rpdp.federation.frames import Frame


def cancelled(run: str) -> Frame:
    return Frame({"kind": "cancel", "run": run, "head": None})


@pytest.mark.parametrize("length", [1, 99, 100])
def test_names_of_up_to_100_characters_are_accepted(length: int) -> None:
    assert checked_facts(cancelled("λ" * length))["run"] == "λ" * length


@pytest.mark.parametrize("name", ["", "x" * 101, "x" * 102, "a\nb", "\0"], ids=["0", "101", "102", "line", "null"])
def test_other_names_are_refused_and_the_log_gets_at_most_100_characters_of_them(name: str) -> None:
    with pytest.raises(PrivacyRefusal, match="is not a valid name") as refusal:
        checked_facts(cancelled(name))
    assert refusal.value.reason is Reason.MALFORMED
    assert len(str(refusal.value)) < 130
