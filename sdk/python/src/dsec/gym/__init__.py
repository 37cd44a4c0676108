"""Environments of Gymnasium whose worlds are boxes; ``pip install dsec[gym]``.

>>> import dsec.gym
>>> task = dsec.gym.Task("Print 42.", checker=lambda episode: float("42" in episode.steps[0].output))
>>> env = dsec.gym.DSecEnv(task)
>>> observation, info = env.reset(seed=1)
>>> observation
'Print 42.'
>>> observation, reward, terminated, truncated, info = env.step("echo $((6 * 7))")
>>> observation, info["exit_code"]
('42\\n', 0)
>>> env.step("submit")[1:3]
(1.0, True)
>>> env.close()

``DSecVectorEnv`` steps many at a time. A failure of the platform never counts against the
agent: the step is truncated, its reward is 0, and ``info["masked"]`` says that it is no data.
"""

from gymnasium.envs.registration import register, registry

from ._env import DSecEnv
from ._episode import Episode, Step, Tool
from ._spaces import ActionSpace, TextSpace
from ._task import Checker, Task
from ._vector import DSecVectorEnv

__all__ = [
    "ActionSpace",
    "Checker",
    "DSecEnv",
    "DSecVectorEnv",
    "Episode",
    "Step",
    "Task",
    "TextSpace",
    "Tool",
]

#: For ``gymnasium.make("dsec.gym:DSec-v0", tasks=…)`` and ``make_vec``.
ENV_ID = "DSec-v0"

if ENV_ID not in registry:
    register(ENV_ID, entry_point="dsec.gym:DSecEnv", vector_entry_point="dsec.gym:DSecVectorEnv")
