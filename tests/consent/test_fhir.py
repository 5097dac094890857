"""What FHIR resources say: every status and edge, and nothing that is guessed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rpdp.consent import read_consents
from rpdp.errors import InputError

from .made import CHOICES, NOW, SCOPE, bundle, concept, consent, read, the_map, written

EXAMPLES = Path(os.environ.get("RPDP_DATA", "/nonexistent")) / "fhir-examples"
"""`r4/` and `r5/` with the Consent resources of the npm packages hl7.fhir.r4.examples and hl7.fhir.r5.examples."""


def decided(directory: Path, *resources: dict[str, Any], **options: Any) -> dict[str, tuple[str, str]]:
    """By person: what counts, and the ε or the reason."""
    latest = read(directory, *resources, **options).decisions.latest
    return {one.person: (one.kind, one.why if one.choice is None else f"{one.choice.epsilon:g}") for one in latest}


@pytest.mark.parametrize("version", ["R4B", "R5"])
@pytest.mark.parametrize("code", CHOICES)
def test_a_permitted_code_is_a_budget(tmp_path: Path, version: str, code: str) -> None:
    one = consent("c", "p1", code, version=version)
    assert decided(tmp_path, one, version=version) == {"p1": ("allows", f"{CHOICES[code][0]:g}")}


@pytest.mark.parametrize(
    ("version", "status", "kind"),
    [
        *(("R4B", status, "ended") for status in ("rejected", "inactive", "entered-in-error")),
        *(("R5", status, "ended") for status in ("inactive", "not-done", "entered-in-error", "unknown")),
        *((version, "active", "allows") for version in ("R4B", "R5")),
    ],
)
def test_every_status(tmp_path: Path, version: str, status: str, kind: str) -> None:
    one = consent("c", "p", status=status, version=version)
    assert decided(tmp_path, one, version=version)["p"][0] == kind


@pytest.mark.parametrize(("version", "status"), [("R4B", "draft"), ("R4B", "proposed"), ("R5", "draft")])
def test_a_draft_leaves_the_earlier_consent_in_force(tmp_path: Path, version: str, status: str) -> None:
    earlier = consent("c", "p", "narrow", version=version)
    draft = consent("d", "p", "broad", status=status, written="2026-05-09", version=version)
    assert decided(tmp_path, earlier, draft, version=version) == {"p": ("allows", "0.5")}
    assert decided(tmp_path, draft, version=version) == {}


@pytest.mark.parametrize("version", ["R4B", "R5"])
def test_another_scope_is_passed_over_whatever_it_holds(tmp_path: Path, version: str) -> None:
    other = consent("c", "p", "unheard-of", version=version, scope="treatment")
    found = read(tmp_path, other, consent("d", "q", version=version), version=version)
    assert [one.person for one in found.decisions.latest] == ["q"]
    assert found.decisions.passed_over == {"of another scope": 1}


class TestPeriods:
    @pytest.mark.parametrize(
        ("period", "counts"),
        [
            ({"end": "2026-06-01"}, "allows"),  # the whole day, where the hospital is
            ({"end": "2026-05-31"}, "ended"),
            ({"end": "2026"}, "allows"),
            ({"end": "2026-05"}, "ended"),
            ({"end": "2026-06-01T14:00:00+02:00"}, "ended"),  # 12:00 UTC and a second
            ({"end": "2026-06-01T14:00:01+02:00"}, "allows"),
            ({"end": "2026-06-01T12:00:01Z"}, "allows"),
            ({"start": "2026-06-01"}, "allows"),
            ({"start": "2026-06-02"}, None),
            ({"start": "2020-01-01", "end": "2030-01-01"}, "allows"),
        ],
    )
    def test_a_provision_holds_in_its_period(self, tmp_path: Path, period: dict[str, str], counts: str | None) -> None:
        now = NOW.replace(second=1) if period == {"end": "2026-06-01T14:00:00+02:00"} else NOW
        found = decided(tmp_path, consent("c", "p", period=period), now=now)
        assert (found["p"][0] if found else None) == counts

    def test_time_zones_decide_when_a_day_ends(self, tmp_path: Path) -> None:
        """At 22:30 UTC it is the next day in Berlin and the same day in UTC."""
        late = NOW.replace(hour=22, minute=30)
        path = written(tmp_path, bundle(consent("c", "p", period={"end": "2026-06-01"})))
        berlin = read_consents(path, the_map(tmp_path), late).decisions.latest[0]
        utc = read_consents(path, the_map(tmp_path, **{"Europe/Berlin": "UTC"}), late).decisions.latest[0]
        assert (berlin.kind, utc.kind) == ("ended", "allows")

    def test_the_period_of_an_r5_resource_counts(self, tmp_path: Path) -> None:
        over = consent("c", "p", version="R5", period=None) | {"period": {"end": "2025"}}
        assert decided(tmp_path, over, version="R5")["p"] == ("ended", "expired on 2025")

    def test_a_denial_for_a_time_is_a_denial(self, tmp_path: Path) -> None:
        over = consent("c", "p", kind="deny", period={"end": "2025"})
        assert decided(tmp_path, over)["p"] == ("ended", "denied")


class TestProvisions:
    def test_nested_ones_say_themselves_what_they_do(self, tmp_path: Path) -> None:
        inner = [{"type": "permit", "code": [concept("narrow")]}, {"type": "deny", "code": [concept("broad")]}]
        one = consent("c", "p", None, kind="deny") | {"provision": {"type": "deny", "provision": inner}}
        assert decided(tmp_path, one) == {"p": ("allows", "0.5")}

    def test_what_is_denied_anywhere_is_denied(self, tmp_path: Path) -> None:
        inner = {"provision": [{"type": "deny", "code": [concept("broad")]}]}
        one = consent("c", "p")
        one["provision"] |= inner
        assert decided(tmp_path, one) == {"p": ("ended", "denied")}

    def test_an_outer_period_limits_what_is_within(self, tmp_path: Path) -> None:
        inner = [{"type": "permit", "code": [concept("broad")]}]
        one = consent("c", "p", None) | {"provision": {"period": {"end": "2025"}, "provision": inner}}
        assert decided(tmp_path, one)["p"] == ("ended", "expired on 2025")

    def test_codes_that_say_nothing_may_stand_beside(self, tmp_path: Path) -> None:
        one = consent("c", "p")
        one["provision"]["code"].append(concept("newsletter"))
        assert decided(tmp_path, one) == {"p": ("allows", "2")}

    def test_no_use_is_a_choice(self, tmp_path: Path) -> None:
        assert decided(tmp_path, consent("c", "p", "none")) == {"p": ("ended", "chose no use")}

    @pytest.mark.parametrize(
        ("meaning", "decision", "counts"),
        [
            ("constraints", "permit", "allows"),
            ("constraints", "deny", "ended"),
            ("exceptions", "deny", "allows"),
            ("exceptions", "permit", "ended"),
        ],
    )
    def test_r5_provisions_mean_what_the_map_says(
        self, tmp_path: Path, meaning: str, decision: str, counts: str
    ) -> None:
        changes = {'r5_provisions = "constraints"': f'r5_provisions = "{meaning}"'}
        path = written(tmp_path, bundle(consent("c", "p", version="R5", kind=decision)))
        found = read_consents(path, the_map(tmp_path, "R5", **changes), NOW)
        assert found.decisions.latest[0].kind == counts


def changed(**parts: Any) -> dict[str, Any]:
    """A good consent of p1 with other parts; a part of the provision begins with an underscore."""
    one = consent("c-7", "p1")
    one["provision"] |= {name[1:]: value for name, value in parts.items() if name.startswith("_")}
    return one | {name: value for name, value in parts.items() if not name.startswith("_")}


ACTOR = [{"role": concept("PRCP", "urn:roles"), "reference": {"reference": "Organization/1"}}]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown code": (
        changed(_code=[concept("unheard-of")]),
        r"the code 'urn:example:choices\|unheard-of' is neither",
    ),
    "an unknown purpose": (changed(_purpose=[{"system": "urn:x", "code": "y"}]), r"the code 'urn:x\|y' is neither"),
    "a code in words": (changed(_code=[{"text": "everything"}]), r"the code '\(none\)' is neither"),
    "no code at all": (changed(_code=None), "no provision permits or denies"),
    "two choices": (changed(_code=[concept("broad"), concept("tiny")]), "permits different choices at once"),
    "a concept of two choices": (
        changed(_code=[{"coding": [*concept("broad")["coding"], *concept("tiny")["coding"]]}]),
        "one concept has codes of different choices",
    ),
    "neither permit nor deny": (changed(_type=None), "does not say whether it permits or denies"),
    "only for some users": (changed(_actor=ACTOR), "actor narrows this consent"),
    "only some data": (changed(_dataPeriod={"start": "2020"}), "dataPeriod narrows this consent"),
    "a modifier": (
        changed(modifierExtension=[{"url": "urn:not", "valueBoolean": True}]),
        "modifierExtension narrows this consent",
    ),
    "a modifier within": (
        changed(_modifierExtension=[{"url": "urn:not", "valueBoolean": True}]),
        "modifierExtension narrows this consent",
    ),
    "no patient": (changed(patient=None), "the patient is not named by a reference"),
    "a contained patient": (changed(patient={"reference": "#p"}), "the patient is not named by a reference"),
    "an odd person": (changed(patient={"reference": "Patient/a\u202eb"}), "printable characters"),
    "an unknown status": (changed(status="maybe"), "status"),
    "a wrong date": (changed(dateTime="03.05.2026"), "not a Consent of FHIR R4B"),
    "a wrong period": (changed(_period={"end": "soon"}), "not a Consent of FHIR R4B"),
    "from the future": (changed(dateTime="2027-01-01"), "dated in the future"),
    "an element that FHIR does not have": (changed(statuz="active"), "not a Consent of FHIR R4B"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_named_with_the_resource(tmp_path: Path, what: str) -> None:
    resource, said = REFUSED[what]
    good = consent("good", "p2")
    resource = {name: value for name, value in resource.items() if value is not None}
    resource["provision"] = {name: value for name, value in resource["provision"].items() if value is not None}
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, good, resource)
    assert "Consent/c-7" in str(caught.value)
    assert [one.person for one in read(tmp_path, good).decisions.latest] == ["p2"]  # the control


class TestSeveralOfOnePerson:
    def test_the_latest_counts(self, tmp_path: Path) -> None:
        old, new = consent("a", "p", "broad", written="2025"), consent("b", "p", "tiny", written="2026-01-02")
        assert decided(tmp_path, new, old) == decided(tmp_path, old, new) == {"p": ("allows", "0.1")}

    def test_a_revocation_counts_from_when_it_was_written(self, tmp_path: Path) -> None:
        old = consent("a", "p", written="2026-05-03T10:00:00+02:00")
        revoked = consent("b", "p", status="inactive", written="2026-05-03T09:00:00Z")  # 11:00 there
        assert decided(tmp_path, old, revoked) == {"p": ("ended", "status inactive")}

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("2026-05-03", "2026-05-03"),
            ("2026-05", "2026-05-03T10:00:00Z"),
            ("2026-05-03T10:00:00Z", "2026-05-03T12:00:00+02:00"),
            ("2026", "2026-05"),
        ],
    )
    def test_ties_are_an_error(self, tmp_path: Path, one: str, other: str) -> None:
        with pytest.raises(InputError, match=r"Consent/a and Consent/b|Consent/b and Consent/a"):
            read(tmp_path, consent("a", "p", written=one), consent("b", "p", "tiny", written=other))

    def test_without_a_date_there_may_be_one_only(self, tmp_path: Path) -> None:
        undated = consent("a", "p", written=None)
        assert decided(tmp_path, undated) == {"p": ("allows", "2")}
        with pytest.raises(InputError, match="Consent/a: it does not say when"):
            read(tmp_path, undated, consent("b", "p"))

    def test_the_same_resource_twice(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="Consent/a is there more than once"):
            read(tmp_path, consent("a", "p"), consent("a", "p", written="2026-05-04"))


DOCUMENTS: dict[str, tuple[object, str]] = {
    "xml": ("<Bundle xmlns='http://hl7.org/fhir'/>", "this is XML; FHIR is read as JSON only"),
    "no json": ("{", "not FHIR in JSON"),
    "another resource": ({"resourceType": "Patient"}, "resourceType='Patient'"),
    "a list": ([], "resourceType=None"),
    "a history": (bundle(consent("a", "p")) | {"type": "history"}, "a bundle of type 'history'"),
    "a page": (bundle(consent("a", "p"), link=[{"relation": "next", "url": "x"}]), "one page of several"),
    "nothing": (bundle({"resourceType": "Patient", "id": "p"}), "no Consent resource"),
    "an empty entry": ({"resourceType": "Bundle", "type": "collection", "entry": [{}]}, "entry 1"),
    "a key twice": ('{"resourceType": "Bundle", "type": "collection", "type": "history"}', "a key stands twice"),
    "too deep": ("[" * 100_000, "not FHIR in JSON"),
}


@pytest.mark.parametrize("what", DOCUMENTS)
def test_documents_that_are_not_a_bundle_of_consents(tmp_path: Path, what: str) -> None:
    document, said = DOCUMENTS[what]
    with pytest.raises(InputError, match=said):
        read_consents(written(tmp_path, document), the_map(tmp_path), NOW)


def test_identifiers_name_persons_too(tmp_path: Path) -> None:
    by_number = the_map(tmp_path, **{'version = "R4B"': 'version = "R4B"\npatient = "identifier"\nsystem = "urn:mrn"'})
    one = consent("c", "x") | {"patient": {"identifier": {"system": "urn:mrn", "value": "0017"}}}
    found = read_consents(written(tmp_path, bundle(one)), by_number, NOW)
    assert [each.person for each in found.decisions.latest] == ["0017"]
    with pytest.raises(InputError, match="Consent/d: the patient has no identifier of the system 'urn:mrn'"):
        read_consents(written(tmp_path, bundle(one, consent("d", "y"))), by_number, NOW)


def example_files() -> list[Path]:
    return sorted(EXAMPLES.glob("r?/Consent-*.json"))


@pytest.mark.skipif(not example_files(), reason=f"no FHIR examples below {EXAMPLES}: the specification's are not read")
class TestTheSpecificationsOwnExamples:
    def test_all_are_well_formed_and_of_another_scope(self, tmp_path: Path) -> None:
        counts = {}
        for version, folder in (("R4B", "r4"), ("R5", "r5")):
            resources = [json.loads(path.read_text()) for path in example_files() if path.parent.name == folder]
            found = read(tmp_path, *resources, version=version)
            assert found.decisions.latest == ()
            counts[version] = found.decisions.passed_over["of another scope"]
        assert counts == {"R4B": 12, "R5": 12}

    @pytest.mark.parametrize("path", example_files(), ids=lambda path: f"{path.parent.name}-{path.stem}")
    def test_as_consents_for_research_each_is_refused_by_name(self, tmp_path: Path, path: Path) -> None:
        """They permit by actor, data or period alone: no code says what a budget would be."""
        resource = json.loads(path.read_text())
        version = "R4B" if path.parent.name == "r4" else "R5"
        resource |= (
            {"scope": concept("research", SCOPE)} if version == "R4B" else {"category": [concept("research", SCOPE)]}
        )
        with pytest.raises(InputError, match=f"Consent/{resource['id']}: "):
            read(tmp_path, resource, version=version)

    @pytest.mark.parametrize("path", example_files(), ids=lambda path: f"{path.parent.name}-{path.stem}")
    def test_with_a_choice_each_is_imported(self, tmp_path: Path, path: Path) -> None:
        resource = json.loads(path.read_text())
        version = "R4B" if path.parent.name == "r4" else "R5"
        plain = consent("x", "x", "narrow", version=version)
        resource |= {name: plain[name] for name in ("scope", "category", "provision", "decision") if name in plain}
        [found] = read(tmp_path, resource, version=version).decisions.latest
        assert found.choice is not None
        assert found.choice.epsilon == 0.5
        assert resource["patient" if version == "R4B" else "subject"]["reference"] == f"Patient/{found.person}"


@pytest.mark.slow
def test_a_bundle_of_50_megabytes(tmp_path: Path) -> None:
    padding: dict[str, Any] = {
        "text": {"status": "generated", "div": f'<div xmlns="http://www.w3.org/1999/xhtml">{"x" * 1500}</div>'}
    }
    resources = [consent(f"c{number}", f"p{number}", **padding) for number in range(24_000)]
    path = written(tmp_path, bundle(*resources))
    assert path.stat().st_size > 50_000_000
    start = time.perf_counter()
    found = read_consents(path, the_map(tmp_path), NOW)
    assert len(found.decisions.latest) == 24_000
    assert time.perf_counter() - start < 300.0
