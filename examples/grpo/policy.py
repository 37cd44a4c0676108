"""A policy that chooses among scripts: where a model would be."""

from __future__ import annotations

from typing import Any

import numpy as np

#: What each script writes as the solution, whatever the task.
SCRIPTS = {
    "gives up": "pass\n",
    "cheats": "import os\nos._exit(0)\n",
    "guesses": "print(7)\n",
    "solves": "import sys\nop, *xs = sys.stdin.read().split()\nxs = list(map(int, xs))\n"
    "print({'sum': sum, 'max': max, 'min': min}[op](xs))\n",
}


class Policy:
    """A softmax over scripts, with a step along the policy gradient as its update."""

    #: Turns that each script takes.
    turns = 3

    def __init__(self, rng: np.random.Generator, rate: float = 0.6) -> None:
        self._rng = rng
        self._rate = rate
        self.logits = np.zeros(len(SCRIPTS))

    def probabilities(self) -> np.ndarray:
        """Of the scripts."""
        e = np.exp(self.logits - self.logits.max())
        return e / e.sum()

    def sample(self, n: int) -> np.ndarray:
        """Chooses a script for each of n rollouts."""
        return self._rng.choice(len(SCRIPTS), size=n, p=self.probabilities())

    def act(self, choice: int, turn: int, _seen: str) -> str | dict[str, Any]:
        """Gives a script's next action. A model would read what it has seen."""
        source = list(SCRIPTS.values())[choice]
        actions: list[str | dict[str, Any]] = [
            {"name": "write", "arguments": {"path": "solution.py", "content": source}},
            "echo sum 1 2 3 | python3 solution.py",
            "submit",
        ]
        return actions[turn]

    def update(self, chosen: np.ndarray, advantages: np.ndarray) -> None:
        """Takes a step: up for what did better than its group, down for what did worse."""
        gradient = np.zeros_like(self.logits)
        p = self.probabilities()
        for choice, advantage in zip(chosen, advantages, strict=True):
            gradient += advantage * (np.eye(len(p))[choice] - p)
        self.logits += self._rate * gradient / len(chosen)

    def best(self) -> str:
        """Names the most probable script."""
        return list(SCRIPTS)[int(self.logits.argmax())]
