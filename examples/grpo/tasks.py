"""Tasks, and how they are graded."""

from __future__ import annotations

import random

from dsec.gym import Task
from dsec.verify import Case, Verifier

SPEC = {"mem_limit": "64Mi"}


def _task(name: str) -> Task:
    rng = random.Random(name)
    cases = []
    for _ in range(2):
        xs = [rng.randint(-99, 99) for _ in range(5)]
        answer = {"sum": sum, "max": max, "min": min}[name](xs)
        cases.append(Case("python3 solution.py", stdin=f"{name} {' '.join(map(str, xs))}", stdout=str(answer)))
    # What the program prints is compared here, where no code of the agent runs.
    verifier = Verifier(files=["solution.py"], cases=cases, timeout=10, spec=SPEC)
    return Task(f"Write solution.py: it reads `{name} 1 2 3` and prints the {name}.", verifier, name, spec=SPEC)


TASKS = [_task("sum"), _task("max"), _task("min")]
