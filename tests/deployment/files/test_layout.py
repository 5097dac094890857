"""What `rpdp deploy init` writes: a directory that others cannot look into, complete or not there at all."""

from __future__ import annotations

import os
import shutil
import stat
import tomllib
from pathlib import Path

import pytest

from rpdp.deployment.agent.opening import open_agent, record_ids
from rpdp.deployment.files.certificates import ServerCertificate
from rpdp.deployment.files.layout import Layout
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.deployment.flower.control import Control
from rpdp.deployment.trial import provide_trial_budgets
from rpdp.errors import InputError
from rpdp.federation import model_fingerprint
from rpdp.planning import PublicPlan
from rpdp.studies.study_data import make_model
from rpdp.studies.study_file import StudyFile
from tests.deployment.trials import study_text
from tests.studies.toy import Change, write_run

STUDY = study_text(clip_norm=0.7, lifetime_delta=1.23456789e-3)
SILOS = ("silo-00", "silo-01")


@pytest.fixture
def study(tmp_path: Path) -> StudyFile:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return StudyFile.read(path)


@pytest.fixture
def layout(tmp_path: Path, study: StudyFile) -> Layout:
    return Layout.create(tmp_path / "f", study, SILOS, "fl.example", 8443)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_there(layout: Layout) -> None:
    found = {str(path.relative_to(layout.directory)) for path in layout.directory.rglob("*") if path.is_file()}
    shared = {*(f"authority/{name}" for name in ("ca.crt", "ca.key", "clients.crl")), "server/ca.crt"}
    issued = {f"authority/issued/{path.name}" for path in (layout.authority / "issued").iterdir()}
    assert len(issued) == len(SILOS)
    names = ("deploy.toml", "server.crt", "server.key", "clients.crl", "study.toml", "plan.json", "nginx.conf")
    loopback = tuple(f"loopback/{name}" for name in ("ca.crt", "server.crt", "server.key"))
    server = {f"server/{name}" for name in (*names, *loopback)}
    app = {"pyproject.toml", *(f"rpdp_app/{name}.py" for name in ("__init__", "server_app"))}
    keys = {f"server/keys/{name}.pub" for name in SILOS}
    own = {f"silos/{name}/{name}.{file}" for name in SILOS for file in ("key", "tls.key", "pub", "crt")}
    silos = own | {f"silos/{name}/{file}" for name in SILOS for file in ("ca.crt", "silo.toml", "node.toml")}
    assert found == shared | issued | server | {f"server/app/{name}" for name in app} | keys | silos
    assert Layout.read(layout.directory) == layout
    assert (layout.host, layout.port, layout.silos) == ("fl.example", 8443, SILOS)
    for name in SILOS:
        assert (layout.silo(name) / f"{name}.pub").read_text() == (layout.server / "keys" / f"{name}.pub").read_text()


def test_only_the_owner_looks_in(tmp_path: Path, study: StudyFile) -> None:
    before = os.umask(0)  # the worst one
    try:
        layout = Layout.create(tmp_path / "f", study, SILOS, "fl.example", 8443)
        provide_trial_budgets(layout, study)
    finally:
        os.umask(before)
    folders = [layout.directory, *(path for path in layout.directory.rglob("*") if path.is_dir())]
    assert {mode(folder) for folder in folders} == {0o700}
    secrets = [path for path in layout.directory.rglob("*") if path.suffix == ".key" or path.name == "ledger.db"]
    assert len(secrets) == 3 + 4 * len(SILOS)  # of each silo its key twice, ledger, that one's key
    assert {mode(path) for path in secrets} == {0o600}


def test_the_plan(layout: Layout, study: StudyFile) -> None:
    plan = PublicPlan.read(layout.server / "plan.json")
    assert (plan.schedule.rounds, plan.schedule.local_steps, plan.schedule.participations) == (3, 4, 1)
    assert (plan.noise_multiplier, plan.clip_norm, plan.delta) == (4.5, 0.7, 1e-3)
    assert plan.model_fingerprint == model_fingerprint(make_model(study, 0))
    assert (layout.server / "study.toml").read_text() == STUDY
    again = Layout.create(layout.directory.with_name("g"), study, SILOS, "fl.example", 8443)
    assert PublicPlan.read(again.server / "plan.json").fingerprint == plan.fingerprint
    keys = [(each.silo("silo-00") / "silo-00.key").read_bytes() for each in (layout, again)]
    assert keys[0] != keys[1]


