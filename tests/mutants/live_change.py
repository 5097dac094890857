"""Changes a module that is loaded: its functions get the code that they would have if the changed file were loaded.

A fork of a process that has loaded everything can try a change at once; to load and collect the tests takes longer than
most of them run.
"""

from __future__ import annotations

import gc
import inspect
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class RunsOnImportError(Exception):
    """The change is in code that has run already: a constant, a default value, a decorator, the body of a class."""


def change_functions(path: str, before: str, after: str) -> None:
    """Give the functions of a loaded file the code of the changed text. What is loaded later comes from the file."""
    try:
        pairs = list(_changed(*(compile(text, path, "exec", dont_inherit=True) for text in (before, after))))
    except SyntaxError as error:
        raise RunsOnImportError(str(error)) from None
    # `isinstance` asks an object for its `__class__`, and some of torch's answer with a warning, an error in our tests.
    functions = [one for one in gc.get_objects() if type(one) is FunctionType and one.__code__.co_filename == path]
    if not functions:
        return
    for was, becomes in pairs:
        found = [one for one in functions if _place(one.__code__) == _place(was)]
        if not found:
            raise RunsOnImportError(was.co_qualname)
        for function in found:
            try:
                function.__code__ = becomes
            except ValueError as error:  # it closes over other variables
                raise RunsOnImportError(str(error)) from None


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The outermost functions that differ."""
    inside = [[one for one in code.co_consts if isinstance(one, CodeType)] for code in (old, new)]
    same = _own(old) == _own(new) and [one.co_qualname for one in inside[0]] == [one.co_qualname for one in inside[1]]
    deeper = [pair for parts in zip(*inside, strict=True) for pair in _changed(*parts)] if same else []
    if same and not deeper:
        return
    if old.co_flags & inspect.CO_OPTIMIZED:
        yield old, new
    elif same:
        yield from deeper
    else:
        raise RunsOnImportError(old.co_qualname)


def _own(code: CodeType) -> tuple[object, ...]:
    """What a piece of code does, but for the functions inside it and the numbers of its lines."""
    constants = [(type(one), repr(one)) for one in code.co_consts if not isinstance(one, CodeType)]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, code.co_exceptiontable, code.co_flags, code.co_argcount, constants, names


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno
