"""The cookbook's loop learns, and is not misled by a network that breaks in the middle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dsec

sys.path.insert(0, str(Path(__file__).parents[4] / "examples" / "grpo"))

import grpo  # noqa: E402


def test_it_learns_whatever_breaks(wire: Any, wired: dsec.Client) -> None:
    phases: list[str] = []

    def between(update: int) -> None:
        if update == 0:
            phases.extend(s.phase for s in wired.list(lease_id=wired.lease_id, phases=["RUNNING", "SUSPENDED"]))
        if update == 1:
            wire.cut()
        if update == 2:
            wire.mend()

    history = grpo.train(wired, 6, seed=0, between=between)
    assert phases == ["SUSPENDED"] * grpo.GROUP
    assert [h["masked"] for h in history] == [0, 0, grpo.GROUP, 0, 0, 0]
    assert history[-1]["reward"] > history[0]["reward"], history
