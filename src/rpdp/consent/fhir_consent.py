"""FHIR Consent resources, R4B (and R4) and R5, as statements. Whatever a budget cannot express is refused by name.

`fhir.resources` says whether a resource is well formed. What it means is read here, and only what is plain:

| in a provision                                           | means                                                    |
|----------------------------------------------------------|----------------------------------------------------------|
| `type`, `code`, `purpose`, `period`, nested `provision`  | permit or deny a choice of the map while the period lasts|
| `actor`, `action`, `class`, `data`, … , any modifier      | refused: a budget cannot hold only for some users or data|
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rpdp.consent.consent_statements import ConsentStatement, Span, checked_person
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from rpdp.consent.consent_map import BudgetChoice, ConsentMap, FhirRules

    Json = Mapping[str, Any]

_ENDED = {
    "R4B": frozenset({"rejected", "inactive", "entered-in-error"}),
    "R5": frozenset({"inactive", "not-done", "entered-in-error", "unknown"}),
}
_DRAFTS = frozenset({"draft", "proposed"})
_BUNDLES = frozenset({"collection", "searchset"})
_PLAIN = frozenset({"id", "extension", "type", "period", "code", "purpose", "provision"})
OTHER_SCOPE = "of another scope"
_DRAFT, _NOT_BEGUN = "a draft", "not begun yet"


def read_fhir(content: bytes, consent_map: ConsentMap, now: datetime) -> tuple[list[ConsentStatement], dict[str, int]]:
    """The statements of a bundle or a single resource in JSON, and how many resources were passed over."""
    if consent_map.fhir is None:
        raise InputError("the map has no [fhir], which says how to read FHIR resources")
    if content.lstrip()[:1] == b"<":
        raise InputError("this is XML; FHIR is read as JSON only. Ask the server for application/fhir+json")
    try:
        document = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_once)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"not FHIR in JSON: {error}") from None
    reader = _Reader(consent_map, consent_map.fhir, now)
    found: list[ConsentStatement] = []
    passed_over: dict[str, int] = {}
    known: set[str] = set()
    for place, resource in _resources(document):
        if place in known:
            raise InputError(f"{place} is there more than once; nothing was changed")
        known.add(place)
        statement = reader.statement(place, resource)
        if statement is None:
            passed_over[OTHER_SCOPE] = passed_over.get(OTHER_SCOPE, 0) + 1
        else:
            found.append(statement)
    if not known:
        raise InputError("there is no Consent resource in it")
    return found, passed_over


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a key that stands twice could mean either."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _resources(document: Any) -> Iterator[tuple[str, Json]]:
    """The Consent resources of a document, each with how to call it."""
    kind = document.get("resourceType") if isinstance(document, dict) else None
    if kind == "Consent":
        yield _called(document, 1), document
        return
    if kind != "Bundle":
        raise InputError(f"resourceType={kind!r}: give a Bundle of Consent resources, or one Consent")
    if document.get("type") not in _BUNDLES:
        raise InputError(f"a bundle of type {document.get('type')!r} is not a list of what holds now; give a searchset")
    links = document.get("link") or []
    if any(isinstance(link, dict) and link.get("relation") == "next" for link in links):
        raise InputError("this is one page of several (it has a link to the next); put all pages into one bundle")
    for number, entry in enumerate(document.get("entry") or [], start=1):
        resource = entry.get("resource") if isinstance(entry, dict) else None
        if not isinstance(resource, dict):
            raise InputError(f"entry {number} of the bundle holds no resource")
        if resource.get("resourceType") == "Consent":
            yield _called(resource, number), resource


def _called(resource: Json, number: int) -> str:
    name = resource.get("id")
    return f"Consent/{name}" if isinstance(name, str) and name else f"entry {number} (without an id)"


class _Reader:
    """Reads resources by one map, at one time."""

    def __init__(self, consent_map: ConsentMap, rules: FhirRules, now: datetime) -> None:
        self._map = consent_map
        self._rules = rules
        self._now = now
        self._model = _model(rules)

    def statement(self, place: str, resource: Json) -> ConsentStatement | None:
        """What a resource says; None if its scope is another one."""
        try:
            self._model.model_validate(dict(resource))
        except ValueError as error:
            said = " ".join(str(error).split())[:300]
            raise InputError(f"{place}: not a Consent of FHIR {self._rules.version}: {said}") from None
        if not self._is_research(resource):
            return None
        _require_plain(place, resource, "modifierExtension", "implicitRules")
        try:
            return self._read(place, resource)
        except InputError as error:
            said = str(error)
            raise InputError(said if said.startswith(place) else f"{place}: {said}") from None

    def _is_research(self, resource: Json) -> bool:
        concepts = [resource.get("scope"), *(resource.get("category") or [])]
        return any(set(_keys(concept)) & self._rules.scope for concept in concepts if concept)

    def _read(self, place: str, resource: Json) -> ConsentStatement:
        is_r5 = self._rules.version == "R5"
        person = checked_person(place, self._person(place, resource.get("subject" if is_r5 else "patient")))
        when = resource.get("date" if is_r5 else "dateTime")
        written = None if when is None else Span.parse(when, self._map.time_zone)
        status = resource["status"]
        if status in _DRAFTS:
            return ConsentStatement(place, person, "waits", written, why=_DRAFT)
        if status in _ENDED[self._rules.version]:
            return ConsentStatement(place, person, "ended", written, why=f"status {status}")
        if status != "active":
            raise InputError(f"status={status!r} is not known")
        rights = _Rights(self._map, self._now)
        period = resource.get("period") if is_r5 else None
        for provision, kind in self._provisions(resource):
            rights.add(place, provision, kind, [period] if period else [])
        return rights.statement(place, person, written)

    def _person(self, place: str, reference: Any) -> object:
        reference = reference or {}
        if self._rules.patient == "identifier":
            identifier = reference.get("identifier") or {}
            if identifier.get("system") != self._rules.system:
                raise InputError(f"{place}: the patient has no identifier of the system {self._rules.system!r}")
            return identifier.get("value")
        text = reference.get("reference")
        if not isinstance(text, str) or text.startswith("#"):
            raise InputError(f"{place}: the patient is not named by a reference; see fhir.patient in the map")
        head, _, name = text.partition("/_history/")[0].rpartition("/")
        return name if head == "Patient" or head.endswith("/Patient") else text

    def _provisions(self, resource: Json) -> list[tuple[Json, str | None]]:
        """The outermost provisions, each with what it does to the codes in it, as far as that is said above it."""
        given = resource.get("provision")
        if self._rules.version == "R4B":
            return [] if given is None else [(given, given.get("type"))]
        provisions = given or []
        meaning = self._rules.r5_provisions
        if provisions and meaning is None:
            raise InputError(
                "R5 calls provisions exceptions to the decision, and many write into them what the decision covers: "
                'say in the map fhir.r5_provisions = "exceptions" or "constraints"'
            )
        decision = resource.get("decision")
        if provisions and decision not in ("permit", "deny"):
            raise InputError("it has no decision, so its provisions permit or deny nothing")
        other = {"permit": "deny", "deny": "permit"}
        kind = decision if meaning == "constraints" else other.get(str(decision))
        if any(one.get("provision") for one in provisions):
            raise InputError("its provisions are nested, which is read in R4B only")
        return [(one, kind) for one in provisions]


class _Rights:
    """What the provisions of one resource permit and deny, at one time."""

    def __init__(self, consent_map: ConsentMap, now: datetime) -> None:
        self._map = consent_map
        self._now = now
        self._permitted: dict[str, BudgetChoice] = {}
        self._denied: dict[str, BudgetChoice] = {}
        self._expired: str | None = None
        self._is_waiting = False

    def add(self, place: str, provision: Json, kind: str | None, periods: list[Json]) -> None:
        """Take in a provision and those in it."""
        _require_plain(place, provision, *(set(provision) - _PLAIN - {name for name in provision if name[0] == "_"}))
        within = [*periods, provision["period"]] if provision.get("period") else periods
        for concept in [*(provision.get("code") or []), *({"coding": [one]} for one in provision.get("purpose") or [])]:
            code = self._choice_of(concept)
            if code is None:
                continue
            if kind not in ("permit", "deny"):
                raise InputError(f"{code!r} stands in a provision that does not say whether it permits or denies")
            state = self._state(within)
            if state == "holds":
                (self._permitted if kind == "permit" else self._denied)[code] = self._map.choices[code]
            elif kind == "permit":
                self._is_waiting |= state == "waits"
                self._expired = state if state.startswith("expired") else self._expired
            else:  # what is denied for a time only is denied: the next import finds out that it is over
                self._denied[code] = self._map.choices[code]
        for inner in provision.get("provision") or []:
            self.add(place, inner, inner.get("type"), within)

    def _choice_of(self, concept: Json) -> str | None:
        """The code of the map that a concept stands for; None if it says nothing about the budget."""
        keys = _keys(concept)
        known = [key for key in keys if key in self._map.choices]
        if len({self._map.choices[key] for key in known}) > 1:
            raise InputError(f"one concept has codes of different choices: {', '.join(map(repr, known))}")
        if known:
            return known[0]
        if not any(key in self._map.other_codes for key in keys):
            raise InputError(
                f"the code {(keys or ['(none)'])[0]!r} is neither in [choices] of the map nor in other_codes; nothing "
                "was changed"
            )
        return None

    def _state(self, periods: list[Json]) -> str:
        for period in periods:
            if period.get("end") is not None and Span.parse(period["end"], self._map.time_zone).end <= self._now:
                return f"expired on {period['end']}"
            if period.get("start") is not None and Span.parse(period["start"], self._map.time_zone).start > self._now:
                return "waits"
        return "holds"

    def statement(self, place: str, person: str, written: Span | None) -> ConsentStatement:
        """What all provisions together say."""
        left = {code: choice for code, choice in self._permitted.items() if code not in self._denied}
        if len(set(left.values())) > 1:
            raise InputError(f"it permits different choices at once: {', '.join(map(repr, sorted(left)))}")
        if left:
            choice = next(iter(left.values()))
            if choice.epsilon is None:
                return ConsentStatement(place, person, "ended", written, why="chose no use")
            return ConsentStatement(place, person, "allows", written, choice)
        if self._is_waiting and not self._denied:
            return ConsentStatement(place, person, "waits", written, why=_NOT_BEGUN)
        if self._expired:
            return ConsentStatement(place, person, "ended", written, why=self._expired)
        if self._denied:
            return ConsentStatement(place, person, "ended", written, why="denied")
        raise InputError("it is active, but no provision permits or denies a code of the map; nothing was changed")


def _keys(concept: Json) -> list[str]:
    return [f"{one.get('system') or ''}|{one.get('code') or ''}" for one in concept.get("coding") or []]


def _require_plain(place: str, part: Json, *names: str) -> None:
    """Refuse what would narrow a consent in ways that a budget cannot express."""
    held = sorted(name for name in names if part.get(name))
    if held:
        raise InputError(
            f"{place}: {held[0]} narrows this consent in a way that a budget cannot express; nothing was changed. "
            "Leave the resource out, and act on the person by hand (`rpdp ledger withdraw`, `lower`)"
        )


def _model(rules: FhirRules) -> Any:
    if rules.version == "R4B":
        from fhir.resources.R4B.consent import Consent as ConsentR4B

        return ConsentR4B
    from fhir.resources.consent import Consent

    return Consent
