"""The examples of the docstrings and of docs/gym.md run, and print what they say."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import dsec
import dsec.gym
import dsec.verify


def test_docstrings() -> None:
    for module in (dsec.verify, dsec.gym):
        result = doctest.testmod(module, extraglobs={"dsec": dsec})
        assert result.attempted and not result.failed, module


def test_page() -> None:
    page = (Path(__file__).parents[4] / "docs" / "gym.md").read_text()
    found = re.findall(r"```python\n(.*?)```\n```output\n(.*?)```", page, re.S)
    assert found
    for code, want in found:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, {})
        assert out.getvalue() == want
