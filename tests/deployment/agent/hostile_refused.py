"""Hostile behaviour that is refused: rounds, models, plans, heads and frames that no honest server would send."""

from __future__ import annotations

import pickle
import struct
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.federation import model_fingerprint
from rpdp.federation.frames import MAGIC, Frame
from rpdp.ledger.store.chain import GENESIS
from rpdp.planning import Recipe
from tests.deployment.agent.hostile import BESIDE, HELLO, PUBLIC, Row, Target
from tests.deployment.agent.scene import RUN, SIZE, admission, announcement, cancellation, numbers
from tests.federation.world import FEATURES, make_recipe

if TYPE_CHECKING:
    from collections.abc import Callable


def _round(**changes: Any) -> Callable[[Target], Frame]:
    """A round with other facts, and perhaps another payload."""

    def attack(target: Target) -> Frame:
        known = target.agent.silo.account.public_head() if target.asked else None
        good = announcement(PUBLIC, target.asked + 1, head=known)
        payload = changes.get("payload", good.payload)
        facts = {name: value for name, value in changes.items() if name != "payload"}
        return target.ask(Frame({**good.facts, **facts}, payload))

    return attack


def _beside(**changes: Any) -> Callable[[Target], Frame]:
    """A round of the run beside with other facts, and perhaps another payload."""
    return _round(**{"run": "beside", "plan": BESIDE.fingerprint, **changes})


def _admit(run: str = RUN, **changes: Any) -> Callable[[Target], Frame]:
    """Admission of the plan with other settings, and a fingerprint that goes with them."""

    def attack(target: Target) -> Frame:
        settings = dict(changes)
        schedule = settings.pop("schedule", {})
        public = replace(PUBLIC, schedule=replace(PUBLIC.schedule, **schedule), **settings)
        return target.ask(admission(public, run))

    return attack


def _admit_facts(**changes: Any) -> Callable[[Target], Frame]:
    """Admission with other facts."""
    return lambda target: target.ask(Frame({**admission(PUBLIC).facts, **changes}))


def _cancel(**changes: Any) -> Callable[[Target], Frame]:
    """A cancellation of the run with other facts; the head is the one that the server knows."""

    def attack(target: Target) -> Frame:
        good = cancellation(head=target.agent.silo.account.public_head())
        return target.ask(Frame({**good.facts, **changes}))

    return attack


def _without_hold() -> Frame:
    return Frame({name: value for name, value in admission(PUBLIC).facts.items() if name != "hold"})


def _plan(edit: Callable[[dict[str, Any]], object]) -> Callable[[Target], Frame]:
    """Admission of a plan that was edited by hand."""

    def attack(target: Target) -> Frame:
        facts = admission(PUBLIC).facts
        edit(facts["plan"])
        return target.ask(Frame(facts))

    return attack


def _text(facts: str | bytes, payload: bytes = b"", magic: bytes = MAGIC) -> Callable[[Target], Frame]:
    """Facts as they are written here, in a frame that is right otherwise."""
    raw = facts.encode() if isinstance(facts, str) else facts
    return lambda target: target.ask(struct.pack("<8sIQ", magic, len(raw), len(payload)) + raw + payload)


def _raw(data: bytes) -> Callable[[Target], Frame]:
    return lambda target: target.ask(data)


def _head(**changes: Any) -> Callable[[Target], Frame]:
    """The next round with a head that is not the ledger's."""

    def attack(target: Target) -> Frame:
        true = target.agent.silo.account.public_head()
        assert true is not None
        good = announcement(PUBLIC, target.asked + 1, head=true)
        return target.ask(Frame({**good.facts, "head": {**asdict(true), **changes}}, good.payload))

    return attack


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], object]:
    """Sets one value in a plan, deep as the path says."""

    def edit(plan: dict[str, Any]) -> None:
        *outer, last = path.split(".")
        for name in outer:
            plan = plan[name]
        plan[last] = value

    return edit


def _other(position: int, value: float) -> bytes:
    """Model values of which one is this."""
    values = np.zeros(SIZE, dtype="<f4")
    values[position] = value
    return values.tobytes()


def _without(fact: str) -> Frame:
    good = announcement(PUBLIC, 79)
    return Frame({name: value for name, value in good.facts.items() if name != fact}, good.payload)