def test_the_proposed_policy_just_fits(layout: Layout) -> None:
    plan = PublicPlan.read(layout.server / "plan.json")
    spec = SiloFile.read(layout.silo("silo-01") / "silo.toml")
    assert spec.silo.name == spec.data.part == "silo-01"
    policy = spec.policy.policy()
    policy.require(plan, 1)
    assert (policy.max_rounds, policy.max_local_steps, policy.max_participation) == (3, 4, 1 / 3)
    assert (policy.max_clip_norm, policy.min_noise_multiplier) == (0.7, 4.5)
    assert (policy.lifetime_delta, policy.max_runs) == (1.23456789e-3, 2)
    assert (policy.max_share_per_run, policy.silos_per_person) == (0.5, 1)
    assert policy.allowed_plans == (plan.fingerprint,)
    assert "--lifetime-delta 0.00123456789" in (layout.silo("silo-01") / "silo.toml").read_text()


@pytest.mark.parametrize(
    ("host", "address"), [("fl.example", "fl.example:8443"), ("10.0.0.7", "10.0.0.7:8443"), ("::1", "[::1]:8443")]
)
def test_the_names_of_the_server(tmp_path: Path, study: StudyFile, host: str, address: str) -> None:
    layout = Layout.create(tmp_path / "f", study, SILOS, host, 8443)
    home = layout.server
    names = ServerCertificate.of(home).names()
    assert set(names) == {host, "127.0.0.1", "localhost"}
    assert (layout.address, layout.superlink_address) == (address, "127.0.0.1:8444")
    assert Control.of(layout).address == layout.superlink_address


