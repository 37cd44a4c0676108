import asyncio
import logging
import os
import time
import urllib.error
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone

from harness import case, eq, eventually, match, tag, throws, w

nobody = "01jzzzzzzzzzzzzzzzzzzzzzzz"


def until(info):
    return (info.end_at - datetime.now(timezone.utc)).total_seconds()


@case("sandbox/create with options")
async def _(k):
    s = await k.create(timeout=90, metadata={"purpose": "a b&c=d"}, envs={"GREETING": "hello", "N": "1"}, allow_internet_access=False, secure=True)
    match(s.sandbox_id, "^[a-z0-9]+$")
    eq((await w(s.commands.run("echo $GREETING $N; whoami; pwd"))).stdout, "hello 1\nuser\n/home/user\n")
    eq((await w(s.commands.run("echo $GREETING", envs={"GREETING": "bye"}))).stdout, "bye\n")
    info = await w(s.get_info())
    eq((info.sandbox_id, info.metadata["purpose"], info.metadata["run"]), (s.sandbox_id, "a b&c=d", tag))
    assert info.template_id
    assert abs((info.started_at - datetime.now(timezone.utc)).total_seconds()) < 60
    assert 30 < until(info) <= 92, until(info)
    eq(info.state.value, "running")
    assert info.cpu_count >= 1 and info.memory_mb >= 1
    match(info.envd_version, r"^\d+\.\d+\.\d+")
    assert s.sandbox_domain and s.traffic_access_token
    eq((await w(s.kill()), await w(s.kill())), (True, False))


@case("sandbox/create from the default template")
async def _(k):
    s = await w(k.Sandbox.create(timeout=60))
    eq((await w(s.commands.run("echo ok"))).stdout, "ok\n")
    eq(await w(k.Sandbox.kill(s.sandbox_id)), True)


@case("sandbox/create of an unknown template, with a key that is none")
async def _(k):
    await throws(k.sdk.SandboxException, "404.*no-such-template", lambda: k.Sandbox.create("no-such-template"))
    await throws(k.sdk.AuthenticationException, ".", lambda: k.Sandbox.create(k.template, api_key="e2b_" + "0" * 40))
    saved = os.environ.pop("E2B_API_KEY")
    try:
        await throws(k.sdk.AuthenticationException, "API key", lambda: k.Sandbox.create(k.template))
    finally:
        os.environ["E2B_API_KEY"] = saved


@case("sandbox/create once by a key", lambda k: k.new)
async def _(k):
    key = str(uuid.uuid4())
    a = await k.create(idempotency_key=key)
    b = await k.create(idempotency_key=key)
    eq(a.sandbox_id, b.sandbox_id)
    await w(a.kill())


@case("sandbox/is_running and kill")
async def _(k):
    s = await k.create()
    eq(await w(s.is_running()), True)
    eq(await w(k.Sandbox.kill(s.sandbox_id)), True)
    eq(await w(s.is_running()), False)
    eq(await w(k.Sandbox.kill(nobody)), False)
    await throws(Exception, ".", lambda: k.Sandbox.connect(s.sandbox_id))
    e = await throws(Exception, ".", lambda: s.commands.run("true"))
    assert isinstance(e, (k.sdk.TimeoutException, k.sdk.NotFoundException)), f"{type(e)}: {e}"
    if k.new:
        assert isinstance(e, (k.sdk.SandboxNotRunningException, k.sdk.SandboxNotFoundException)), f"{type(e)}: {e}"
    await throws(k.sdk.NotFoundException, "not found", lambda: k.Sandbox.get_info(nobody))


@case("sandbox/set_timeout")
async def _(k):
    s = await k.create(timeout=60)
    await w(s.set_timeout(300))
    assert 240 < until(await w(s.get_info())) <= 302
    await w(k.Sandbox.set_timeout(s.sandbox_id, 1))
    await eventually("the sandbox ends by its time-out", lambda: ended(s), 20)
    await throws(k.sdk.SandboxException, ".", lambda: s.set_timeout(10))


async def ended(s):
    return not await w(s.is_running())


@case("sandbox/connect")
async def _(k):
    s = await k.create(timeout=60, envs={"WHO": "first"})
    await w(s.files.write("/tmp/mark", "x"))
    other = await w(k.Sandbox.connect(s.sandbox_id, timeout=200))
    eq((other.sandbox_id, await w(other.files.read("/tmp/mark"))), (s.sandbox_id, "x"))
    eq((await w(other.commands.run("echo $WHO"))).stdout, "first\n")
    assert until(await w(other.get_info())) > 150, "connect raises the time-out"
    again = await w(other.connect(timeout=10))
    assert until(await w(again.get_info())) > 100, "connect never shortens the time-out of a running sandbox"
    await w(s.kill())
    await throws(Exception, "not found|404", lambda: k.Sandbox.connect(nobody))


