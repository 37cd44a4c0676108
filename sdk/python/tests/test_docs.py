"""The examples of the docstrings and of README.md run, and print what they say."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import dsec

# The client proper; what stands on other packages is tested with them.
MODULES = [
    importlib.import_module(m.name)
    for p in pkgutil.iter_modules(dsec.__path__, "dsec.")
    if p.name.startswith("dsec._") or p.name == "dsec.errors"
    for m in [p, *(pkgutil.iter_modules(importlib.import_module(p.name).__path__, p.name + ".") if p.ispkg else ())]
]


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found: dict[str, doctest.DocTest] = {}
    for module in [dsec, *MODULES]:
        for test in finder.find(module):
            if test.examples:
                found[test.name] = test
    return list(found.values())


async def run(test: doctest.DocTest, names: dict[str, Any]) -> None:
    checker = doctest.OutputChecker()
    for e in test.examples:
        out = io.StringIO()
        code = compile(e.source, test.name, "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(out):
            try:
                value = eval(code, names)
                if inspect.isawaitable(value):
                    await value
            except Exception as error:
                if e.exc_msg is None:
                    raise
                assert f"{type(error).__module__}.{type(error).__name__}: {error}\n" == e.exc_msg
                continue
        got = out.getvalue()
        assert checker.check_output(e.want, got, 0), f"{e.source}{e.want!r} is {got!r}"


@pytest.mark.parametrize("test", examples(), ids=lambda t: t.name)
def test_docstring(test: doctest.DocTest) -> None:
    names = dict(test.globs)
    names.update({n: getattr(dsec, n) for n in dsec.__all__}, dsec=dsec)

    async def asynchronous() -> None:
        async with dsec.AsyncClient() as client:
            await run(test, names | {"client": client})

    if "_async" in test.name or "_creating" in test.name:
        asyncio.run(asynchronous())
    else:
        with dsec.Client() as client:
            asyncio.run(run(test, names | {"client": client}))


README = Path(__file__).resolve().parent.parent / "README.md"


@pytest.mark.parametrize(
    "block", re.findall(r"```python\n(.*?)```", README.read_text(), re.S), ids=lambda b: b.split("\n")[0]
)
def test_readme(block: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    block = re.sub(r'Client\("http://127\.0\.0\.1:7070"\)', "Client()", block)
    code = compile(block, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, {"__name__": "__main__"})
    if inspect.isawaitable(value):

        async def awaited() -> None:
            await value

        asyncio.run(awaited())
    printed = capsys.readouterr().out
    for line in re.findall(r"#> (.*)", block):
        assert line in printed
