"""Rules of this code base that no other tool holds: names that stand once, private names, one tree of exceptions."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import rpdp_lab

import rpdp
from rpdp import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]
PRODUCT, LAB = ROOT / "src/rpdp", ROOT / "lab/src/rpdp_lab"

SAME_FILE_NAMES: dict[str, str] = {}
"""File names that may stand twice in a distribution, and why."""

_TORCH = "PyTorch has no public name for it"
PRIVATE_NAMES_OF_OTHERS = {
    "_BatchNorm": _TORCH,
    "_ConvNd": _TORCH,
    "_InstanceNorm": _TORCH,
    "_forward_hooks": _TORCH,
    "_forward_pre_hooks": _TORCH,
    "_pytree": _TORCH,
    "_qkv_same_embed_dim": _TORCH,
    "_reversed_padding_repeated_twice": _TORCH,
    "_saved_result1": _TORCH,
    "_saved_result2": _TORCH,
    "_schema": _TORCH,
    "_version": "PyTorch documents it as the counter of in-place changes",
}
"""Private names of other objects that may be used, and why."""


MUTABLE = {
    "Certificate": "remembers prices",
    "_OpenFile": "counts who has a database open",
    "_Progress": "counts the rounds of a run",
    "_Run": "counts the rounds of a run",
}
"""Data classes of accounting, planning and the ledger that may change, and why."""


def modules(*roots: Path) -> dict[Path, ast.Module]:
    """Every module below these directories."""
    paths = [path for root in roots for path in sorted(root.rglob("*.py"))]
    assert paths
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


class TestNamesStandOnce:
    @pytest.mark.parametrize("root", [PRODUCT, LAB], ids=["rpdp", "rpdp_lab"])
    def test_file_names(self, root: Path) -> None:
        names = Counter(path.name for path in modules(root) if path.stem not in ("__init__", "__main__"))
        assert {name for name, count in names.items() if count > 1} == set(SAME_FILE_NAMES) & set(names)

    def test_public_classes(self) -> None:
        places = defaultdict(list)
        for path, tree in modules(PRODUCT, LAB).items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
        assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def own_names(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """What a class defines: methods, fields and attributes of `self`, its own and those of bases in the same module."""
    bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    names: set[str] = set().union(*(own_names(base, classes) for base in bases))
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(inner.name)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and is_self(inner.value):
            names.add(inner.attr)
    return names


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Private attributes of objects that are not of the class at hand, and private names imported from elsewhere."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def visit(node: ast.AST, own: frozenset[str]) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.ClassDef):
            own = own | own_names(node, classes)
        if isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if is_private(alias.name))
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            inherited = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super"
            if not is_self(node.value) and not inherited and node.attr not in own:
                yield node.lineno, node.attr
        for child in ast.iter_child_nodes(node):
            yield from visit(child, own)

    yield from visit(tree, frozenset())


class TestPrivateNames:
    def test_nobody_uses_the_private_names_of_another_class_or_module(self) -> None:
        found = {
            f"{path.relative_to(ROOT)}:{line}: {name}"
            for path, tree in modules(PRODUCT, LAB).items()
            for line, name in private_uses(tree)
            if name not in PRIVATE_NAMES_OF_OTHERS
        }
        assert found == set()

    def test_every_exception_to_the_rule_is_needed(self) -> None:
        used = {name for tree in modules(PRODUCT, LAB).values() for _, name in private_uses(tree)}
        assert set(PRIVATE_NAMES_OF_OTHERS) <= used

    @pytest.mark.parametrize(
        ("code", "found"),
        [
            ("class A:\n    def f(self): return self._x._y()", ["_y"]),
            ("class A:\n    def f(self, other): return other._y()", ["_y"]),
            ("class A:\n    def f(self): return self._all[0]._y", ["_y"]),
            ("def f(a): return a._y", ["_y"]),
            ("class A:\n    def f(self, other): other._y = 1; return other._y", ["_y", "_y"]),
            ("from rpdp.cli.progress import _Bar", ["_Bar"]),
            ("class A:\n    _y: int\n    def __eq__(self, other): return self._y == other._y", []),
            ("class A:\n    def _y(self): pass\n    @classmethod\n    def make(cls): made = cls(); made._y()", []),
            ("class A:\n    def __init__(self): self._y = 1\n    def f(self, a): return a._y", []),
            ("class A(B):\n    def _y(self): return super()._y()", []),
            ("class B:\n    _y: int\nclass A(B):\n    def f(self, other): return other._y", []),
        ],
    )
    def test_the_rule_sees_what_it_should(self, code: str, found: list[str]) -> None:
        assert [name for _, name in private_uses(ast.parse(code))] == found


def exception_classes() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Every exception and warning by name: its module, and the names of its bases."""
    known = {name for name, one in vars(builtins).items() if isinstance(one, type) and issubclass(one, BaseException)}
    classes: dict[str, tuple[str, tuple[str, ...]]] = {}
    trees = modules(PRODUCT, LAB)
    grown = True
    while grown:  # a base may be defined in a module that comes later
        grown = False
        for path, tree in trees.items():
            for node in ast.walk(tree):
                if not isinstance(node, ast.ClassDef) or node.name in classes:
                    continue
                bases = tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases)
                if any(base in known or base in classes for base in bases):
                    classes[node.name] = (_module(path), bases)
                    grown = True
    return classes


