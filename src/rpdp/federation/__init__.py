"""Silos, the server, backbones, runs on one machine, and the coordinator of a run over silo agents.

Names load on first use: a Flower app starts a process for every message and needs neither torch nor a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.lazy import lazy_names

if TYPE_CHECKING:
    from rpdp.federation.backbones import Backbone as Backbone
    from rpdp.federation.backbones import make_backbone as make_backbone
    from rpdp.federation.evaluation import Evaluation as Evaluation
    from rpdp.federation.fingerprint import model_fingerprint as model_fingerprint
    from rpdp.federation.messages import Announcement as Announcement
    from rpdp.federation.messages import Update as Update
    from rpdp.federation.policy import Policy as Policy
    from rpdp.federation.production import run_production as run_production
    from rpdp.federation.released_sums import ReleasedSums as ReleasedSums
    from rpdp.federation.released_sums import release_sums as release_sums
    from rpdp.federation.run_result import RoundLog as RoundLog
    from rpdp.federation.run_result import RunResult as RunResult
    from rpdp.federation.run_result import SiloView as SiloView
    from rpdp.federation.score import Score as Score
    from rpdp.federation.server import Server as Server
    from rpdp.federation.silo import Silo as Silo
    from rpdp.federation.simulation import simulate as simulate
    from rpdp.federation.tensorboard_log import TensorBoardLog as TensorBoardLog
    from rpdp.federation.unprotected import UnprotectedSilo as UnprotectedSilo

_HOME_OF = {
    "Announcement": "rpdp.federation.messages",
    "Backbone": "rpdp.federation.backbones",
    "Evaluation": "rpdp.federation.evaluation",
    "Policy": "rpdp.federation.policy",
    "ReleasedSums": "rpdp.federation.released_sums",
    "RoundLog": "rpdp.federation.run_result",
    "RunResult": "rpdp.federation.run_result",
    "Score": "rpdp.federation.score",
    "Server": "rpdp.federation.server",
    "Silo": "rpdp.federation.silo",
    "SiloView": "rpdp.federation.run_result",
    "TensorBoardLog": "rpdp.federation.tensorboard_log",
    "UnprotectedSilo": "rpdp.federation.unprotected",
    "Update": "rpdp.federation.messages",
    "make_backbone": "rpdp.federation.backbones",
    "model_fingerprint": "rpdp.federation.fingerprint",
    "release_sums": "rpdp.federation.released_sums",
    "run_production": "rpdp.federation.production",
    "simulate": "rpdp.federation.simulation",
}

__all__ = [*_HOME_OF]
__getattr__ = lazy_names(__name__, _HOME_OF)
