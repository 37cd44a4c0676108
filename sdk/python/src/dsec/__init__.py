"""Client of DSec: isolated, stateful boxes for training and evaluating agents.

``Client`` is for threads, ``AsyncClient`` for an event loop; they are the same otherwise.

>>> import dsec
>>> with dsec.Client() as client, client.create() as session:
...     print(session.exec("echo hello").stdout.strip())
hello
"""

from ._async.client import AsyncClient
from ._async.files import AsyncFiles
from ._async.group import AsyncGroup
from ._async.process import AsyncProcess
from ._async.session import AsyncSession, AsyncShell
from ._exec_types import (
    Chunk,
    Command,
    ExecEvent,
    ExecResult,
    Exited,
    Gap,
    Operation,
    Output,
    PtySize,
    Started,
)
from ._outcome import Outcome
from ._sync.client import Client
from ._sync.files import Files
from ._sync.group import Group
from ._sync.process import Process
from ._sync.session import Session, Shell
from ._types import FileChange, FileInfo, Inspection, Phase, SessionInfo, Template
from ._version import __version__
from .errors import (
    CommandError,
    DSecError,
    InfrastructureError,
    LimitError,
    PolicyError,
    UserError,
)

__all__ = [
    "AsyncClient",
    "AsyncFiles",
    "AsyncGroup",
    "AsyncProcess",
    "AsyncSession",
    "AsyncShell",
    "Chunk",
    "Client",
    "Command",
    "CommandError",
    "DSecError",
    "ExecEvent",
    "ExecResult",
    "Exited",
    "FileChange",
    "FileInfo",
    "Files",
    "Gap",
    "Group",
    "InfrastructureError",
    "Inspection",
    "LimitError",
    "Operation",
    "Outcome",
    "Output",
    "Phase",
    "PolicyError",
    "Process",
    "PtySize",
    "Session",
    "SessionInfo",
    "Shell",
    "Started",
    "Template",
    "UserError",
    "__version__",
]