def test_the_app(layout: Layout) -> None:
    told = tomllib.loads((layout.app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert told["components"] == {
        "serverapp": "rpdp_app.server_app:app",
        "clientapp": "rpdp.deployment.flower.client_app:app",
    }
    assert told["config"]["server"] == str(layout.server)
    assert told["config"]["silos"] == "silo-00,silo-01"
    assert all("_" not in key for key in told["config"])


def test_a_path_with_quotes(tmp_path: Path, study: StudyFile) -> None:
    layout = Layout.create(tmp_path / 'a "b" \\ Ü', study, SILOS, "fl.example", 8443)
    told = tomllib.loads((layout.app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert told["config"]["server"] == str(layout.server)


def test_paths_may_be_text(tmp_path: Path, study: StudyFile) -> None:
    layout = Layout.create(str(tmp_path / "f"), study, SILOS, "fl.example", 8443)
    assert Layout.read(str(tmp_path / "f")) == layout
    assert layout.silo_file("silo-01") == SiloFile.read(str(layout.silo("silo-01") / "silo.toml"))
    assert ServerCertificate.of(str(layout.server)).names() == ServerCertificate.of(layout.server).names()


def test_the_client_app_is_the_installed_one(layout: Layout) -> None:
    """Flower finds it from the copied app, and its copy holds no code for silos."""
    from flwr.clientapp import ClientApp
    from flwr.supercore.object_ref import load_app, validate

    told = tomllib.loads((layout.app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["components"]
    for component in told.values():
        assert validate(component, check_module=True, project_dir=layout.app) == (True, None)
    assert isinstance(load_app(told["clientapp"], RuntimeError, layout.app), ClientApp)
    assert validate("rpdp_app.client_app:app", check_module=True, project_dir=layout.app)[0] is False  # the control


def test_nothing_is_overwritten(layout: Layout, study: StudyFile) -> None:
    before = {path: path.read_bytes() for path in layout.directory.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="is not an empty directory; choose another one"):
        Layout.create(layout.directory, study, SILOS, "fl.example", 8443)
    assert {path: path.read_bytes() for path in layout.directory.rglob("*") if path.is_file()} == before


def test_a_file_of_that_name(tmp_path: Path, study: StudyFile) -> None:
    (tmp_path / "f").write_text("mine")
    with pytest.raises(InputError, match="is not an empty directory"):
        Layout.create(tmp_path / "f", study, SILOS, "fl.example", 8443)
    assert (tmp_path / "f").read_text() == "mine"


@pytest.mark.parametrize(
    ("silos", "host", "expected"),
    [
        ([], "fl.example", "must name at least one silo"),
        (["a", "a"], "fl.example", "none twice"),
        (["a", ""], "fl.example", "silos='' must be a text"),
        (["a", "../b"], "fl.example", "must be the name of a directory"),
        (["a", "Köln"], "fl.example", "name='Köln' must be up to 64 letters"),
        (["a", "b"], "https://fl.example", "neither a host name nor an IP address"),
        (["a", "b"], 'fl"\nport = 1', "neither a host name nor an IP address"),
    ],
)
@pytest.mark.parametrize("was_there", [False, True])
def test_what_fails_leaves_nothing(
    tmp_path: Path, study: StudyFile, silos: list[str], host: str, expected: str, was_there: bool
) -> None:
    directory = tmp_path / "new" / "f"
    if was_there:
        directory.mkdir(parents=True)
    with pytest.raises(InputError, match=expected):
        Layout.create(directory, study, silos, host, 8443)
    assert directory.exists() == was_there
    assert not was_there or list(directory.iterdir()) == []


def test_others_files_are_not_taken_away(layout: Layout) -> None:
    (layout.directory / "notes.txt").write_text("mine")
    with pytest.raises(RuntimeError), layout.undone_on_failure():
        raise RuntimeError
    assert [path.name for path in layout.directory.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("budgets.records_per_silo", None)], "budgets.records_per_silo is missing: declare"),
        ([("training.weights", "{ a = 1 }")], "training.weights names a; the silos are a, b"),
        ([("task.model", "batchnorm")], "BatchNorm1d"),
        ([("task.model", "text")], "returned str"),
    ],
)
def test_a_study_that_cannot_run(tmp_path: Path, changes: list[Change], expected: str) -> None:
    spec = StudyFile.read(write_run(tmp_path, *changes))
    with pytest.raises(Exception, match=expected):
        Layout.create(tmp_path / "f", spec, ["a", "b"], "fl.example", 8443)
    assert not (tmp_path / "f").exists()


def test_own_code_goes_to_the_server(tmp_path: Path) -> None:
    spec = StudyFile.read(write_run(tmp_path))
    module = str(spec.task.model).partition(":")[0]
    layout = Layout.create(tmp_path / "f", spec, ["a", "b"], "fl.example", 8443)
    assert (layout.server / f"{module}.py").read_text() == (tmp_path / f"{module}.py").read_text()
    assert not (layout.silo("a") / f"{module}.py").exists()  # a silo's code is its own
    proposed = SiloFile.read(layout.silo("a") / "silo.toml")
    assert (proposed.models["study"].model, proposed.models["study"].loss) == (f"{module}:model", f"{module}:loss")
    with pytest.raises(InputError, match="MODULE:FUNCTION: cannot import MODULE"):
        record_ids(proposed)


def test_an_own_package_goes_to_the_server(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    module = str(StudyFile.read(path).task.model).partition(":")[0]
    package = tmp_path / "hospital"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.move(tmp_path / f"{module}.py", package / f"{module}.py")
    path.write_text(path.read_text().replace(f'"{module}:', f'"hospital.{module}:'))
    layout = Layout.create(tmp_path / "f", StudyFile.read(path), ["a", "b"], "fl.example", 8443)
    copied = {str(one.relative_to(layout.server)) for one in (layout.server / "hospital").rglob("*.py")}
    assert copied == {"hospital/__init__.py", f"hospital/{module}.py"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "no federation: server/deploy.toml is missing"),
        ("host = ", "deploy.toml: damaged"),
        ('host = "a"\nport = 1', "damaged: 'silos'"),
        ('host = "a"\nport = "x"\nsilos = ["a"]', "damaged"),
        ('host = "a"\nport = 1\nsilos = ["../a"]', "damaged: silos='../a' must be"),
        ('host = "a"\nport = 1\nsilos = 3', "damaged"),
    ],
)
def test_damaged(tmp_path: Path, text: str | None, expected: str) -> None:
    if text is not None:
        (tmp_path / "deploy.toml").write_text(text)  # where release 0.1 had it
    with pytest.raises(InputError, match=expected):
        Layout.read(tmp_path)


def test_trial_budgets(layout: Layout, study: StudyFile) -> None:
    provide_trial_budgets(layout, study)
    for name in SILOS:
        spec = SiloFile.read(layout.silo(name) / "silo.toml")
        with open_agent(spec) as agent:
            assert agent.silo.name == name
            assert not agent.silo.account.is_simulation
            assert agent.silo.budgets.ids.to_pylist() == record_ids(spec)
            assert set(agent.silo.budgets.epsilon) == {0.1, 1.0, 5.0}
