"""What this platform does not have is refused, with the reason; nothing is accepted and ignored."""

import os

import record
from harness import case, eq, match, refused, w


@case("refusals/snapshots", lambda k: k.new)
async def _(k):
    s = await k.create()
    E, why = k.sdk.SandboxException, "no snapshots yet"
    await refused(["Sandbox.createSnapshot", "Sandbox.createSnapshot:name", "Sandbox.createSnapshot:mode"], why, "snapshot", lambda: s.create_snapshot(name="x", mode="full"), E)
    await refused("Sandbox.createSnapshot", why, "snapshot", lambda: k.Sandbox.create_snapshot(s.sandbox_id), E)
    with record.mute():
        pages = k.Sandbox.list_snapshots(limit=10, name="x", next_token="x", sandbox_id=s.sandbox_id)
        eq((pages.has_next, pages.next_token), (True, "x"))
    await refused(["Sandbox.listSnapshots"] + [f"Sandbox.listSnapshots:{f}" for f in ("limit", "name", "nextToken", "sandboxId")]
                  + [f"SnapshotPaginator.{f}" for f in ("nextItems", "hasNext", "nextToken")], why, "snapshot", pages.next_items, E)
    await refused(["Sandbox.pause:keepMemory", "Sandbox.betaPause:keepMemory"], "keepMemory: false would need snapshots", ".", lambda: s.pause(keep_memory=False), E)
    await refused(["Sandbox.pause:mode", "Sandbox.betaPause:mode"], "mode: filesystem would need snapshots", ".", lambda: s.pause(mode="filesystem"), E)
    await refused("Sandbox.connect:onResume", "onResume: 'reboot' would need snapshots", ".", lambda: s.connect(on_resume="reboot"), E)
    eq(await w(k.Sandbox.delete_snapshot("no-such-snapshot")), False)

    async def fork():
        got = await w(s.fork(count=2, timeout=60))
        if all(isinstance(x, Exception) for x in got):
            raise got[0]
        return got

    await refused(["Sandbox.fork", "Sandbox.fork:count", "Sandbox.fork:timeout"], "no forks yet", "fork", fork, E)
    eq(await w(s.is_running()), True, "a refused fork leaves the sandbox as it was")
    await w(s.kill())


@case("refusals/network")
async def _(k):
    none = "network|egress|internet|proxy|mask|https|dns|rule"

    async def refuse(id, reason, **network):
        async def make():
            s = await w(k.Sandbox.create(k.template, network=network, timeout=30))
            await w(s.kill())

        await refused(f"Sandbox.create:network.{id}", reason, none, make, k.sdk.SandboxException)

    await refuse("maskRequestHost", "the Host header reaches the server unchanged", mask_request_host="localhost:${PORT}")
    if not k.new:
        return
    rules = {"api.example.com": [{"transform": {"headers": {"A": "b"}}}]}
    await refuse("egressProxy", "no proxy for egress", egress_proxy={"address": "proxy.example.com:1080"})
    await refuse("rules", "no changes to requests on their way", allow_out=["api.example.com"], rules=rules)
    await refuse("httpsPorts", "servers in the box speak plain HTTP", https_ports=[3000])
    await refuse("dnsServers", "names are resolved by the node", dns_servers=["1.1.1.1"])
    for update in ({"egress_proxy": {"address": "proxy.example.com:1080"}}, {"rules": rules}, {"dns_servers": ["1.1.1.1"]}):
        await refused("Sandbox.updateNetwork", "no proxy, no rules and no resolvers of one's own, as at creation", none, lambda: k.sbx.update_network(update), k.sdk.SandboxException)


@case("refusals/mcp, identity and volumes")
async def _(k):
    def create(**opts):
        async def make():
            s = await w(k.Sandbox.create(k.template, timeout=30, **opts))
            await w(s.kill())

        return make

    E = k.sdk.SandboxException
    await refused(["Sandbox.create:mcp", "Sandbox.betaCreate:mcp"], "no MCP gateway", "mcp", create(mcp={"exa": {"apiKey": "x"}}), E)
    match(k.sbx.get_mcp_url(), "/mcp$")
    await refused("Sandbox.getMcpToken", "no MCP gateway", ".", lambda: k.sbx.get_mcp_token(), E)
    if k.new:
        await refused("Sandbox.create:iam", "no workload identities", "iam|identit", create(iam={"tokens": {"aws": k.Secret.iam_token(audience="sts.amazonaws.com", token_type="JWT-SVID")}}), E)
        await refused("Sandbox.create:volumeMounts", "no volumes", "volume", create(volume_mounts={"/data": "v"}), E)


@case("refusals/volumes", lambda k: k.new)
async def _(k):
    V = k.Volume

    async def no(id, fn):
        await refused(id, "no volumes", "volume", fn)

    await no("Volume.create", lambda: V.create("v"))
    await no("Volume.connect", lambda: V.connect("v"))
    await no("Volume.list", lambda: V.list())
    await no("Volume.getInfo", lambda: V.get_info("v"))
    await no("Volume.destroy", lambda: V.destroy("v"))
    v = V("v", "v", token="t")
    eq((v.volume_id, v.name, v.token), ("v", "v", "t"))
    api = {"api_url": os.environ["E2B_API_URL"], "token": "x", "request_timeout": 5, "headers": {}}

    def fields(m, *extra):
        return [m, *(f"{m}:{f}" for f in extra), *(f"VolumeApiOpts:{f}" for f in ("domain", "headers", "httpVersion", "logger", "proxy", "requestTimeout", "token"))]

    meta = ("uid", "gid", "mode")

    async def exists():
        if not await w(v.exists("/d", **api)):
            raise Exception("no volume: false")

    await no(fields("Volume.list", "depth", "path"), lambda: v.list("/", depth=1, **api))
    await no(fields("Volume.makeDir", *meta, "force"), lambda: v.make_dir("/d", uid=0, gid=0, mode=0o755, force=True, **api))
    await no(fields("Volume.getInfo"), lambda: v.get_info("/d", **api))
    await no(fields("Volume.exists"), exists)
    await no(fields("Volume.updateMetadata", *meta), lambda: v.update_metadata("/d", uid=0, gid=0, mode=0o755, **api))
    await no(fields("Volume.readFile", "format", "streamIdleTimeout"), lambda: v.read_file("/d", format="text", **api))
    await no(fields("Volume.writeFile", *meta, "force"), lambda: v.write_file("/d", "x", uid=0, gid=0, mode=0o644, force=True, **api))
    await no(fields("Volume.remove"), lambda: v.remove("/d", **api))


@case("refusals/secrets", lambda k: k.new)
async def _(k):
    S = k.Secret

    async def no(id, fn):
        await refused(id, "no secrets", "secret", fn)

    await no(["Secret.create", "Secret.create:metadata"], lambda: S.create("s", "v", metadata={"a": "b"}))
    await no(["Secret.update", "Secret.update:metadata"], lambda: S.update("s", "v", metadata={}))
    await no("Secret.getInfo", lambda: S.get_info("s"))
    await no("Secret.exists", lambda: S.exists("s"))
    await no("Secret.destroy", lambda: S.destroy("s"))
    with record.mute():
        pages = S.list(limit=1, next_token="x")
        eq((pages.has_next, pages.next_token), (True, "x"))
    await no(["Secret.list", "Secret.list:limit", "Secret.list:nextToken"] + [f"SecretPaginator.{f}" for f in ("nextItems", "hasNext", "nextToken")], pages.next_items)
    match(S.fill("s"), "s")
    assert S.iam_token(audience="a", token_type="JWT-SVID")