@case("sandbox/pause and resume")
async def _(k):
    s = await k.create()
    await w(s.commands.run("i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done", background=True, timeout=0))
    await eventually("it counts", lambda: s.files.exists("/tmp/count"))
    # The year-old SDK gives nothing back.
    assert (await w(s.beta_pause())) in (True, None)
    await w(k.Sandbox.beta_pause(s.sandbox_id))
    eq((await w(k.Sandbox.get_info(s.sandbox_id))).state.value, "paused")
    query = k.sdk.SandboxQuery(metadata={"run": tag}, state=[k.sdk.SandboxState.PAUSED])
    assert any(x.sandbox_id == s.sandbox_id for x in await w(k.Sandbox.list(query=query).next_items())), "listed as paused"
    again = await w(s.connect())
    before = int(await w(again.files.read("/tmp/count")) or 0)
    await eventually("the process goes on after the pause", lambda: more(again, before))
    await w(s.kill())


async def more(s, before):
    return int(await w(s.files.read("/tmp/count")) or 0) > before


@case("sandbox/pause, the newer name", lambda k: k.new)
async def _(k):
    s = await k.create()
    eq(await w(s.pause(keep_memory=True)), True)
    eq(await w(k.Sandbox.pause(s.sandbox_id)), False)
    await w(k.Sandbox.connect(s.sandbox_id, on_resume="restore"))
    eq(await w(s.pause(mode="full", strict=True)), True)
    await w(s.connect())
    eq(await w(s.beta_pause(mode="full")), True)
    await w(s.connect())
    eq(await w(s.beta_pause(keep_memory=True)), True)
    await throws(k.sdk.NotFoundException, "not found", lambda: k.Sandbox.pause(nobody))
    await w(s.kill())


@case("sandbox/lifecycle: a time-out that pauses")
async def _(k):
    opts = {"timeout": 2, "metadata": {"run": tag}}
    if k.new:
        s = await w(k.Sandbox.create(k.template, lifecycle={"on_timeout": "pause", "auto_resume": False}, **opts))
    else:
        s = await w(k.Sandbox.beta_create(template=k.template, auto_pause=True, secure=True, allow_internet_access=False, envs={"A": "b"}, **opts))
    await eventually("it is paused", lambda: paused(k, s), 20)
    back = await w(k.Sandbox.connect(s.sandbox_id, timeout=60))
    eq((await w(back.commands.run("echo back"))).stdout, "back\n")
    await w(back.kill())


async def paused(k, s):
    return (await w(k.Sandbox.get_info(s.sandbox_id))).state.value == "paused"


@case("sandbox/lifecycle: traffic resumes", lambda k: k.new)
async def _(k):
    s = await w(k.Sandbox.create(k.template, timeout=60, lifecycle={"on_timeout": "pause", "auto_resume": True}))
    await w(s.pause())
    eq((await w(s.commands.run("echo awake"))).stdout, "awake\n")
    await w(s.kill())


@case("sandbox/list, filters and pages")
async def _(k):
    mine = [await k.create(metadata={"list": tag, "i/ä": f"v={i}&x"}) for i in range(3)]
    Query = k.sdk.SandboxQuery
    pages = k.Sandbox.list(limit=2, query=Query(metadata={"list": tag}, state=[k.sdk.SandboxState.RUNNING]))
    eq(pages.has_next, True)
    first = await w(pages.next_items())
    assert len(first) == 2 and pages.has_next and pages.next_token
    rest = k.Sandbox.list(limit=2, next_token=pages.next_token, query=Query(metadata={"list": tag}))
    second = await w(pages.next_items())
    eq((len(second), pages.has_next), (1, False))
    await throws(Exception, "no more", lambda: pages.next_items())
    eq([x.sandbox_id for x in await w(rest.next_items())], [x.sandbox_id for x in second])
    eq(sorted(x.sandbox_id for x in first + second), sorted(s.sandbox_id for s in mine))
    one = await w(k.Sandbox.list(query=Query(metadata={"list": tag, "i/ä": "v=1&x"})).next_items())
    eq([(x.sandbox_id, x.metadata["i/ä"], x.state.value) for x in one], [(mine[1].sandbox_id, "v=1&x", "running")])
    eq(await w(k.Sandbox.list(query=Query(metadata={"list": "nobody"})).next_items()), [])
    for s in mine:
        await w(s.kill())


@case("sandbox/list, order, start and template", lambda k: k.new)
async def _(k):
    at = datetime.now(timezone.utc)
    a = await k.create(metadata={"order": tag})
    await asyncio.sleep(0.02)
    b = await k.create(metadata={"order": tag})

    async def ids(query={}, **o):
        return [x.sandbox_id for x in await w(k.Sandbox.list(query=k.sdk.SandboxQuery(metadata={"order": tag}, **query), **o).next_items())]

    eq(await ids(order="asc"), [a.sandbox_id, b.sandbox_id])
    eq(await ids(order="desc"), [b.sandbox_id, a.sandbox_id])
    eq(len(await ids({"started_after": at - timedelta(seconds=1)})), 2)
    eq(await ids({"started_after": at + timedelta(hours=1)}), [])
    eq((len(await ids({"template": k.template})), await ids({"template": "another"})), (2, []))
    await w(a.kill())
    await w(b.kill())


