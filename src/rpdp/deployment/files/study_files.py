"""What the server has of a study: its file, the code that it names, and the plan.

server/                       the study that the federation was made for
server/studies/NAME/          another one, for the same silos, agents and ledgers
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.setting_fields import plain_name
from rpdp.studies.building import public_plan
from rpdp.studies.study_data import make_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.planning import PublicPlan
    from rpdp.studies.study_file import StudyFile

STUDY, PLAN = "study.toml", "plan.json"
_STUDIES = "studies"


def study_directory(server: Path, name: str) -> Path:
    """Where the server has a study; the one that the federation was made for has no name."""
    if not name:
        return server
    found = server / _STUDIES / plain_name("study", name)
    if not (found / STUDY).is_file():
        known = ", ".join(sorted(path.parent.name for path in server.glob(f"{_STUDIES}/*/{STUDY}"))) or "none"
        raise InputError(f"study={name!r} was not added to {server}; `rpdp deploy study` adds one (added: {known})")
    return found


def write_study(directory: Path, spec: StudyFile, plan: PublicPlan) -> None:
    """Write study file, code and plan into a directory that exists."""
    spec.write_copy(directory / STUDY)
    for code in _own_code(spec):
        copy = shutil.copytree if code.is_dir() else shutil.copy
        copy(code, directory / code.name)
    plan.write(directory / PLAN)


def add_study(server: Path, name: str, spec: StudyFile, silos: Sequence[str]) -> PublicPlan:
    """Add a study for these silos, and return its plan, which each of them has to allow."""
    directory = server / _STUDIES / plain_name("--name", name)
    if directory.exists():
        raise InputError(f"{directory} exists already; choose another name")
    plan = public_plan(spec, make_model(spec, 0), silos)
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700)
    try:
        write_study(directory, spec, plan)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return plan


def _own_code(spec: StudyFile) -> list[Path]:
    """Modules and packages beside the study file that it names: the server needs the model."""
    names = {reference.partition(":")[0].partition(".")[0] for reference in spec.own_code}
    modules = [path for name in sorted(names) if (path := spec.directory / f"{name}.py").is_file()]
    packages = [path for name in sorted(names) if (path := spec.directory / name / "__init__.py").is_file()]
    return [*modules, *(path.parent for path in packages)]
