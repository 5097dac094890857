"""Bugs of a silo's node: what it carries, what it says, and whom it talks to."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_NODE = "tests/deployment/flower/test_silo_node.py::"

NODE = (
    Mutant(
        "error-text-of-the-carrier-leaks",
        "rule 12",
        "deployment/flower/frame_record.py",
        "        return reply(message, UNREACHABLE.to_bytes())\n",
        "        return reply(message, str(error).encode())\n",
        (f"{_NODE}test_no_text_of_an_exception_leaves",),
    ),
    Mutant(
        "node-fetches-whatever-is-sent",
        "rule 12",
        "deployment/flower/silo_node.py",
        "        if not _may_be_ours(taken):\n",
        "        if not taken.message.metadata.message_type:\n",
        (f"{_NODE}test_a_message_that_is_none_of_ours_is_not_even_fetched",),
    ),
    Mutant(
        "node-carries-any-type-of-message",
        "rule 12",
        "deployment/flower/silo_node.py",
        "    return parts == _PARTS and taken.message.metadata.message_type == MESSAGE_TYPE\n",
        "    return parts == _PARTS\n",
        (f"{_NODE}test_what_is_none_of_ours_gets_one_fixed_answer",),
    ),
    Mutant(
        "node-follows-redirects",
        "rule 12",
        "deployment/flower/fleet_link.py",
        "follow_redirects=False",
        "follow_redirects=True",
        (f"{_NODE}test_it_does_not_follow_the_server_into_the_silos_network",),
    ),
    Mutant(
        "node-trusts-any-server",
        "rule 12",
        "deployment/flower/fleet_link.py",
        "    context.minimum_version = ssl.TLSVersion.TLSv1_2\n",
        "    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE\n",
        (f"{_NODE}test_a_foreign_server_is_refused",),
    ),
)