ROUND = '{"kind":"round","run":"run","plan":"%s","round":%s,"correction":false,"head":null}'
HALF_A_CHARACTER = ROUND.replace('"run":"run"', '"run":"\\ud800"') % ("x", 11)
OTHER_MODEL = model_fingerprint(torch.nn.Sequential(torch.nn.Linear(FEATURES, 3), torch.nn.Linear(3, 1)))
SIGNALLING = struct.pack("<I", 0x7F800001)

ROUNDS = [
    Row("round 0", "round", _round(round=0)),
    Row("round −1", "round", _round(round=-1)),
    Row("more rounds than T", "round", _round(round=81)),
    Row("round 10¹⁸", "round", _round(round=10**18)),
    Row("round 2⁶⁴ + 1, for a counter that overflows", "round", _round(round=2**64 + 1)),
    Row("round true", "malformed", _round(round=True)),
    Row("round 11.0", "malformed", _round(round=11.0)),
    Row("round 11.5: rounds between rounds", "malformed", _round(round=11.5)),
    Row('round "11"', "malformed", _round(round="11")),
    Row("round null", "malformed", _round(round=None)),
    Row("round of 4,500 digits", "malformed", _text(ROUND % (PUBLIC.fingerprint, "9" * 4500))),
    Row("another fingerprint in a round", "plan", _round(plan="0" * 64)),
    Row("the fingerprint in capitals", "plan", _round(plan=PUBLIC.fingerprint.upper())),
    Row("half a fingerprint", "plan", _round(plan=PUBLIC.fingerprint[:32])),
    Row("no fingerprint in a round", "malformed", _round(plan="")),
    Row("a plan in place of its fingerprint", "malformed", _round(plan={"fingerprint": PUBLIC.fingerprint})),
    Row("a run that was never admitted", "run", _round(run="another")),
    Row("the run's name with a space", "run", _round(run="run ")),
    Row("the run's name in other letters that look alike", "run", _round(run="гun")),
    Row("a path as the run of a round", "run", _round(run="../../ledger.db")),
    Row("no run", "malformed", _round(run="")),
    Row("a run's name of a megabyte", "malformed", _round(run="r" * 1_000_000)),
    Row("a run's name with a line break, for the log", "malformed", _round(run="run\nreleased")),
    Row("a run's name with a zero byte", "malformed", _round(run="run\0")),
    Row("a run's name of half a character", "malformed", _text(HALF_A_CHARACTER)),
    Row("an escape sequence as a fingerprint, for the terminal", "malformed", _round(plan="\x1b[2J")),
]  # fmt: skip

MODELS = [
    Row("one number too few", "shape", _round(payload=numbers(size=SIZE - 1))),
    Row("one number too many", "shape", _round(payload=numbers(size=SIZE + 1))),
    Row("a number and a half", "shape", _round(payload=numbers()[:-2])),
    Row("no model", "shape", _round(payload=b"")),
    Row("a correction that is not there", "shape", _round(correction=True)),
    Row("a correction that was not said to be there", "shape", _round(payload=numbers() * 2)),
    Row("numbers of 8 bytes", "shape", _round(payload=np.zeros(SIZE, "<f8").tobytes())),
    Row("a model of a gigabyte", "too-large", _raw(struct.pack("<8sIQ", MAGIC, 2, 2**30))),
    Row("NaN in the model", "values", _round(payload=_other(0, np.nan))),
    Row("∞ in the model", "values", _round(payload=_other(2, np.inf))),
    Row("−∞ as the last number", "values", _round(payload=_other(SIZE - 1, -np.inf))),
    Row("a signalling NaN", "values", _round(payload=numbers()[:-4] + SIGNALLING)),
    Row("NaN in the correction", "values", _round(correction=True, payload=numbers() + _other(1, np.nan))),
    Row("∞ in the correction", "values", _round(correction=True, payload=numbers() + _other(4, np.inf))),
    Row("a correction that is a number", "malformed", _round(correction=1)),
]  # fmt: skip

