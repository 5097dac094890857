"""The user's own code, named in a study file as "package.module:function". Modules beside the file can be imported.

This module also computes digests of the user's code and of rpdp, to distinguish results of different code.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rpdp
from rpdp.errors import InputError
from rpdp.setting_fields import nearest
from rpdp.tasks import TASKS, Task

if TYPE_CHECKING:
    from collections.abc import Callable


def load_function(reference: str, directory: Path) -> Callable[..., Any]:
    """Import the function that a reference names."""
    module_name, _, name = reference.partition(":")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(
            f"{reference}: cannot import {module_name}: {error}. Put the module beside the study file, or install its "
            "package"
        ) from None
    except Exception as error:
        raise InputError(f"{reference}: importing {module_name} failed: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{reference}: module {module_name} has no function {name}")
    return function  # type: ignore[no-any-return]


def task_named(name: str, directory: Path) -> Task:
    """Return a built-in task by its name, or the task that a function "package.module:function" returns."""
    if ":" in name:
        made = call_factory(name, directory, seed=0)
        if not isinstance(made, Task):
            raise InputError(f"{name}() returned {type(made).__name__}; it must return a rpdp.tasks.Task")
        return made
    if name not in TASKS:
        raise InputError(
            f"task.name={name!r} is not a built-in task{nearest(name, list(TASKS))}; name a task of another package as "
            '"package.module:function"'
        )
    return TASKS[name]


def call_factory(reference: str, directory: Path, *, seed: int) -> Any:
    """Call a factory and return its result. The factory gets the seed if it has an argument of that name."""
    factory = load_function(reference, directory)
    takes_seed = "seed" in inspect.signature(factory).parameters
    try:
        return factory(seed=seed) if takes_seed else factory()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{reference}() failed: {type(error).__name__}: {error}") from error


def digest_of_code(reference: str, directory: Path) -> str:
    """Return a hash of the file that defines a function or another object, to notice when it changes."""
    found = inspect.unwrap(load_function(reference, directory))
    defines_itself = inspect.isroutine(found) or inspect.isclass(found)
    source = inspect.getsourcefile(found if defines_itself else sys.modules[reference.partition(":")[0]])
    return "" if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()


@cache
def digest_of_product() -> str:
    """Return a hash of the version of rpdp and all its modules, so that results of other code are not reused."""
    home = Path(rpdp.__file__).parent
    digest = hashlib.sha256(rpdp.__version__.encode())
    for path in sorted(home.rglob("*.py")):
        digest.update(f"\n{path.relative_to(home)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
