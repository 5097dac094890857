"""Every change that can be made to a file, and a stratified sample of changes to many files."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.mutants.mutant import PACKAGE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SCOPE = ("accounting", "planning", "ledger", "federation/silo.py", "deployment/agent")
"""The code on which the promise rests, under src/rpdp."""

LEAST_PER_FILE = 3
_REMOVED = "remove-statement"
_UNCHANGED = {
    "name", "newline", "string", "endmarker", "fstring", "fstring_start", "fstring_string", "fstring_end",
    "fstring_expr", "trailer", "arglist", "simple_stmt", "suite", "atom", "atom_expr", "parameters", "param",
    "import_from", "import_name", "dotted_name",
}  # fmt: skip
_PUNCTUATION = {"(", ")", "[", "]", "{", "}", ",", ":", ".", "=", "->", ";"}


@dataclass(frozen=True)
class Change:
    """One changed line.

    Attributes:
        file: Under src/rpdp.
        line: The first line that is different.
        operator: The kind of change.
        before: The original line.
        after: What stands there instead.
        text: The whole mutated file.
        repeat: How many lines above it read the same.
    """

    file: str
    line: int
    operator: str
    before: str
    after: str
    text: str = field(repr=False)
    repeat: int = 0

    @property
    def name(self) -> str:
        """What identifies it while lines above it come and go."""
        which = f" (again, {self.repeat})" if self.repeat else ""
        return f"{self.file} | {self.operator} | {self.before} | {self.after}{which}"

    def path(self, root: Path) -> Path:
        """The file in a copy of the repository."""
        return root / PACKAGE / self.file

    def applied(self, text: str) -> str:
        """The mutated text; `text` is that from which the change was made."""
        assert text != self.text
        return self.text


@dataclass(frozen=True, order=True)
class _Place:
    """Where one family of operators can change the code, and the ways to do it: operator and occurrence."""

    start: tuple[int, int]
    family: str
    ways: tuple[tuple[str, int], ...]


def files_in_scope(scope: Sequence[str] = SCOPE) -> list[str]:
    """The files of these packages, sorted."""
    package = ROOT / PACKAGE
    found = [
        path
        for name in scope
        for path in ([package / name] if name.endswith(".py") else package.glob(f"{name}/**/*.py"))
    ]
    return sorted(path.relative_to(package).as_posix() for path in found)


def sample(count: int, seed: int, scope: Sequence[str] = SCOPE) -> list[Change]:
    """About `count` changes: of every file in proportion to its places, one way at each chosen place."""
    places = {file: places_in((ROOT / PACKAGE / file).read_text(encoding="utf-8")) for file in files_in_scope(scope)}
    total = sum(map(len, places.values()))
    chosen = []
    for file, here in places.items():
        share = min(len(here), max(LEAST_PER_FILE, round(count * len(here) / total)))
        chosen += list(_some(file, here, share, random.Random(f"{seed} {file}")))  # noqa: S311 no secret
    return chosen


def _some(file: str, places: list[_Place], count: int, generator: random.Random) -> Iterator[Change]:
    """So many changes of a file; a way that leaves the program as it was, or none, is passed over."""
    original = (ROOT / PACKAGE / file).read_text(encoding="utf-8")
    for place in generator.sample(places, len(places)):
        if count == 0:
            return
        operator, occurrence = generator.choice(place.ways)
        change = made(file, original, operator, occurrence)
        if change is not None:
            count -= 1
            yield change


def made(file: str, original: str, operator: str, occurrence: int) -> Change | None:
    """One change; None if the result is the same program, or none."""
    text = (
        _without_statement(original, occurrence) if operator == _REMOVED else _mutated(original, operator, occurrence)
    )
    try:
        if text is None or ast.dump(ast.parse(text)) == _dumped(original):
            return None
    except SyntaxError:
        return None
    before, after = original.splitlines(), text.splitlines()
    line = next(number for number, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    while not before[line].strip():  # a removed decorator takes the empty line above it along
        line += 1
    old, new = before[line].strip(), after[line].strip()
    repeat = sum(above.strip() == old for above in before[:line])
    return Change(file, line + 1, operator.rpartition("/")[2], old, new, text, repeat)


@cache
def _dumped(source: str) -> str:
    return ast.dump(ast.parse(source))


def places_in(source: str) -> list[_Place]:
    """Where a source can be changed, annotations and what only type checkers read left out."""
    skipped = _skipped_lines_and_spans(source)
    ways: dict[tuple[tuple[int, int], str], list[tuple[str, int]]] = defaultdict(list)
    nodes = [node for node in ast_nodes(get_ast(source)) if _may_change(node)]
    for name in operator_names():
        operator = _operator(name)
        if operator is None:
            continue
        occurrence = 0
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                if not any(low <= start < high for low, high in skipped):
                    ways[start, name.partition("_")[0]].append((name, occurrence))
                occurrence += 1
    for index, statement in enumerate(_removable(source)):
        ways[(statement.lineno, statement.col_offset), _REMOVED].append((_REMOVED, index))
    return sorted(_Place(start, family, tuple(found)) for (start, family), found in ways.items())


def _may_change(node: Any) -> bool:
    """Whether any operator could apply: most nodes are names and punctuation, and asking 200 operators takes long."""
    return node.type not in _UNCHANGED and not (node.type == "operator" and node.value in _PUNCTUATION)


@cache
def _operator(name: str) -> Any:
    kind = get_operator(name)
    return None if kind.arguments() or name.endswith("/NoOp") else kind()


def _mutated(source: str, operator: str, occurrence: int) -> str | None:
    try:
        text = mutate_code(source, _operator(operator), occurrence)
    except AttributeError:  # an operator of the tool that cannot cope with `except (A, module.B)`
        return None
    assert text is None or isinstance(text, str)
    return text


def _skipped_lines_and_spans(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.append(node)
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if isinstance(part, ast.AST):
                found.append(part)
        if isinstance(node, ast.FunctionDef) and any("overload" in ast.unparse(one) for one in node.decorator_list):
            found += [node, *node.decorator_list]
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found.append(node)
    return [((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0)) for n in found]  # type: ignore[attr-defined]


def _removable(source: str) -> list[ast.stmt]:
    """Statements without which the rest still runs: calls, raises, deletions, changes of something that exists."""
    found = []
    for node in ast.walk(ast.parse(source)):
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        changes = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        if is_call or changes or isinstance(node, ast.Raise | ast.AugAssign | ast.Delete):
            assert isinstance(node, ast.stmt)
            found.append(node)
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _without_statement(source: str, index: int) -> str:
    """The source with `pass` for one statement."""
    node = _removable(source)[index]
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    kept = lines[first][: node.col_offset] + b"pass" + lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], kept, *lines[last + 1 :]]).decode()