PLANS = [
    Row("σ below the policy, same run", "policy", _admit(noise_multiplier=0.1)),
    Row("σ above the plan's, same run", "plan", _admit(noise_multiplier=3.0)),
    Row("L above the policy", "policy", _admit(clip_norm=2.0)),
    Row("L below the plan's", "plan", _admit(clip_norm=0.5)),
    Row("L of 10⁻³⁰, where float32 knows no norms", "policy", _admit(clip_norm=1e-30)),
    Row("L of 10⁻¹¹, just below the smallest", "policy", _admit(clip_norm=1e-11)),
    Row("τ above the policy", "policy", _admit(schedule={"local_steps": 3})),
    Row("τ below the plan's", "plan", _admit(schedule={"local_steps": 1})),
    Row("T above the policy", "policy", _admit(schedule={"rounds": 81})),
    Row("T below the plan's", "plan", _admit(schedule={"rounds": 70, "participations": 35})),
    Row("as many of fewer rounds", "policy", _admit(schedule={"rounds": 79})),
    Row("more participations than the policy has", "policy", _admit(schedule={"participations": 41})),
    Row("fewer participations", "plan", _admit(schedule={"participations": 39})),
    Row("a coin λ above the policy", "policy", _admit(schedule={"participations": None, "participation": 0.6})),
    Row("a coin λ in place of 40 rounds", "plan", _admit(schedule={"participations": None, "participation": 0.5})),
    Row("δ above the policy", "policy", _admit(delta=0.02)),
    Row("δ below the plan's", "plan", _admit(delta=1e-4)),
    Row("another B", "plan", _admit(normaliser=1e-6)),
    Row("another accountant", "plan", _admit(accountant="pld")),
    Row("other weights", "plan", _admit(weights={"a": 100.0, "b": 1.0})),
    Row("weights without this silo", "member", _admit(weights={"b": 1.0})),
    Row("another learning rate", "policy", _admit(recipe=Recipe(learning_rate=0.5))),
    Row("another micro-batch", "plan", _admit(recipe=Recipe(micro_batch=1 << 16))),
    Row("pieces of one record, to stretch the time", "policy", _admit(recipe=Recipe(micro_batch=1))),
    Row("another backbone", "policy", _admit(recipe=make_recipe("fedprox", proximal=1e6))),
    Row("a note more", "plan", _admit(notes=("all is well",))),
    Row("another architecture", "model", _admit(model_fingerprint=OTHER_MODEL)),
    Row("no model fingerprint", "model", _admit(model_fingerprint=None)),
    Row("an empty model fingerprint", "model", _admit(model_fingerprint="")),
    Row("the model's code in place of its fingerprint", "model", _admit(model_fingerprint="lambda: __import__('os')")),
    Row("σ changed, fingerprint not", "plan", _plan(_set("noise_multiplier", 1e-3))),
    Row("T changed, fingerprint not", "plan", _plan(_set("schedule.rounds", 10**6))),
    Row("L changed, fingerprint not", "plan", _plan(_set("clip_norm", 1e6))),
    Row("fingerprint changed, plan not", "plan", _plan(_set("fingerprint", "0" * 64))),
    Row("a plan without a fingerprint", "malformed", _plan(lambda plan: plan.pop("fingerprint"))),
    Row("a plan of a later format", "malformed", _plan(_set("format", "rpdp-public-plan/2"))),
    Row("a plan with one more setting", "malformed", _plan(_set("allow_everything", True))),
    Row("a plan without δ", "malformed", _plan(lambda plan: plan.pop("delta"))),
    Row("σ = 0", "malformed", _plan(_set("noise_multiplier", 0))),
    Row("σ = −1", "malformed", _plan(_set("noise_multiplier", -1.0))),
    Row('σ = "2.0"', "malformed", _plan(_set("noise_multiplier", "2.0"))),
    Row("σ = true", "malformed", _plan(_set("noise_multiplier", True))),
    Row("σ of 400 digits", "malformed", _plan(_set("noise_multiplier", 10**400))),
    Row("T = 0", "malformed", _plan(_set("schedule.rounds", 0))),
    Row("T = 80.5", "malformed", _plan(_set("schedule.rounds", 80.5))),
    Row("λ = 0", "malformed", _plan(_set("schedule", {"rounds": 80, "local_steps": 2, "participation": 0.0}))),
    Row("λ and a number of rounds", "malformed", _plan(_set("schedule.participation", 0.5))),
    Row("δ = 1", "malformed", _plan(_set("delta", 1))),
    Row("a schedule that is a list", "malformed", _plan(_set("schedule", [80, 2]))),
    Row("a recipe with code", "malformed", _plan(_set("recipe.optimiser", "os.system"))),
    Row("a plan that is a text", "malformed", _admit_facts(plan="p")),
    Row("a second run beside the first", "other-run", _admit("second")),
    Row("a second run with another plan", "other-run", _admit("second", noise_multiplier=2.5)),
]  # fmt: skip

