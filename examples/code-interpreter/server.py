"""The code interpreter of a sandbox: what the SDKs' run_code speaks to, on port 49999.

POST /execute answers with a line of JSON for each output; /contexts keeps the kernels. Only the sandbox's
gateway reaches this port, and it has checked the caller's token.
"""

import json
import os
import re
import select
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kernels import Contexts, Unknown

PORT = 49999
MAX_BODY = 64 << 20


class NotReady(Exception):
    """A kernel did not start in time."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    contexts: Contexts

    def do_GET(self):
        if self.path.split("?")[0] == "/health":
            return self._answer(200, "OK")
        return self._serve("GET")

    def do_POST(self):
        return self._serve("POST")

    def do_DELETE(self):
        return self._serve("DELETE")

    def _serve(self, method):
        path = self.path.split("?")[0].rstrip("/")
        try:
            body = self._body()
            if (method, path) == ("POST", "/execute"):
                return self._execute(body)
            if (method, path) == ("GET", "/contexts"):
                return self._answer(200, self.contexts.list())
            if (method, path) == ("POST", "/contexts"):
                made = self._ready(lambda: self.contexts.create((body.get("language") or "python").lower(), body.get("cwd")))
                return self._answer(201, made.describe())
            if m := re.fullmatch(r"/contexts/([\w-]+)(/restart)?", path):
                if method == "DELETE" and not m[2]:
                    self.contexts.remove(m[1])
                    return self._answer(204, None)
                if method == "POST" and m[2]:
                    self._ready(self.contexts.get(m[1]).restart)
                    return self._answer(204, None)
            return self._answer(404, f"no {method} {path}")
        except KeyError as e:
            return self._answer(404, e.args[0])
        except (Unknown, ValueError) as e:
            return self._answer(400, str(e))
        except NotReady as e:
            return self._answer(504, str(e))

    def _ready(self, begin):
        """Says that a kernel did not start in time, where the connection would break off otherwise."""
        try:
            return begin()
        except RuntimeError as e:
            raise NotReady(f"the kernel has not started: {e}") from e

    def _body(self):
        n = int(self.headers.get("Content-Length") or 0)
        if n > MAX_BODY:
            raise ValueError("the request is too large")
        body = json.loads(self.rfile.read(n) or b"{}")
        if not isinstance(body, dict):
            raise ValueError("the body is no object")
        return body

    def _execute(self, body):
        env = body.get("env_vars") or {}
        if not isinstance(body.get("code"), str) or not all(isinstance(v, str) for v in env.values()):
            raise ValueError("code and env_vars must be strings")
        if body.get("context_id"):
            context = self.contexts.get(body["context_id"])
        else:
            context = self.contexts.default((body.get("language") or "python").lower())
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = context.execute(body["code"], env, self._gone)
        try:
            for line in lines:
                self._chunk(json.dumps(line).encode() + b"\n")
            self._chunk(b"")
        except (BrokenPipeError, ConnectionResetError):
            for _ in lines:  # to its end: the generator interrupts the kernel, because the caller is gone
                pass
            self.close_connection = True

    def _chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _gone(self):
        """Tells whether the caller has closed its connection."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _answer(self, status, value):
        body = b"" if value is None else (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        if value is not None:
            self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def main():
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    Handler.contexts = Contexts(os.path.expanduser("~"))
    server = ThreadingHTTPServer(("0.0.0.0", PORT), Handler)
    server.daemon_threads = True
    print(f"serving on {PORT}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
