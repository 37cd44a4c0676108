"""Contexts of execution: each is a Jupyter kernel with a language and a working directory."""

import os
import queue
import shlex
import shutil
import tempfile
import threading
import time
import traceback
import uuid

from jupyter_client.manager import KernelManager

from results import output

# What a language is called, and the kernel that runs it.
LANGUAGES = {"python": "python3", "bash": "bash"}


class Unknown(Exception):
    """There is no such context or language; says what there is."""


def lost(why):
    value = f"{why}; its state is lost"
    return {"type": "error", "name": "KernelDied", "value": value, "traceback": f"KernelDied: {value}"}


class Context:
    """One kernel. Executions of a context run one after the other."""

    def __init__(self, language, cwd):
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._turn = threading.Lock()
        self._begin()

    def describe(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def _begin(self):
        # A manager serves one kernel: what it holds ends with it.
        # Its sockets are named by the path of its file: a relative one would follow the kernel's directory.
        file = os.path.join(tempfile.mkdtemp(prefix="kernel-"), "k.json")
        self._manager = KernelManager(kernel_name=LANGUAGES[self.language], transport="ipc", connection_file=file, ip=file)
        self._manager.start_kernel(cwd=self.cwd)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)

    def restart(self):
        """Forgets all state. An execution that runs is ended by it."""
        self._manager.interrupt_kernel()
        with self._turn:
            self._renew()

    def _renew(self):
        self.close()
        self._begin()

    def close(self):
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        shutil.rmtree(os.path.dirname(self._manager.connection_file), ignore_errors=True)

    def execute(self, code, env, gone):
        """Yields what the code puts out, in the order it comes.

        env lasts for this execution. gone tells whether the caller still listens; when it does not,
        the kernel is interrupted, so that the next execution need not wait.
        """
        with self._turn:
            if env:
                self._quietly(self._set(env))
            try:
                yield from self._outputs(self._client.execute(code, allow_stdin=False), gone)
            except Exception as e:  # the kernel's, not the code's: the caller shall hear of it, and the next one find a kernel
                traceback.print_exc()
                self._renew()
                yield lost(f"{type(e).__name__}: {e}")
            finally:
                if env and self._manager.is_alive():
                    self._quietly(self._unset(env))

    def _outputs(self, request, gone):
        interrupted = 0.0
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                if not self._manager.is_alive():
                    self._renew()
                    yield lost("the kernel ended")
                    return
                if gone() and time.monotonic() - interrupted > 2:
                    self._manager.interrupt_kernel()
                    interrupted = time.monotonic()
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle":
                    return
                continue
            line = output(message)
            if line:
                yield line

    def _quietly(self, code):
        request = self._client.execute(code, silent=True, store_history=False)
        for _ in self._outputs(request, lambda: False):
            pass

    def _set(self, env):
        if self.language == "bash":
            return "\n".join(f"export {k}={shlex.quote(v)}" for k, v in env.items() if k.isidentifier())
        return f"import os as _o\n_e = {{k: _o.environ.get(k) for k in {list(env)!r}}}\n_o.environ.update({env!r})"

    def _unset(self, env):
        if self.language == "bash":
            return "unset " + " ".join(k for k in env if k.isidentifier())
        return "for _k, _v in _e.items():\n    _o.environ.pop(_k, None) if _v is None else _o.environ.__setitem__(_k, _v)\ndel _o, _e, _k, _v"


class Contexts:
    """All contexts of the sandbox, among them one by default for each language that was asked for."""

    def __init__(self, home):
        self._home = home
        self._lock = threading.Lock()
        self._all = {}
        self._defaults = {}
        self.default("python")

    def list(self):
        with self._lock:
            return [c.describe() for c in self._all.values()]

    def default(self, language):
        with self._lock:
            if language not in self._defaults:
                self._defaults[language] = self._make(language, self._home)
            return self._defaults[language]

    def create(self, language, cwd):
        with self._lock:
            return self._make(language, cwd or self._home)

    def _make(self, language, cwd):
        if language not in LANGUAGES:
            raise Unknown(f"no kernel for {language}; there are {', '.join(LANGUAGES)}")
        if not os.path.isdir(cwd):
            raise Unknown(f"{cwd} is no directory")
        c = Context(language, cwd)
        self._all[c.id] = c
        return c

    def get(self, id):
        with self._lock:
            if id not in self._all:
                raise KeyError(f"no context {id}")
            return self._all[id]

    def remove(self, id):
        c = self.get(id)
        with self._lock:
            self._all.pop(id, None)
            self._defaults = {k: v for k, v in self._defaults.items() if v is not c}
        c.close()
