"""Bugs of the silo agent, its socket, and the words that it sends."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_AGENT = "tests/deployment/agent/test_agent.py::"
_TIMING = "tests/deployment/agent/test_release_timing.py::"
_SERVICE = "tests/deployment/agent/test_socket_service.py::"
_SILOFILE = "tests/deployment/files/test_silo_file.py::"
_PROTOCOL = "tests/federation/test_frames.py::"
_COORDINATOR = "tests/deployment/agent/test_coordinator.py::"
_RULES = "tests/deployment/agent/test_privacy_rules.py::"

AGENT = (
    # What is admitted
    Mutant(
        "closed-run-ignored",
        "rule 12",
        "deployment/agent/agent.py",
        '            if facts["run"] in self._closed:\n',
        '            if request.kind == "admit" and facts["run"] in self._closed:\n',
        (f"{_AGENT}test_a_closed_run_is_refused_and_makes_room_for_another",),
    ),
    Mutant(
        "other-run-check-dropped",
        "rule 11",
        "deployment/agent/agent.py",
        "        if going:\n",
        "        if len(going) > 1:\n",
        (f"{_AGENT}test_a_closed_run_is_refused_and_makes_room_for_another",),
    ),
    Mutant(
        "head-not-checked",
        "rule 9",
        "deployment/agent/agent.py",
        "            self.silo.account.acknowledge(decode_head(head))\n",
        "            decode_head(head)\n",
        (f"{_AGENT}test_a_ledger_that_was_rolled_back_is_refused",),
    ),
    Mutant(
        "used-ledger-goes-on-without-a-head",
        "rule 9",
        "deployment/agent/agent.py",
        "            self._require_unused(run)\n            return\n",
        "            return\n",
        (f"{_AGENT}test_a_server_that_knows_nothing_of_earlier_runs_is_refused",),
    ),
    Mutant(
        "any-model-trained",
        "rule 12",
        "deployment/agent/agent.py",
        'model = self._models.get(public.model_fingerprint or "")',
        'model = self._models.get(public.model_fingerprint or "") or next(iter(self._models.values()))',
        (f"{_RULES}test_a_plan_that_is_not_for_this_agent",),
    ),
    Mutant(
        "vanishing-clip-norm-admitted",
        "rule 15",
        "deployment/agent/agent.py",
        "        if public.clip_norm < SMALLEST_CLIP_NORM:\n",
        "        if public.clip_norm <= 0.0:\n",
        (f"{_RULES}test_a_plan_that_is_not_for_this_agent",),
    ),
    Mutant(
        "unknown-facts-passed-over",
        "rule 12",
        "deployment/agent/request_decoding.py",
        '    if wanted is None or set(request.facts) != {"kind", *wanted}:\n',
        '    if wanted is None or not set(request.facts) >= {"kind", *wanted}:\n',
        (f"{_RULES}test_a_round_says_what_it_must_and_nothing_else",),
    ),
    Mutant(
        "server-forgets-the-heads",
        "rule 9",
        "federation/coordinator.py",
        "        return None if head is None else asdict(head)\n",
        "        return None\n",
        (f"{_COORDINATOR}test_a_ledger_that_was_rolled_back_sits_the_rest_of_the_run_out",),
    ),
    Mutant(
        "older-head-replaces-the-newest",
        "rule 9",
        "federation/coordinator.py",
        "        if known is None or head.count >= known.count:\n",
        "        if known is None or head.ledger == known.ledger:\n",
        (f"{_RULES}test_a_server_keeps_the_newest_head_it_has_seen",),
    ),
    Mutant(
        "seeded-silos-in-a-real-run",
        "rule 7",
        "federation/coordinator.py",
        '        if bool(frame.facts["is_simulation"]) != (self._settings.seed is not None):\n',
        '        if not bool(frame.facts["is_simulation"]) and self._settings.seed is not None:\n',
        (f"{_RULES}test_a_real_run_does_not_begin_with_seeded_silos",),
    ),
    # When answers leave
    Mutant(
        "answers-leave-when-they-are-ready",
        "rule 14",
        "deployment/agent/agent.py",
        "                self._timing.hold(began)\n                return answer\n",
        "                return answer\n",
        (f"{_TIMING}test_updates_leave_at_the_public_time_however_long_training_takes",),
    ),
    Mutant(
        "late-answer-not-held-to-a-multiple",
        "rule 14",
        "deployment/agent/release_timing.py",
        "            multiple = max(1, math.ceil(passed / self.release_after))\n",
        "            multiple = max(1.0, passed / self.release_after)\n",
        (f"{_TIMING}test_what_is_later_than_its_time_leaves_at_a_multiple_of_it",),
    ),
    Mutant(
        "late-round-still-released",
        "rule 14",
        "deployment/agent/agent.py",
        "            return self._timing.in_time(began) and not self._stopping.is_set()\n",
        "            return not self._stopping.is_set()\n",
        (f"{_TIMING}test_a_round_that_is_late_sits_out_for_ever_and_its_answer_is_not_late",),
    ),
    Mutant(
        "turn-ends-when-training-is-over",
        "rule 14",
        "deployment/agent/agent.py",
        "                answer = self._decide(request, facts, began)\n"
        "                self._timing.hold(began)\n                return answer\n",
        "                answer = self._decide(request, facts, began)\n"
        "            self._timing.hold(began)\n            return answer\n",
        (f"{_TIMING}test_the_turn_ends_when_the_answer_leaves_not_when_training_is_over",),
    ),
    Mutant(
        "hello-tells-how-far-the-ledger-is",
        "rule 14",
        "deployment/agent/agent.py",
        'return Frame({"kind": "hello", "silo": self.silo.name, "is_simulation": simulated})',
        "head, name = self._head(), self.silo.name\n"
        '                return Frame({"kind": "hello", "head": head, "silo": name, "is_simulation": simulated})',
        (f"{_AGENT}test_hello_tells_the_name_and_nothing_of_the_ledger",),
    ),
    # What leaves
    Mutant(
        "release-before-it-is-stored",
        "rule 9",
        "deployment/agent/agent.py",
        "            return self.silo.finish(self._training.result(self._timing.left(began)))\n",
        "            return self._training.result(self._timing.left(began)).update\n",
        (f"{_AGENT}test_every_round_has_one_answer_for_ever",),
    ),
    Mutant(
        "failure-after-the-charge-told",
        "rule 12",
        "deployment/agent/agent.py",
        '            LOG.exception("round %d could not be trained; it sits out, charged", announcement.round)\n',
        "            raise\n",
        (f"{_AGENT}test_a_failure_after_the_charge_looks_like_sitting_out",),
    ),
    Mutant(
        "error-text-leaks",
        "rule 12",
        "deployment/agent/agent.py",
        "        except Exception:  # its text stays here; nothing was released\n",
        '        except Exception as error:\n            return Frame({"kind": "refused", "reason": repr(error)})\n',
        (f"{_AGENT}test_a_failure_before_the_charge_is_one_word_and_charges_nothing",),
    ),
    Mutant(
        "refusal-carries-its-text",
        "rule 12",
        "deployment/agent/agent.py",
        '            LOG.warning("refused (%s): %.500s", refusal.reason, refusal)\n'
        "            return refused(Reason.FAILED if refusal.reason is Reason.REFUSED else refusal.reason)\n",
        '            return Frame({**refused(refusal.reason).facts, "text": str(refusal)})\n',
        (f"{_AGENT}test_a_closed_run_is_refused_and_makes_room_for_another",),
    ),
    Mutant(
        "refusal-carries-its-text-on-the-wire",
        "rule 12",
        "federation/frames.py",
        '    return Frame({"kind": "refused", "reason": reason.value})\n',
        '    return Frame({"kind": "refused", "reason": f"{reason.value}: {reason!r}"})\n',
        (f"{_SERVICE}test_an_agent_that_fails_answers_one_word",),
    ),
    Mutant(
        "error-text-of-the-app-leaks",
        "rule 12",
        "deployment/flower/client_app.py",
        "        answer = UNREACHABLE.to_bytes()\n",
        "        raise\n",
        (f"{_SERVICE}test_the_app_says_nothing_of_what_goes_wrong",),
    ),
    # The socket
    Mutant(
        "payload-limit-dropped",
        "rule 12",
        "federation/frames.py",
        "        if facts > MOST_FACTS or payload > most_payload:\n",
        "        if facts > MOST_FACTS:\n",
        (f"{_SERVICE}test_a_frame_that_is_too_large_is_refused_before_it_is_all_there",),
    ),
    Mutant(
        "socket-open-to-everybody",
        "rule 12",
        "deployment/agent/socket_service.py",
        "        before = os.umask(0o177)\n",
        "        before = os.umask(0o111)\n",
        (f"{_SERVICE}test_only_this_user_may_ask",),
    ),
    Mutant(
        "socket-of-a-group-open-to-everybody",
        "rule 12",
        "deployment/agent/socket_service.py",
        "            self._path.chmod(0o660)\n",
        "            self._path.chmod(0o666)\n",
        (f"{_SERVICE}test_or_a_group_as_well",),
    ),
    Mutant(
        "socket-in-a-directory-of-others",
        "rule 12",
        "deployment/agent/socket_service.py",
        "    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):\n",
        "    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):\n",
        (f"{_SERVICE}test_a_directory_of_somebody_else_is_refused",),
    ),
    Mutant(
        "two-values-of-one-name",
        "rule 12",
        "federation/frames.py",
        "    if len(facts) != len(pairs):\n",
        "    if not facts and pairs:\n",
        (f"{_PROTOCOL}test_a_name_that_occurs_twice",),
    ),
    Mutant(
        "announced-numbers-cut-to-fit",
        "rule 12",
        "deployment/agent/request_decoding.py",
        "    if len(payload) != wanted:\n",
        "    payload = payload[:wanted]\n    if len(payload) != wanted:\n",
        (f"{_RULES}test_a_round_says_what_it_must_and_nothing_else",),
    ),
    Mutant(
        "pieces-of-one-record",
        "rule 14",
        "deployment/agent/agent.py",
        "        if public.recipe.micro_batch < SMALLEST_MICRO_BATCH:\n",
        "        if public.recipe.micro_batch < 1:\n",
        (f"{_RULES}test_pieces_so_small_that_their_time_would_tell",),
    ),
    # Files
    Mutant(
        "files-that-the-group-can-get-at",
        "rule 12",
        "deployment/agent/opening.py",
        "    if Path(path).stat().st_mode & 0o077:\n",
        "    if Path(path).stat().st_mode & 0o007:\n",
        (f"{_SERVICE}test_a_file_that_others_can_get_at",),
    ),
    Mutant(
        "ledger-that-others-can-get-at",
        "rule 12",
        "deployment/agent/opening.py",
        "        require_owner_only(file)\n",
        "        file.stat()\n",
        (f"{_SILOFILE}test_files_that_others_can_get_at",),
    ),
    Mutant(
        "budgets-that-others-can-get-at",
        "rule 12",
        "deployment/agent/opening.py",
        "    if path.parent.stat().st_mode & 0o011:\n",
        "    if path.parent.stat().st_mode & 0o001:\n",
        (f"{_SILOFILE}test_budgets_in_a_closed_directory_are_out_of_reach",),
    ),
    Mutant(
        "limits-that-others-can-state",
        "rule 12",
        "deployment/agent/opening.py",
        "    if spec.path.stat().st_mode & 0o022:\n",
        "    if spec.path.stat().st_mode & 0o002:\n",
        (f"{_SILOFILE}test_files_that_others_can_get_at",),
    ),
)
