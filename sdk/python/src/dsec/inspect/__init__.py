"""Sandboxes of DSec for inspect-ai: ``sandbox="dsec"``, after ``pip install dsec[inspect]``.

The server is named by DSEC_URL and DSEC_API_KEY. What boxes are made of is said by a
:class:`DSecSandboxConfig`, or by a file ``dsec.yaml`` beside the task:

    Task(…, sandbox=("dsec", "dsec.yaml"))
    Task(…, sandbox=SandboxEnvironmentSpec("dsec", DSecSandboxConfig(template="python")))
"""

from ._config import DSecSandboxConfig
from ._environment import DSecSandboxEnvironment

__all__ = ["DSecSandboxConfig", "DSecSandboxEnvironment"]
