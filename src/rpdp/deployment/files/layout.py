"""The directory that `rpdp deploy init` writes; each part goes to the machine it is for.

    authority/            ca.key signs certificates, issued/ has a copy of each silo's: keep it offline
    server/               for the server: deploy.toml (names, host, ports), certificate, revocation list, study.toml,
                          plan.json, keys/ (public), app/; nginx.conf of its proxy, loopback/ (certificate behind it)
    silos/NAME/           for that silo: silo.toml to complete; node.toml with the node's key and certificates

Nothing is overwritten, and a failure leaves nothing behind. Only the owner can read the directories.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.deployment.files.certificates import (
    make_authority,
    make_loopback_certificate,
    make_server_certificate,
    make_silo_key,
    replace_file,
)
from rpdp.deployment.files.issuing import Issuer
from rpdp.deployment.files.node_file import NODE_FILE, NodeFile, NodeSection
from rpdp.deployment.files.proxy_file import PROXY_FILE, PROXY_HOME, proxy_configuration
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.deployment.files.study_files import STUDY, write_study
from rpdp.errors import InputError
from rpdp.setting_fields import plain_name
from rpdp.studies.building import public_plan
from rpdp.studies.study_data import make_model
from rpdp.studies.study_tables import SCHEMA_COPY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rpdp.planning import PublicPlan
    from rpdp.studies.study_file import StudyFile

SILO_FILE = "silo.toml"
SUMS = "sums.json"
"""In the directory of a run with a request: what silos released (`ReleasedSums.read`)."""

_DEPLOY = "deploy.toml"
_APP = "rpdp_app"


@dataclass(frozen=True)
class Layout:
    """The directory of a federation.

    Args:
        directory: Where it is.
        host: Where silos reach the server.
        port: The port of its proxy for nodes with a certificate.
        silos: Names of the silos.
        superlink_port: The port of the SuperLink, on the server's loopback.
        stock_port: The proxy's port for nodes that have no certificate, such as Flower's own SuperNode; None for none.
    """

    directory: Path
    host: str
    port: int
    silos: tuple[str, ...]
    superlink_port: int
    stock_port: int | None = None

    @property
    def address(self) -> str:
        """HOST:PORT of the server, for nodes with a certificate."""
        return _address(self.host, self.port)

    @property
    def superlink_address(self) -> str:
        """HOST:PORT of the SuperLink, for the server's own machine."""
        return _address("127.0.0.1", self.superlink_port)

    @property
    def server(self) -> Path:
        """The part for the server."""
        return self.directory / "server"

    @property
    def loopback(self) -> Path:
        """The certificate of the SuperLink on the server's loopback."""
        return self.server / "loopback"

    @property
    def authority(self) -> Path:
        """The part that is kept offline."""
        return self.directory / "authority"

    @property
    def app(self) -> Path:
        """The Flower app."""
        return self.server / "app"

    def silo(self, name: str) -> Path:
        """The part for a silo."""
        return self.directory / "silos" / name

    def silo_file(self, name: str) -> SiloFile:
        """The silo file of a silo."""
        return SiloFile.read(self.silo(name) / SILO_FILE)

    def node_file(self, name: str) -> NodeFile:
        """The node file of a silo."""
        return NodeFile.read(self.silo(name) / NODE_FILE)

    def write_node_file(self, name: str) -> None:
        """Write the node file of a silo, whose key and certificates lie beside it."""
        text = _NODE_FILE.format(section=NodeSection.proposed(name, self.address).text())
        (self.silo(name) / NODE_FILE).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, directory: str | Path) -> Layout:
        """The federation in a directory that `create` made."""
        directory = Path(directory)
        path = directory / "server" / _DEPLOY
        if not path.exists():
            path = directory / _DEPLOY  # where release 0.1 wrote it
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
            names = tuple(plain_name("silos", name) for name in values["silos"])
            host, port = str(values["host"]), int(values["port"])
            superlink = int(values.get("superlink_port", _port_behind(port)))  # absent before there was a proxy
            stock = values.get("stock_port")
            return cls(directory.resolve(), host, port, names, superlink, None if stock is None else int(stock))
        except OSError:
            raise InputError(
                f"{directory}: no federation: server/{_DEPLOY} is missing; run `rpdp deploy init`, or name the "
                "directory that holds `server`"
            ) from None
        except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: damaged: {error}") from None

    @classmethod
    def create(
        cls,
        directory: str | Path,
        spec: StudyFile,
        silos: Sequence[str],
        host: str,
        port: int,
        *,
        superlink_port: int | None = None,
        stock_port: int | None = None,
    ) -> Layout:
        """Write everything except what only a silo knows."""
        directory = Path(directory)
        names = tuple(plain_name("silos", name) for name in silos)
        if not names or len(set(names)) != len(names):
            raise InputError(f"silos={', '.join(silos)!r} must name at least one silo, and none twice")
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise InputError(f"{directory} is not an empty directory; choose another one")
        behind = _port_behind(port) if superlink_port is None else superlink_port
        made = cls(directory.resolve(), host, port, names, behind, stock_port)
        made._require_different_ports()
        plan = public_plan(spec, make_model(spec, 0), names)
        with made.undone_on_failure():
            made._write(spec, plan)
        return made

    @contextmanager
    def undone_on_failure(self) -> Iterator[None]:
        """Remove what `create` wrote, and what was added to it, if the block fails."""
        was_there = self.directory.is_dir() and not self.server.exists()
        try:
            yield
        except BaseException:
            for name in ("authority", "server", "silos"):
                shutil.rmtree(self.directory / name, ignore_errors=True)
            if not was_there:
                with suppress(OSError):  # not made yet, or it holds files of others
                    self.directory.rmdir()
            raise

    def _write(self, spec: StudyFile, plan: PublicPlan) -> None:
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        servers = (self.server, self.server / "keys", self.app, self.app / _APP)
        for folder in (self.authority, *servers, self.directory / "silos", *map(self.silo, self.silos)):
            folder.mkdir(mode=0o700)  # one by one: `parents=True` would ignore the mode
        made = make_authority(self.authority)
        make_server_certificate(made, self.server, dict.fromkeys([self.host, "127.0.0.1", "localhost"]))
        shutil.copy(made.certificate, self.server / "ca.crt")
        write_study(self.server, spec, plan)
        issuer = Issuer(self.authority)
        for name in self.silos:
            key = make_silo_key(self.silo(name), name)
            shutil.copy(key.public, self.server / "keys")
            issuer.issue(self.silo(name), name, key.public)
            shutil.copy(made.certificate, self.silo(name) / "ca.crt")
            if spec.table is not None:
                spec.write_copy(self.silo(name) / STUDY)  # with the schema; it names no record and no budget
            (self.silo(name) / SILO_FILE).write_text(_proposed_silo_file(name, spec, plan), encoding="utf-8")
            self.write_node_file(name)
        issuer.publish(self.server)
        self._write_app()
        self.write_names()
        self.prepare_server()

    def prepare_server(self) -> None:
        """Write what the server's processes need and a server's directory of an earlier release does not have."""
        (self.server / PROXY_HOME).mkdir(mode=0o700, exist_ok=True)
        if not self.loopback.exists():
            make_loopback_certificate(self.loopback)
        text = proxy_configuration(self.host, self.port, self.superlink_port, self.stock_port)
        replace_file(self.server / PROXY_FILE, text.encode(), 0o644)

    def _require_different_ports(self) -> None:
        ports = [self.port, self.superlink_port, *([] if self.stock_port is None else [self.stock_port])]
        if len(set(ports)) != len(ports):
            raise InputError(f"ports {', '.join(map(str, ports))} must all be different: give another --superlink-port")

    def write_names(self) -> None:
        """Write the names of host and silos."""
        listed = ", ".join(f'"{name}"' for name in self.silos)
        stock = "" if self.stock_port is None else f"stock_port = {self.stock_port}\n"
        ports = f"port = {self.port}\nsuperlink_port = {self.superlink_port}\n{stock}"
        text = f'host = "{self.host}"\n{ports}silos = [{listed}]\n'
        replace_file(self.server / _DEPLOY, text.encode(), 0o644)

    def _write_app(self) -> None:
        source = files("rpdp.deployment.flower") / "app_template"
        for name in ("__init__.py", "server_app.py"):
            (self.app / _APP / name).write_text((source / name).read_text(encoding="utf-8"), encoding="utf-8")
        server = json.dumps(str(self.server), ensure_ascii=False)  # JSON escapes are valid in TOML
        text = _PYPROJECT.format(server=server, silos=",".join(self.silos))
        (self.app / "pyproject.toml").write_text(text, encoding="utf-8")