HEADS = [
    Row("the head of another ledger", "head", _head(ledger="0" * 32)),
    Row("a head of the future", "head", _head(count=10**6)),
    Row("a head with another hash", "head", _head(head="00" * 32)),
    Row("a head of −1 events", "head", _head(count=-1, head="")),
    Row("the head of an empty ledger", "head", _head(count=0, head=GENESIS.hex())),
    Row("a head with a count that is a text", "head", _head(count="1")),
    Row("a head that is a list", "malformed", _round(head=[])),
]

HOLDS = [
    Row("cancelling a run that has begun", "charged", _cancel()),
    Row("cancelling a run that was never admitted", "run", _cancel(run="another")),
    Row("cancelling with a head of the future", "head", _cancel(head={"ledger": "0" * 32, "count": 10**6, "head": ""})),
    Row("cancelling without a head", "malformed", lambda target: target.ask(Frame({"kind": "cancel", "run": RUN}))),
    Row("cancelling with a reason", "malformed", _cancel(reason="because")),
    Row("cancelling as the steward", "malformed", _cancel(by="steward")),
    Row("cancelling with a payload", "malformed", lambda target: target.ask(Frame(cancellation().facts, b"x"))),
    Row("admission without a hold", "malformed", lambda target: target.ask(_without_hold())),
    Row("a hold of 0 seconds", "malformed", _admit_facts(hold=0)),
    Row("a hold of −1 seconds", "malformed", _admit_facts(hold=-1)),
    Row("a hold of 1.5 seconds", "malformed", _admit_facts(hold=1.5)),
    Row("a hold for ever", "malformed", _admit_facts(hold=None)),
    Row("a hold of 10³⁰ seconds, same run", "policy", _admit_facts(hold=10**30)),
]

FRAMES = [
    Row("nothing", "malformed", _raw(b"")),
    Row("half a header", "malformed", _raw(HELLO[:7])),
    Row("a frame that ends early", "malformed", _raw(HELLO[:-1])),
    Row("two frames", "malformed", _raw(HELLO + HELLO)),
    Row("a byte after the frame", "malformed", _raw(HELLO + b"\0")),
    Row("another version", "version", _text('{"kind":"hello"}', magic=b"rpdp-sa9")),
    Row("HTTP", "malformed", _raw(b"GET / HTTP/1.1\r\nHost: silo\r\n\r\n")),
    Row("a pickle", "malformed", _raw(pickle.dumps({"kind": "hello"}))),
    Row("a pickle as facts", "malformed", _text(pickle.dumps({"kind": "hello"}))),
    Row("four gigabytes of facts", "too-large", _raw(struct.pack("<8sIQ", MAGIC, 2**32 - 1, 0))),
    Row("2⁶³ bytes of payload", "too-large", _raw(struct.pack("<8sIQ", MAGIC, 2, 2**63))),
    Row("a megabyte of payload, sent", "too-large", _raw(struct.pack("<8sIQ", MAGIC, 2, 2**20) + b"{}" + bytes(2**20))),
    Row("facts that are no JSON", "malformed", _text("{kind: hello}")),
    Row("facts that are a list", "malformed", _text('["hello"]')),
    Row("a fact twice", "malformed", _text('{"kind":"hello","kind":"round"}')),
    Row("a fact NaN", "malformed", _text(ROUND % (PUBLIC.fingerprint, "NaN"))),
    Row("a fact 1e999", "malformed", _text(ROUND % (PUBLIC.fingerprint, "1e999"))),
    Row("a nest of 100,000 lists", "malformed", _text("[" * 100_000)),
    Row("bytes that are no text", "malformed", _text(b'{"kind":"\xff\xfe"}')),
    Row("facts in UTF-16", "malformed", _text('{"kind":"hello"}'.encode("utf-16"))),
    Row("facts in UTF-16 without a mark", "malformed", _text('{"kind":"hello"}'.encode("utf-16-le"))),
    Row("facts in UTF-32", "malformed", _text('{"kind":"hello"}'.encode("utf-32"))),
    Row("facts after a byte order mark", "malformed", _text(b'\xef\xbb\xbf{"kind":"hello"}')),
    Row("a surrogate in UTF-8", "malformed", _text(b'{"kind":"hello\xed\xa0\x80"}')),
    Row("an unknown request", "malformed", lambda target: target.ask(Frame({"kind": "train"}))),
    Row("a request to stop", "malformed", lambda target: target.ask(Frame({"kind": "shutdown"}))),
    Row("a request without a kind", "malformed", lambda target: target.ask(Frame({}))),
    Row("a kind that is a list", "malformed", lambda target: target.ask(Frame({"kind": ["round"]}))),
    Row("an answer in place of a request", "malformed", lambda target: target.ask(Frame({"kind": "update"}, b""))),
    Row("hello with facts", "malformed", lambda target: target.ask(Frame({"kind": "hello", "verbose": True}))),
    Row("hello with a payload", "malformed", lambda target: target.ask(Frame({"kind": "hello"}, b"x"))),
    Row("admission with a payload", "malformed", lambda target: target.ask(Frame(admission(PUBLIC).facts, b"x"))),
    Row("a round with another σ beside it", "malformed", _round(noise_multiplier=0.001)),
    Row("a round with a seed", "malformed", _round(seed=7)),
    Row("a round without its head", "malformed", lambda target: target.ask(_without("head"))),
    Row("a round without its plan", "malformed", lambda target: target.ask(_without("plan"))),
]

