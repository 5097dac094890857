"""Silos, server, backbones, and the simulator that runs them on one machine."""

from __future__ import annotations

from rpdp.federation.backbones import Backbone, make_backbone
from rpdp.federation.evaluation import Evaluation, Score
from rpdp.federation.fingerprint import model_fingerprint
from rpdp.federation.messages import Announcement, Update
from rpdp.federation.policy import Policy
from rpdp.federation.production import run_production
from rpdp.federation.result import RoundLog, RunResult, SiloView
from rpdp.federation.server import Server
from rpdp.federation.silo import Silo
from rpdp.federation.simulation import simulate

__all__ = [
    "Announcement",
    "Backbone",
    "Evaluation",
    "Policy",
    "RoundLog",
    "RunResult",
    "Score",
    "Server",
    "Silo",
    "SiloView",
    "Update",
    "make_backbone",
    "model_fingerprint",
    "run_production",
    "simulate",
]
