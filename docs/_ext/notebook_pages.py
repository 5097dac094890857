"""Pages that are notebooks: their cells are run when the site is built, and what they print stands below them.

Such a page is MyST notebook text, which Jupyter opens with jupytext: front matter that names a kernel, and cells in
`{code-cell}` fences. All cells of a page share one namespace. Below a cell stands what it prints, and what its last
expression shows in a notebook. An exception ends the build: a page never shows a result that is not one.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import warnings
from typing import TYPE_CHECKING, Any

from sphinx.errors import ExtensionError

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_NOTEBOOK = re.compile(r"\A---\n.*?^kernelspec:.*?^---\n", re.DOTALL | re.MULTILINE)

_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def is_notebook(text: str) -> bool:
    """Whether a page is a notebook: its front matter names a kernel."""
    return _NOTEBOOK.match(text) is not None


def with_outputs(page: str, text: str) -> str:
    """The Markdown of a notebook after all its cells were run."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    numbers = iter(range(1, text.count("```{code-cell}") + 1))
    return _CELL.sub(lambda cell: _ran(f"{page}, cell {next(numbers)}", cell[1], namespace), _NOTEBOOK.sub("", text, 1))


def _ran(name: str, code: str, namespace: dict[str, Any]) -> str:
    """A cell and its output as Markdown."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("error")
            value = _run(name, code, namespace)
    except Exception as error:
        raise ExtensionError(f"{name}: {type(error).__name__}: {error}", error) from error
    parts = [f"```python\n{code}```"]
    if printed.getvalue():
        parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
    if value is not None:
        html = getattr(value, "_repr_html_", None)
        parts.append(f"```text\n{value!r}\n```" if html is None else f"```{{raw}} html\n{html()}\n```")
    return "\n\n".join(parts)


def _run(name: str, code: str, namespace: dict[str, Any]) -> object:
    """Run the statements of a cell; the value of its last expression, if it ends with one without a semicolon."""
    body = ast.parse(code, name).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) and not code.rstrip().endswith(";") else None
    exec(compile(ast.Module(body, []), name, "exec"), namespace)  # noqa: S102 the site's own pages
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), namespace)  # type: ignore[attr-defined]  # noqa: S307


def _fill(app: Sphinx, page: str, source: list[str]) -> None:
    if is_notebook(source[0]):
        source[0] = with_outputs(page, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