FRESH = [
    Row("a round before any run", "run", _round(), "fresh"),
    Row("σ below the policy, new run", "policy", _admit(noise_multiplier=0.1), "fresh"),
    Row("L above the policy, new run", "policy", _admit(clip_norm=2.0), "fresh"),
    Row("σ of 10³⁰, which nobody can price", "failed", _admit(noise_multiplier=1e30), "fresh"),
    Row("δ of 10⁻³⁰⁰, which nobody can price", "failed", _admit(delta=1e-300), "fresh"),
    Row("a run that the silo has closed", "closed-run", _admit("closed"), "fresh"),
    Row("a hold of a day and a second", "policy", _admit_facts(hold=86_401), "fresh"),
    Row("a hold of 10³⁰ seconds", "policy", _admit_facts(hold=10**30), "fresh"),
    Row("cancelling before any run", "run", lambda target: target.ask(cancellation()), "fresh"),
    Row("a learning rate of 10³⁰", "policy", _admit(recipe=Recipe(learning_rate=1e30)), "fresh"),
    Row("a learning rate of 10⁻³⁰", "policy", _admit(recipe=Recipe(learning_rate=1e-30)), "fresh"),
    Row("a proximal term of 10³⁰", "policy", _admit(recipe=make_recipe("fedprox", proximal=1e30)), "fresh"),
    Row("everything beyond the policy", "policy", _admit(clip_norm=1e9, noise_multiplier=1e-9, delta=0.9), "fresh"),
]

LISTED = [
    Row("another B, where plans are listed", "policy", _admit(normaliser=PUBLIC.normaliser + 1.0), "listed"),
    Row("a shorter run, where plans are listed", "policy", _admit(schedule={"rounds": 40}), "listed"),
    Row("another learning rate, where plans are listed", "policy", _admit(recipe=Recipe(learning_rate=0.5)), "listed"),
    Row("a note more, where plans are listed", "policy", _admit(notes=("harmless",)), "listed"),
    Row("another name and plan, where plans are listed", "policy", _admit("another", normaliser=7.0), "listed"),
]

SEVERAL = [
    Row("a round of one run with the plan of another", "plan", _round(plan=BESIDE.fingerprint), "several"),
    Row("a round of the other run with this plan", "plan", _round(run="beside"), "several"),
    Row("a round that only the longer of two runs has", "round", _beside(round=60), "several"),
    Row("round 0 of the other run", "round", _beside(round=0), "several"),
    Row("the plan of one run admitted for another", "plan", _admit("beside"), "several"),
    Row("a third run beside two", "other-run", _admit("third"), "several"),
    Row("a round of a third run", "run", _round(run="third"), "several"),
    Row("both names as one run", "run", _round(run="run beside"), "several"),
    Row("NaN in the model of the other run", "values", _beside(payload=_other(0, np.nan)), "several"),
    Row("cancelling the other run, which has begun", "charged", _cancel(run="beside"), "several"),
    Row("a list of runs", "malformed", _round(run=["run", "beside"]), "several"),
]

REFUSED = [*ROUNDS, *MODELS, *PLANS, *HEADS, *HOLDS, *FRAMES, *FRESH, *LISTED, *SEVERAL]
