"""Consent that arrives as consent: FHIR resources or tables become budgets and withdrawals, by a declared map."""

from __future__ import annotations

from rpdp.consent.consent_import import ConsentImport, read_consents
from rpdp.consent.consent_map import ConsentMap

__all__ = ["ConsentImport", "ConsentMap", "read_consents"]
