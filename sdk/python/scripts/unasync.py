#!/usr/bin/env python3
"""Makes src/dsec/_sync of src/dsec/_async, and the scenarios for threads of those for the loop. With --check it only says whether that is due."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "dsec"

WORDS = {
    "AsyncIterator": "Iterator",
    "AsyncIterable": "Iterable",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
}

RULES = [
    (r"from \.\._creating import Creating\n", ""),
    (r"Creating\[(\w+)\] \| Creating\[(\w+)\]", r"\1 | \2"),
    (r"Creating\[(\w+)\]", r"\1"),
    (r"return Creating\((.*)\)\n", r"return \1\n"),
    (r"Awaitable\[(\w+)\]", r"\1"),
    (r"from collections\.abc import Awaitable, ", "from collections.abc import "),
    (r", Awaitable, ", ", "),
    (r"from \.\._io import aio, local\b", "from .._io import blocking\nfrom .._io import local_blocking as local"),
    (r"\baio\b", "blocking"),
    (r"def __aiter__\(self\) -> AsyncIterator", "def __iter__(self) -> Iterator"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\basync_(client|session)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z]\w+)\b", lambda m: WORDS.get(m[0], m[1])),
    (r"\b(__aenter__|__aexit__|aclose)\b", lambda m: WORDS[m[0]]),
    (r"``dsec\._sync`` is made from this by ``scripts/unasync\.py``", "``dsec._sync`` is made of ``dsec._async``: do not edit"),
    (r"others on the loop come first", "others come first"),
    (r"on an event loop; test_sync_scenarios\.py is made of it for threads", "in threads"),
]

HEAD = "# Made of its asynchronous twin by scripts/unasync.py. Do not edit.\n"


def translate(text: str) -> str:
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return HEAD + text


def main() -> int:
    stale = []
    tests = PACKAGE.parent.parent / "tests"
    pairs = [(p, PACKAGE / "_sync" / p.name) for p in sorted((PACKAGE / "_async").glob("*.py"))]
    pairs += [(tests / "test_async_scenarios.py", tests / "test_sync_scenarios.py")]
    for source, target in pairs:
        text = translate(source.read_text())
        if target.exists() and target.read_text() == text:
            continue
        stale.append(target.name)
        if "--check" not in sys.argv:
            target.parent.mkdir(exist_ok=True)
            target.write_text(text)
    made = {p.name for p in (PACKAGE / "_async").glob("*.py")}
    for extra in (PACKAGE / "_sync").glob("*.py"):
        if extra.name not in made:
            stale.append(extra.name)
            if "--check" not in sys.argv:
                extra.unlink()
    if stale and "--check" in sys.argv:
        print("stale: " + ", ".join(stale) + "; run scripts/unasync.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
