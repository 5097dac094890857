"""The grammar of hostile federations: every production once in the fast list, their products in the slow one."""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.deployment.agent import interference_zoo as zoo
from tests.deployment.agent.interference_host import ROUNDS, Case

BAD_LABEL = zoo.STRANGE_LABEL


def looking_model(effect: str, look: str = "bool", *, first: bool = False) -> Case:
    name = f"model: {effect} ({look}{', first record' if first else ''})"
    return Case(name, model=f"{effect} | {look}", first=first)


def looking_loss(effect: str, look: str = "bool") -> Case:
    return Case(f"loss: {effect} ({look})", loss=f"{effect} | {look}", label=BAD_LABEL)


HONEST = Case("an honest model")
NAN_BY_WEIGHTS = Case(
    "crafted weights, probabilities, tiny learning rate",
    model="sigmoid",
    loss="probabilities",
    weights="crafted",
    recipe={"learning_rate": 1e-30},
)
RAISES = looking_model("raises")
SLEEPS = looking_model("sleeps")
NO_MEMORY = looking_model("allocator fails")
ENDLESS = looking_model("waits for ever")
OWN_BUDGET = Case("a budget of its own: admissions", epsilon=1e-6, noise_multiplier=3000.0, delta=1e-8, admissions=True)
"""Without a whole table an admission needs 84 prices with the target, 12 without it; the table has 196."""

TWO_RUNS = Case("two runs in turn", beside=True)

FAST = [
    HONEST,
    TWO_RUNS,
    Case("two runs in turn, NaN record", beside=True, target="NaN"),
    Case("an honest model, production", is_production=True),
    NAN_BY_WEIGHTS,
    RAISES,
    SLEEPS,
    NO_MEMORY,
    ENDLESS,
    looking_model("raises rpdp's own error"),
    looking_model("other shape"),
    looking_model("sys.exit", "item"),
    looking_model("raises", "shape"),
    looking_model("raises", first=True),
    looking_model("sleeps", "text"),
    looking_model("sleeps", "guarded"),
    looking_loss("raises"),
    looking_loss("sleeps", "item"),
    Case("weights of 10³⁰", weights="1e30"),
    Case("crafted weights, logits", model="ReLU", weights="crafted"),
    Case("crafted weights, asserting loss", model="ReLU", loss="asserting", weights="crafted"),
    Case("crafted weights, checked distribution", model="ReLU", loss="distribution", weights="crafted"),
    Case("a lookup by activation", model="indexing", weights="1e30"),
    Case("a factorisation", model="factorising", weights="its own", target="NaN"),
    Case("a label out of range", loss="classes", label=BAD_LABEL),
    Case("a record of NaN", target="NaN"),
    Case("an infinite record", target="infinite", first=True),
    Case("denormal weights and record, wide", model="wide", weights="denormal", target="denormal"),
    Case("the largest numbers", weights="largest", target="largest"),
    Case("a loop as long as the input says", model="repeating"),
    Case("a learning rate of 10⁻³⁰", recipe={"learning_rate": 1e-30}),
    Case("a learning rate of 10³⁰", recipe={"learning_rate": 1e30}),
    OWN_BUDGET,
    Case("a budget of its own: rounds", epsilon=1.25),
    Case("half of the rounds", participation=None, participations=ROUNDS // 2, target="NaN"),
]

_EFFECTS = [looking_model(effect, look) for effect, look in product(zoo.EFFECTS, ("bool", "item", "shape"))]
_LOOKS = [looking_model("raises", look) for look in zoo.LOOKS] + [looking_loss("raises", look) for look in zoo.LOOKS]
_HIDDEN = [looking_model("sleeps", look) for look in ("text", "guarded")]
_FIRST = [looking_model(effect, first=True) for effect in zoo.EFFECTS]
_IN_LOSS = [looking_loss(effect) for effect in zoo.EFFECTS]

_RECORDS = [
    Case(f"{model}, {loss}: {target} record, weights {weights}", model, loss, target, weights=weights)
    for model, loss, target, weights in product(
        ("logistic", "ReLU"),
        ("logits",),
        zoo.TARGETS,
        ("zeros", "its own", "1e30", "alternating", "largest", "denormal"),
    )
]
_CRAFTED = [
    Case(f"{model}, {loss}: {weights} weights", model, loss, weights=weights)
    for (model, loss), weights in product(
        (("ReLU", "logits"), ("ReLU", "asserting"), ("ReLU", "distribution"), ("sigmoid", "probabilities")),
        ("crafted", "crafted, modest"),
    )
]
_OTHER_MODELS = [
    Case(f"{model}: {target} record, weights {weights}", model, target=target, weights=weights)
    for model, target, weights in product(
        ("indexing", "factorising", "repeating", "wide"), ("marked", "NaN", "huge", "denormal"), ("its own", "1e30")
    )
]
_RECIPES: dict[str, dict[str, Any]] = {
    "learning rate 1e-30": {"learning_rate": 1e-30},
    "learning rate 1e30": {"learning_rate": 1e30},
    "momentum .999999": {"momentum": 0.999999},
    "Adam": {"optimiser": "adam"},
    "micro-batch 256": {"micro_batch": 256},
    "micro-batch 1e18": {"micro_batch": 10**18},
    "decay .001": {"decay": 0.001},
    "proximal 1e30": {"backbone": "fedprox", "backbone_settings": {"proximal": 1e30}},
    "SCAFFOLD": {"backbone": "scaffold"},
}
_SCHEDULES: dict[str, dict[str, Any]] = {
    "one step": {"local_steps": 1},
    "twenty steps": {"local_steps": 20},
    "exactly half": {"participation": None, "participations": ROUNDS // 2},
    "a coin": {"participation": 0.5},
}
_SERVERS = [
    *(
        Case(f"{target} record, {name}", target=target, recipe=recipe, correction=1e30 if name == "SCAFFOLD" else None)
        for target, (name, recipe) in product(("marked", "NaN"), _RECIPES.items())
    ),
    *(
        Case(f"{target} record, {name}", target=target, **schedule)
        for target, (name, schedule) in product(("marked", "NaN", "huge"), _SCHEDULES.items())
    ),
    *(
        Case(f"two runs in turn, {target} record, {weights}", beside=True, target=target, weights=weights)
        for target, weights in product(("marked", "NaN", "huge"), ("zeros", "1e30"))
    ),
    Case("two runs in turn, production", beside=True, is_production=True),
    *(Case(f"production, {target} record", target=target, is_production=True) for target in zoo.TARGETS),
]

SLOW = list(
    {
        case.name: case
        for case in (
            *FAST, *_EFFECTS, *_LOOKS, *_HIDDEN, *_FIRST, *_IN_LOSS, *_RECORDS, *_CRAFTED, *_OTHER_MODELS, *_SERVERS
        )
    }.values()
)  # fmt: skip
