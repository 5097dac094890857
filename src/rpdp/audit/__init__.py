"""Audits of one's own runs: what an attacker can prove about each budget group, and whether the build follows its plan.

    subject = Subject(public)                       # or with model, loss, records and budgets of a silo
    result = audit_silo(subject, groups=(0.5, 5.0), per_group=10_000, seed=1)
    result.passed, result.verdict()

Observation (`observation`, `tally`) and analysis (`lower_bound`, `conformance`) are separate, so the releases of a
deployed silo can be analysed as well. Names load on first use: analysis needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.lazy import lazy_names

if TYPE_CHECKING:
    from rpdp.audit.analysis import analyse as analyse
    from rpdp.audit.audit_files import read_audit as read_audit
    from rpdp.audit.audit_result import AuditResult as AuditResult
    from rpdp.audit.audit_result import GroupFinding as GroupFinding
    from rpdp.audit.canaries import Canaries as Canaries
    from rpdp.audit.canaries import canary_budgets as canary_budgets
    from rpdp.audit.canary_law import CanaryLaw as CanaryLaw
    from rpdp.audit.membership_inference import MembershipResult as MembershipResult
    from rpdp.audit.membership_inference import audit_model as audit_model
    from rpdp.audit.observation import go_through as go_through
    from rpdp.audit.observation import round_observation as round_observation
    from rpdp.audit.planting import Planted as Planted
    from rpdp.audit.planting import plant as plant
    from rpdp.audit.question_audit import audit_questions as audit_questions
    from rpdp.audit.request_audit import RequestSubject as RequestSubject
    from rpdp.audit.request_audit import audit_request as audit_request
    from rpdp.audit.risk_comparison import RiskComparison as RiskComparison
    from rpdp.audit.risk_comparison import compare_risk as compare_risk
    from rpdp.audit.run_audit import ModelAudit as ModelAudit
    from rpdp.audit.run_audit import RunAudit as RunAudit
    from rpdp.audit.run_audit import audit_run as audit_run
    from rpdp.audit.run_audit import audit_run_model as audit_run_model
    from rpdp.audit.served_audit import audit_served as audit_served
    from rpdp.audit.silo_audit import Subject as Subject
    from rpdp.audit.silo_audit import audit_silo as audit_silo
    from rpdp.audit.tally import Tally as Tally

_HOME_OF = {
    "AuditResult": "rpdp.audit.audit_result",
    "Canaries": "rpdp.audit.canaries",
    "CanaryLaw": "rpdp.audit.canary_law",
    "GroupFinding": "rpdp.audit.audit_result",
    "MembershipResult": "rpdp.audit.membership_inference",
    "ModelAudit": "rpdp.audit.run_audit",
    "RequestSubject": "rpdp.audit.request_audit",
    "RiskComparison": "rpdp.audit.risk_comparison",
    "Planted": "rpdp.audit.planting",
    "RunAudit": "rpdp.audit.run_audit",
    "Subject": "rpdp.audit.silo_audit",
    "Tally": "rpdp.audit.tally",
    "analyse": "rpdp.audit.analysis",
    "audit_model": "rpdp.audit.membership_inference",
    "audit_questions": "rpdp.audit.question_audit",
    "audit_request": "rpdp.audit.request_audit",
    "audit_run": "rpdp.audit.run_audit",
    "audit_run_model": "rpdp.audit.run_audit",
    "audit_served": "rpdp.audit.served_audit",
    "audit_silo": "rpdp.audit.silo_audit",
    "canary_budgets": "rpdp.audit.canaries",
    "go_through": "rpdp.audit.observation",
    "compare_risk": "rpdp.audit.risk_comparison",
    "plant": "rpdp.audit.planting",
    "read_audit": "rpdp.audit.audit_files",
    "round_observation": "rpdp.audit.observation",
}

__all__ = [*_HOME_OF]
__getattr__ = lazy_names(__name__, _HOME_OF)