def _port_behind(port: int) -> int:
    """The SuperLink's port, unless it is given: the one after the proxy's."""
    return port + 1 if port < 65535 else port - 1


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "rpdp-app"
version = "1.0.0"
description = "One rpdp run over Flower"
license = "Apache-2.0"
dependencies = ["rpdp[flower,train,ledger]"]

[tool.flwr.app]
publisher = "rpdp"

[tool.flwr.app.components]
serverapp = "rpdp_app.server_app:app"
clientapp = "rpdp.deployment.flower.client_app:app"  # for Flower's own SuperNode; our nodes run no app

[tool.flwr.app.config]
run-id = ""            # the name of the rpdp run; the same name again resumes it
server = {server}
silos = "{silos}"
study = ""             # a study that was added with `rpdp deploy study`; "": the one that the federation was made for
plan = ""              # a plan with a request, in that directory: statistics or evaluation; "": the study's own plan
evaluate = ""          # the run whose model a plan for evaluation measures
deadline = 120.0       # seconds until a round continues without the silos that have not answered
patience = 120.0       # seconds to wait for silos before the first round
least-silos = 0        # the run does not start with fewer silos; 0: all
hold = 0               # seconds that silos hold budgets until the first round; 0: an hour, or longer if need be
test = ""              # "module:function" that returns public test records
log-format = "text"    # text or json: the lines of rpdp in the log of a run
seed = -1              # seed of a simulation, for tests; -1: a real run
"""


_PROPOSED_SHARE = 0.1
"""Proposed as `max_share_per_run` if the study asks for no share; a steward confirms or changes it."""


def _optional_limits(spec: StudyFile) -> str:
    """Return the lines of limits that only some studies state."""
    policy = spec.policy
    reserved = ", ".join(f"{purpose} = {share}" for purpose, share in (policy.reserved or {}).items())
    lines = [
        "" if policy.max_epsilon_per_run is None else f"max_epsilon_per_run = {policy.max_epsilon_per_run}\n",
        f"reserved = {{{reserved}}}\n" if reserved else "",
        f"silos_per_person = {policy.silos_per_person}\n" if policy.silos_per_person > 1 else "",
    ]
    return "".join(lines)


def _account_options(plan: PublicPlan) -> str:
    """Return the options with which `rpdp ledger create` makes the accounts that the plan asks for."""
    account = "" if plan.account is None else f" --account {plan.account}"
    return account + (f" --silos-per-person {plan.silos_per_person}" if plan.silos_per_person > 1 else "")


def _proposed_data(name: str, spec: StudyFile) -> tuple[str, str]:
    """The sections [data] and [models.study] of a silo file."""
    task, table = spec.task, spec.table
    if table is not None:
        schema = STUDY if table.schema_text is None else SCHEMA_COPY
        hidden = "" if table.network.hidden is None else f"\nhidden = {list(table.network.hidden)}"
        file = (table.section.files or {}).get(name, f"{name}.csv")
        path = spec.directory / file
        data = f'table = {json.dumps(str(path) if path.is_file() else file, ensure_ascii=False)}\nschema = "{schema}"'
        if task.model is None:
            return data, f'network = "{table.network.name}"{hidden}'
        return data, f'model = "{task.model}"\nloss = "{task.loss}"'
    if task.name is None:
        return 'factory = "MODULE:FUNCTION"', f'model = "{task.model}"\nloss = "{task.loss}"'
    partition = f'\npartition = "{task.partition}"' if task.partition else ""
    return f'task = "{task.name}"\npart = "{name}"{partition}', f'task = "{task.name}"'


def _proposed_silo_file(name: str, spec: StudyFile, plan: PublicPlan) -> str:
    """A silo file to complete, with limits that just fit this plan; the steward confirms or changes them."""
    schedule = plan.schedule
    share = schedule.participation
    if share is None:
        assert schedule.participations is not None
        share = schedule.participations / schedule.rounds
    data, own = _proposed_data(name, spec)
    return _SILO_FILE.format(
        name=name,
        data=data,
        model=own,
        rounds=schedule.rounds,
        steps=schedule.local_steps,
        share=share,
        clip=plan.clip_norm,
        noise=plan.noise_multiplier,
        delta=spec.policy.lifetime_delta or plan.delta,
        runs=spec.policy.max_runs or 1,
        allowance=spec.policy.max_share_per_run or plan.share or _PROPOSED_SHARE,
        more=_optional_limits(spec),
        account=_account_options(plan),
        plan=plan.fingerprint,
    )


_NODE_FILE = """\
# For `rpdp silo node`, which runs as another user than the agent. Install it with the files that it names, such as in
# /etc/rpdp, and let `socket` be the path of the agent's socket, such as /run/rpdp/agent.sock.
{section}"""


_SILO_FILE = """\
# What this silo holds and agrees to. It stays here: no server sees or changes it.
[silo]
name = "{name}"
ledger = "ledger.db"       # rpdp ledger keygen steward, then: rpdp ledger create ledger.db --budgets budgets.csv \
                           #   --lifetime-delta {delta}{account} --steward steward.pub
budgets = "budgets.csv"    # one budget for each record
socket = "agent.sock"
# group = "flower"         # group that may ask: the node's, if it runs as another user than the agent
# closed_runs = ["name"]   # runs in which this silo no longer takes part

[data]
{data}

[models.study]
{model}

[policy]                   # proposed: just enough for this study; change it before the agent starts
max_rounds = {rounds}
max_local_steps = {steps}
max_participation = {share}
max_clip_norm = {clip}
min_noise_multiplier = {noise}
lifetime_delta = {delta}
max_runs = {runs}
max_share_per_run = {allowance}  # of every lifetime budget: what one run may take at most, such as 0.1 for ten runs
{more}max_hold = 86400           # seconds; how long a run may hold budgets before its first round
release_after = 5.0        # seconds; "ready" answers at once, which reveals how long training takes
# The plan in server/plan.json, and no other; without this line, any plan within the limits may use budgets up.
allowed_plans = ["{plan}"]
"""
