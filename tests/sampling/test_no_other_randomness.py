"""All randomness on the release path comes from rpdp.sampling: no other generator is touched there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import rpdp_lab

import rpdp

PACKAGE = Path(rpdp.__file__).parent
RIVALS = Path(rpdp_lab.__file__).parent / "rivals"
RELEASE_PATH = [PACKAGE / "sampling", PACKAGE / "training", PACKAGE / "federation", RIVALS]

BANNED_MODULES = re.compile(r"^(random|secrets|uuid|numpy\.random|torch\.random|torch\.distributions|scipy\.stats)\b")
BANNED_NAMES = re.compile(
    r"^(np|numpy)\.random\b"
    r"|^torch\.(rand|randn|randint|randperm|rand_like|randn_like|randint_like|normal|bernoulli|multinomial|poisson)$"
    r"|^torch\.(manual_seed|seed|initial_seed|default_generator|Generator|random\b.*|cuda\.manual_seed.*)$"
    r"|\.(normal_|uniform_|bernoulli_|exponential_|log_normal_|cauchy_|geometric_|random_)$"
)


NO_DRAW = {
    "record_masks.py": {"aten.bernoulli_"},  # compares operators, to draw a record's own mask in their place
    "value_checks.py": {"torch.random.fork_rng", "torch.random"},  # leaves torch's generator as it was after a check
}
"""What is named without drawing from it."""


def dotted(node: ast.AST) -> str:
    """The name that an attribute chain spells; a chain on something else than a name begins with a dot."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def foreign_randomness(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if BANNED_MODULES.search(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name for name in names if BANNED_MODULES.search(name) or BANNED_NAMES.search(name)]
        elif isinstance(node, ast.Attribute) and BANNED_NAMES.search(dotted(node)):
            found.append(dotted(node))
    return found


@pytest.mark.parametrize("layer", RELEASE_PATH, ids=lambda path: path.name)
def test_no_foreign_generator_on_the_release_path(layer: Path) -> None:
    files = sorted(layer.rglob("*.py"))
    assert files, f"{layer} holds no module: has it moved?"
    found = {
        str(file): [
            name
            for name in foreign_randomness(file.read_text(encoding="utf-8"))
            if name not in NO_DRAW.get(file.name, set())
        ]
        for file in files
    }
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "from random import gauss",
        "import numpy.random as r",
        "from numpy import random",
        "from numpy.random import default_rng",
        "noise = np.random.default_rng(0)",
        "numpy.random.seed(1)",
        "x = torch.randn(3)",
        "x = torch.randn_like(y)",
        "from torch import rand",
        "torch.manual_seed(0)",
        "torch.empty(3).normal_(0, 1)",
        "self.buffer.uniform_()",
        "mask = torch.bernoulli(p)",
        "generator = torch.Generator()",
    ],
)
def test_the_ban_is_noticed(source: str) -> None:
    assert foreign_randomness(source)


@pytest.mark.parametrize("source", ["randomness.uniforms(3)", "from rpdp.sampling import randomness", "x.normalise()"])
def test_our_own_randomness_is_allowed(source: str) -> None:
    assert not foreign_randomness(source)
