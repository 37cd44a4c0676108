"""Runs the cases against one version of the Python SDKs, sync or async. Prints a line of JSON for each case.

Environment: CONF_FLAVOUR (sync or async), CONF_RUN (name), CONF_WILDCARD (domain whose names mean this machine), E2B_*
as a user sets them. Arguments: substrings of the names of the cases to run; --list prints the SDK's public calls.
"""

import asyncio
import json
import os
import socket
import sys
import time
import traceback

import e2b
import e2b_code_interpreter as ci
import record
from harness import cases, refusals, tag, w

flavour = os.environ.get("CONF_FLAVOUR", "sync")
modules = [e2b, ci]
if sys.argv[1:] == ["--list"]:
    print("\n".join(record.enumerate_calls(modules, flavour)))
    sys.exit()

# The wildcard record that a deployment has in DNS.
lookup = socket.getaddrinfo
wildcard = "." + os.environ["CONF_WILDCARD"]


def getaddrinfo(host, *args, **kwargs):
    name = host.decode() if isinstance(host, bytes) else host
    return lookup("127.0.0.1" if name and name.endswith(wildcard) else host, *args, **kwargs)


socket.getaddrinfo = getaddrinfo
record.patch(modules, flavour)
import case_commands  # noqa: E402,F401
import case_files  # noqa: E402,F401
import case_git  # noqa: E402,F401
import case_interpreter  # noqa: E402,F401
import case_pty  # noqa: E402,F401
import case_refusals  # noqa: E402,F401
import case_sandbox  # noqa: E402,F401
import case_template  # noqa: E402,F401


class Kit:
    """The SDK under test, and the sandbox that cases share."""

    def __init__(self):
        a = "Async" if flavour == "async" else ""
        self.is_async = bool(a)
        self.sdk, self.ci = e2b, ci
        self.Sandbox = getattr(e2b, f"{a}Sandbox")
        self.Template = getattr(e2b, f"{a}Template")
        self.Volume = getattr(e2b, f"{a}Volume", None)
        self.Secret = getattr(e2b, f"{a}Secret", None)
        self.Interpreter = getattr(ci, f"{a}Sandbox")
        self.new = self.Volume is not None
        self.template = os.environ["CONF_TEMPLATE"]
        self.made = []

    async def create(self, **opts):
        opts.setdefault("timeout", 120)
        opts["metadata"] = {"run": tag, **opts.get("metadata", {})}
        s = await w(self.Sandbox.create(self.template, **opts))
        self.made.append(s.sandbox_id)
        return s


async def main():
    k = Kit()
    wanted = sys.argv[1:]
    k.sbx = await k.create(timeout=1200)
    failed = 0
    for name, fn, only in cases:
        if not only(k) or wanted and not any(x in name for x in wanted):
            continue
        record.calls.clear()
        refusals.clear()
        begun = time.monotonic()
        out = {"case": name, "outcome": "pass"}
        try:
            await asyncio.wait_for(fn(k), float(os.environ.get("CONF_CASE_MS", 150_000)) / 1000)
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            failed += 1
            out |= {"outcome": "FAIL", "detail": "".join(traceback.format_exception(e))[-2000:]}
        print(json.dumps({**out, "calls": sorted(record.calls), "refused": list(refusals), "ms": int((time.monotonic() - begun) * 1000)}), flush=True)
    for i in k.made:
        try:
            await w(k.Sandbox.kill(i))
        except Exception:
            pass
    os._exit(1 if failed else 0)


asyncio.run(main())