def _module(path: Path) -> str:
    root = PRODUCT if path.is_relative_to(PRODUCT) else LAB
    return ".".join(path.relative_to(root.parent).with_suffix("").parts)


def drawing() -> dict[str, tuple[str, str]]:
    """The tree at the top of errors.py: every class, its module and its parent there."""
    assert errors.__doc__ is not None
    drawn: dict[str, tuple[str, str]] = {}
    parents: list[str] = []
    for line in errors.__doc__.splitlines():
        entry = re.match(r"    ((?:[│ ]   )*(?:[├└]── )?)(\w+)(?: {2,}(\S.*))?$", line)
        if entry is None:
            continue
        depth = len(entry[1]) // 4
        parents[depth:] = [entry[2]]
        note = entry[3] or ""
        module = note if re.fullmatch(r"[\w.]+", note) else "rpdp.errors"
        drawn[entry[2]] = (module, parents[depth - 1] if depth else "")
    return drawn


class TestExceptions:
    def test_the_drawing_shows_every_exception_below_its_base(self) -> None:
        drawn = drawing()
        assert drawn.pop("UserWarning") == ("rpdp.errors", "")
        classes = exception_classes()
        assert set(drawn) == set(classes)
        for name, (module, bases) in classes.items():
            assert drawn[name] == (module, "" if name == "RpdpError" else bases[0]), name

    def test_every_exception_is_an_rpdp_error(self) -> None:
        drawn = drawing()
        for name in drawn:
            root = name
            while drawn[root][1]:
                root = drawn[root][1]
            assert root == ("UserWarning" if name.endswith("Warning") else "RpdpError")

    def test_the_exit_codes_are_as_drawn(self) -> None:
        assert errors.__doc__ is not None
        codes = dict(re.findall(r"(\w+) +exit code (\d)", errors.__doc__))
        assert codes == {"RpdpError": "1", "InputError": "2", "PrivacyRefusal": "3"}
        for name, code in codes.items():
            assert getattr(errors, name).exit_code == int(code)


PURE = {"isinstance", "issubclass", "len", "callable", "hasattr", "all", "any", "set"}
"""Calls without an effect, which an assert may make."""


def effects(tree: ast.Module) -> Iterator[int]:
    """The lines of asserts that do something: `python -O` would leave it undone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            for inner in ast.walk(node):
                pure = isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in PURE
                doing = ast.Call | ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr
                if isinstance(inner, doing) and not pure:
                    yield node.lineno


class TestAsserts:
    def test_no_assert_has_an_effect(self) -> None:
        found = {str(path.relative_to(ROOT)): [*effects(tree)] for path, tree in modules(PRODUCT, LAB).items()}
        assert {path: lines for path, lines in found.items() if lines} == {}

    @pytest.mark.parametrize(
        "text",
        ["assert chain.append(1) == 2", "assert (n := 1)", "assert x, log()", "async def f():\n assert await g"],
    )
    def test_effects_are_found(self, text: str) -> None:
        assert [*effects(ast.parse(text))]
        assert not [*effects(ast.parse("assert isinstance(x, int) and x.y is not None"))]


def test_there_is_one_version() -> None:
    assert rpdp_lab.__version__ == rpdp.__version__
    assert f"\nversion: {rpdp.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.search(r"^## (\S+)", changes, re.MULTILINE)
    assert latest is not None
    assert latest[1] == rpdp.__version__.partition(".dev")[0]


def test_the_paths_in_the_contributing_guide_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:src|lab|tests|benchmarks)/[\w/.]+)`", text)) - {"src/rpdp/cli/NAME_command.py"}
    assert len(paths) > 15
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_what_the_promise_rests_on_is_frozen() -> None:
    """A plan, a schedule or an event that changes under somebody's hands would no longer be what was priced."""
    found = set()
    for tree in modules(*(PRODUCT / name for name in ("accounting", "planning", "ledger"))).values():
        for node in ast.walk(tree):
            decorators = [ast.unparse(one) for one in node.decorator_list] if isinstance(node, ast.ClassDef) else []
            if any(one.startswith("dataclass") and "frozen=True" not in one for one in decorators):
                assert isinstance(node, ast.ClassDef)
                found.add(node.name)
    assert found == set(MUTABLE)