@case("sandbox/get_metrics")
async def _(k):
    begun = datetime.now(timezone.utc) - timedelta(minutes=1)
    await w(k.sbx.commands.run("head -c 20M /dev/zero > /home/user/ballast"))
    last = (await eventually("a measurement", lambda: k.sbx.get_metrics(), 20))[-1]
    at = last.timestamp if last.timestamp.tzinfo else last.timestamp.replace(tzinfo=timezone.utc)
    assert at > begun, at
    assert last.cpu_count >= 1 and 0 <= last.cpu_used_pct <= 100 * last.cpu_count + 50, last
    assert 0 < last.mem_used <= last.mem_total and 0 <= last.disk_used <= last.disk_total and last.disk_total > 0, last
    assert await w(k.Sandbox.get_metrics(k.sbx.sandbox_id, start=begun, end=datetime.now(timezone.utc) + timedelta(seconds=5)))
    epoch = datetime.fromtimestamp(0, timezone.utc)
    eq(await w(k.sbx.get_metrics(start=epoch, end=epoch + timedelta(seconds=1))), [])


@case("sandbox/get_host: a server in the sandbox")
async def _(k):
    s = await k.create()
    await w(s.files.write("/home/user/www/index.html", "from inside"))
    await w(s.commands.run("cd www && python3 -m http.server 3000", background=True, timeout=0))
    eq(s.get_host(3000), f"3000-{s.sandbox_id}.{s.sandbox_domain}")

    async def get(port, **headers):
        def fetch():
            try:
                with urllib.request.urlopen(urllib.request.Request(f"https://{s.get_host(port)}/", headers=headers)) as r:
                    return r.status, r.read().decode()
            except urllib.error.HTTPError as e:
                return e.code, ""

        return await asyncio.to_thread(fetch)

    token = {"e2b-traffic-access-token": s.traffic_access_token}
    await eventually("it answers", lambda: answers(get, token))
    assert (await get(3000))[0] in (401, 403), "without the token"
    eq((await get(3999, **token))[0], 502, "nobody listens")
    await w(s.kill())


async def answers(get, token):
    return await get(3000, **token) == (200, "from inside")


@case("sandbox/network")
async def _(k):
    s = await k.create(network={"deny_out": [k.sdk.ALL_TRAFFIC]})
    r = await w(s.commands.run("python3 -c \"import socket; socket.create_connection(('1.1.1.1', 80), 3)\" 2>&1 || echo no way out"))
    match(r.stdout, "no way out")
    await w(s.kill())
    public = await k.create(network={"allow_public_traffic": True})
    await w(public.kill())


@case("sandbox/network: a list of what is let out")
async def _(k):
    s = await k.create(network={"deny_out": [k.sdk.ALL_TRAFFIC], "allow_out": ["203.0.113.7"]})
    r = await w(s.commands.run("python3 -c \"import socket; socket.create_connection(('198.51.100.1', 443), 20)\" 2>&1 || echo refused"))
    match(r.stdout, "refused")
    assert "timed out" not in r.stdout, "what is not let out fails at once"
    if k.new:
        eq((await w(s.get_info())).network["allow_out"], ["203.0.113.7"])
        await w(s.update_network({"deny_out": [k.sdk.ALL_TRAFFIC], "allow_out": ["203.0.113.8"]}))
        eq((await w(s.get_info())).network["allow_out"], ["203.0.113.8"])
        await w(k.Sandbox.update_network(s.sandbox_id, {"allow_internet_access": False}))
        eq((await w(s.get_info())).allow_internet_access, False)
    await w(s.kill())


@case("sandbox/the class bound to a client", lambda k: k.new)
async def _(k):
    client = k.sdk.E2B(api_key=os.environ["E2B_API_KEY"], api_url=os.environ["E2B_API_URL"], sandbox_url=os.environ["E2B_SANDBOX_URL"], domain=os.environ["E2B_DOMAIN"])
    s = await w((client.AsyncSandbox if k.is_async else client.Sandbox).create(k.template, timeout=60))
    eq((await w(s.commands.run("echo bound"))).stdout, "bound\n")
    await w(s.kill())


@case("sandbox/connection options")
async def _(k):
    opts = {"api_key": os.environ["E2B_API_KEY"], "domain": os.environ["E2B_DOMAIN"], "request_timeout": 30, "headers": {"X-Extra": "1"}}
    if k.new:
        opts |= {"retries": 1, "api_headers": {"X-Extra": "2"}, "validate_api_key": True, "http_version": "1.1", "proxy": os.environ["CONF_PROXY"], "logger": logging.getLogger("conf")}
    else:
        opts |= {"proxy": os.environ["CONF_PROXY"]}
    s = await w(k.Sandbox.create(k.template, timeout=60, **opts))
    eq((await w(s.commands.run("echo ok"))).stdout, "ok\n")
    await w(s.kill())
    if k.new:  # the year-old SDK allows as much for each part of a request
        begun = time.monotonic()
        await throws(Exception, "time", lambda: k.Sandbox.create(k.template, request_timeout=0.0005))
        assert time.monotonic() - begun < 20
