import asyncio
import itertools
import json
import os
import tempfile
from pathlib import Path

import record
from harness import case, eq, eventually, limited, match, refused, tag, throws, w

image = os.environ["CONF_IMAGE"]
locked = os.environ["CONF_PRIVATE_IMAGE"]
count = itertools.count()


def alias(what):
    return f"{what}-{tag}-{next(count)}"


def start(k, files={}):
    """A builder in a directory of its own."""
    context = tempfile.mkdtemp(prefix="dsec-conf-")
    for name, text in files.items():
        p = Path(context, name)
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text(text)
    return k.Template(file_context_path=context, file_ignore_patterns=["**/*.ignored"]), context


async def build(k, t, name, **opts):
    return await w(k.Template.build(t, name, **opts))


async def within(k, template, fn):
    s = await w(k.Sandbox.create(template, timeout=60))
    try:
        return await fn(s)
    finally:
        await w(s.kill())


async def holds(k, template, path, want):
    async def check(s):
        eq(await w(s.files.read(path)), want, template)

    await within(k, template, check)


SEEN = """cd /opt/app && for f in stage where who app.txt many/one many/two resolved conf/a.conf renamed n2 sym log repo/README /home/user/made-by; do echo "$f=$(sudo cat $f | tr '\\n' ,)"; done
stat -c '%U %a' many/one; stat -c %a n2; test -L resolved || echo regular; test -e conf/b.ignored || echo ignored; test -d l1 && test ! -e l2 && echo dirs; stat -c %a data"""
WANT = """stage=built,
where=/opt/app,
who=root,
app.txt=app
many/one=1
many/two=2
resolved=app
conf/a.conf=a
renamed=n1
n2=n2
sym=app
log=first,second,
repo/README=example,
/home/user/made-by=user,/home/user,
user 750
600
regular
ignored
dirs
755
"""


@case("template/build with every instruction")
async def _(k):
    t, d = start(k, {"app.txt": "app", "conf/a.conf": "a", "conf/b.ignored": "b", "one": "1", "two": "2", "n1": "n1", "n2": "n2"})
    os.symlink("app.txt", f"{d}/link")
    gz = {"gzip": False} if k.new else {}
    b = (t.from_template(k.template)
         .set_user("root").set_workdir("/opt/app").set_envs({"STAGE": "built", "QUOTED": "it's $HOME"})
         .run_cmd('echo "$STAGE" > stage; pwd > where; id -un > who')
         .copy("app.txt", "/opt/app/")
         .copy(["one", "two"], "/opt/app/many/", user="user", mode=0o750, force_upload=True, **gz)
         .copy("link", "/opt/app/resolved", resolve_symlinks=True)
         .copy("conf", "/opt/app/conf")
         .copy_items([{"src": "n1", "dest": "/opt/app/n1"}, {"src": "n2", "dest": "/opt/app/n2", "mode": 0o600}])
         .make_dir("/opt/app/data", mode=0o755, user="root").make_dir(["/opt/app/l1", "/opt/app/l2"])
         .make_symlink("/opt/app/app.txt", "/opt/app/sym", user="root", force=True)
         .rename("/opt/app/n1", "/opt/app/renamed", force=True, user="root")
         .remove("/opt/app/l2", force=True, recursive=True, user="root")
         .run_cmd(["echo first >> log", "echo second >> log"], user="root")
         .git_clone("file:///srv/example.git", path="/opt/app/repo", branch="main", depth=1, user="root")
         .set_user("user").set_workdir("/home/user")
         .run_cmd("id -un > made-by; pwd >> made-by"))
    name, logs = alias("every"), []
    opts = {"min_free_disk_mb": 16} if k.new else {"api_key": os.environ["E2B_API_KEY"], "domain": os.environ["E2B_DOMAIN"]}
    info = await build(k, b, name, cpu_count=1, memory_mb=256, skip_cache=True, on_build_logs=logs.append, **opts)
    assert info.template_id and info.build_id
    assert len(logs) > 2 and all(isinstance(x.message, str) for x in logs)
    assert isinstance(logs[0], k.sdk.LogEntryStart) and isinstance(logs[-1], k.sdk.LogEntryEnd)

    async def check(s):
        eq((await w(s.get_info())).memory_mb, 256)
        eq((await w(s.commands.run(SEEN))).stdout, WANT)

    await within(k, name, check)


@case("template/start and ready commands")
async def _(k):
    name = alias("served")
    await build(k, start(k)[0].from_template(k.template).set_start_cmd("cd /tmp && python3 -m http.server 8000", k.sdk.wait_for_port(8000)), name)

    async def check(s):
        r = await w(s.commands.run("python3 -c \"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8000').status)\""))
        eq(r.stdout, "200\n", "it serves when the create returns")

    await within(k, name, check)
    await build(k, start(k)[0].from_template(k.template).set_ready_cmd(k.sdk.wait_for_timeout(100)), alias("ready"))
    match(k.sdk.wait_for_file("/tmp/ready").get_cmd(), "/tmp/ready")
    match(k.sdk.wait_for_url("http://localhost:1/x", 204).get_cmd(), "localhost:1/x")
    match(k.sdk.wait_for_process("nginx").get_cmd(), "nginx")


@case("template/from an image of a registry")
async def _(k):
    name = alias("image")
    await build(k, start(k)[0].from_image(image).run_cmd("echo from-image > /home/user/mark"), name)
    await holds(k, name, "/home/user/mark", "from-image\n")
    private = alias("locked")
    await build(k, start(k)[0].from_image(locked, username="ada", password="secret"), private)
    await within(k, private, lambda s: w(s.commands.run("true")))
    await throws(k.sdk.BuildException, "401|unauthori[sz]ed|credential", lambda: build(k, start(k)[0].from_image(locked, username="ada", password="wrong"), alias("denied")))
    await throws(k.sdk.BuildException, "no/such", lambda: build(k, start(k)[0].from_image(image.split("/")[0] + "/no/such:1"), alias("none")))


@case("template/from a Dockerfile")
async def _(k):
    t, _ = start(k, {"src/main.py": 'print("hello")'})
    name = alias("dockerfile")
    text = f'FROM {image}\nWORKDIR /srv/work\nENV GREETING=hello OTHER=two\nCOPY src/main.py ./main.py\nRUN echo "$GREETING" > greeting && \\\n    echo "$OTHER" >> greeting\nUSER user\n'
    await build(k, t.from_dockerfile(text), name)
    await holds(k, name, "/srv/work/greeting", "hello\ntwo\n")


@case("template/named images")
async def _(k):
    def file(make):
        return k.Template.to_dockerfile(make(start(k)[0]))

    for make, want in ((lambda t: t.from_python_image(version="3.12"), "python:3.12"), (lambda t: t.from_node_image(variant="20"), "node:20"), (lambda t: t.from_bun_image(variant="1"), "oven/bun:1"),
                       (lambda t: t.from_ubuntu_image(variant="22.04"), "ubuntu:22.04"), (lambda t: t.from_debian_image(variant="stable"), "debian:stable"), (lambda t: t.from_base_image(), "e2bdev/base")):
        match(file(make), f"FROM {want}")
    if k.new:
        match(file(lambda t: t.from_fedora_image(variant="42")), "fedora:42")
        match(file(lambda t: t.from_alpine_image(variant="3.20")), "alpine:3.20")
        match(file(lambda t: t.from_arch_image(variant="latest")), "archlinux")
    assert json.loads(k.Template.to_json(start(k)[0].from_image("debian:12").run_cmd("true")))
    await throws(k.sdk.BuildException, "python", lambda: build(k, start(k)[0].from_python_image("3.12"), alias("python")))


@case("template/registries of clouds")
async def _(k):
    with record.mute():
        aws = start(k)[0].from_aws_registry("123456789012.dkr.ecr.us-west-2.amazonaws.com/app:1", access_key_id="AKIA", secret_access_key="s", region="us-west-2")
    await refused("Template.fromAwsRegistry", "no exchange of AWS credentials: give user name and password", "aws|registry", lambda: build(k, aws, alias("aws")), k.sdk.BuildException)
    gcp = start(k)[0].from_gcp_registry(locked, service_account_json={"type": "service_account"})
    await throws(k.sdk.BuildException, ".", lambda: build(k, gcp, alias("gcp")))


@case("template/packages need a network")
async def _(k):
    async def none(b, pattern):
        logs = []
        e = await throws(k.sdk.BuildException, ".", lambda: build(k, b, alias("net"), on_build_logs=lambda x: logs.append(x.message)))
        match(str(e) + "\n".join(logs), pattern)

    def t():
        return start(k)[0].from_template(k.template)

    fix = {"fix_missing": True} if k.new else {}
    await none(t().apt_install(["no-such-package"], no_install_recommends=True, **fix), "apt-get")
    await none(t().pip_install(["numpy"], g=False), "pip")
    await none(t().npm_install("lodash", g=True, dev=True), "npm")
    await none(t().bun_install("lodash", g=True, dev=True), "bun")
    limited([f"Template.{m}Install" for m in ("apt", "pip", "npm", "bun")], "the command is run; without a way out for builds, which is the default, it finds no packages and the build fails")


@case("template/servers and containers of E2B")
async def _(k):
    def t():
        return start(k)[0].from_template(k.template)

    await refused("Template.addMcpServer", "no template mcp-gateway", "mcp", lambda: t().add_mcp_server("exa"))
    await refused("Template.betaDevContainerPrebuild", "no template devcontainer", "devcontainer", lambda: t().beta_dev_container_prebuild("/x"))
    await refused("Template.betaSetDevContainerStart", "no template devcontainer", "devcontainer", lambda: t().beta_set_dev_container_start("/x"))


@case("template/a step that fails")
async def _(k):
    logs = []
    await throws(k.sdk.BuildException, "3|exit", lambda: build(k, start(k)[0].from_template(k.template).run_cmd("echo so far; echo broken >&2; exit 3"), alias("broken"), on_build_logs=lambda x: logs.append(x.message)))
    match("\n".join(logs), "so far")
    match("\n".join(logs), "broken")
    await throws(k.sdk.BuildException, "no-such-template", lambda: build(k, start(k)[0].from_template("no-such-template"), alias("broken")))


@case("template/in the background")
async def _(k):
    opts = {"tags": ["bg"], "min_free_disk_mb": 1} if k.new else {"api_key": os.environ["E2B_API_KEY"], "domain": os.environ["E2B_DOMAIN"]}
    b = start(k)[0].from_template(k.template).skip_cache().run_cmd("echo working; sleep 0.5")
    info = await w(k.Template.build_in_background(b, alias("background"), cpu_count=1, memory_mb=128, skip_cache=True, on_build_logs=k.sdk.default_build_logger(min_level="error"), **opts))
    first = await w(k.Template.get_build_status(info, logs_offset=0, **({} if k.new else opts)))
    status = lambda s: getattr(s.status, "value", s.status)  # noqa: E731
    assert status(first) in ("building", "waiting", "ready")

    async def ready():
        s = await w(k.Template.get_build_status(info))
        return s if status(s) == "ready" else None

    done = await eventually("it is ready", ready, 30)
    ids = (getattr(done, "build_id", info.build_id), getattr(done, "template_id", info.template_id))
    eq(ids, (info.build_id, info.template_id))
    if k.new:
        match("\n".join(x.message for x in done.log_entries), "working")
        await w(k.Template.build_in_background(start(k)[0].from_template(k.template), alias=alias("old-way")))
        await w(k.Template.build(start(k)[0].from_template(k.template), alias=alias("old-way")))
        await w(k.Template.build(start(k)[0].from_template(k.template), name=alias("by-name")))


@case("template/two build one alias", lambda k: k.is_async)
async def _(k):
    name = alias("race")
    await asyncio.gather(*(k.Template.build(start(k)[0].from_template(k.template).run_cmd(f"echo {i} > /home/user/who; sleep 0.2"), name) for i in (1, 2, 3)))

    async def check(s):
        match(await w(s.files.read("/home/user/who")), "^[123]\n$")

    await within(k, name, check)


@case("template/names and tags", lambda k: k.new)
async def _(k):
    T, name = k.Template, alias("tagged")
    eq(await w(T.exists(name)), False)

    def saying(word):
        return start(k)[0].from_template(k.template).run_cmd(f"echo {word} > /home/user/v")

    one = await build(k, saying("one"), f"{name}:v1", tags=["stable"])
    eq(sorted(one.tags), ["stable", "v1"])
    eq((await w(T.exists(name)), await w(T.alias_exists(name))), (True, True))
    two = await build(k, saying("two"), f"{name}:v2")
    eq(two.template_id, one.template_id)
    given = await w(T.assign_tags(f"{name}:v2", ["latest", "next"]))
    eq((given.build_id, sorted(given.tags)), (two.build_id, ["latest", "next"]))
    await w(T.assign_tags(f"{name}:v1", "old"))
    tags = {x.tag: x.build_id for x in await w(T.get_tags(one.template_id))}
    eq({t: tags.get(t) for t in ("v1", "stable", "old", "v2", "next")}, {"v1": one.build_id, "stable": one.build_id, "old": one.build_id, "v2": two.build_id, "next": two.build_id})
    for tagged, want in (("v1", "one\n"), ("stable", "one\n"), ("v2", "two\n"), ("next", "two\n")):
        await holds(k, f"{name}:{tagged}", "/home/user/v", want)
    await w(T.remove_tags(name, ["next", "old"]))
    await w(T.remove_tags(name, "stable"))
    left = {x.tag for x in await w(T.get_tags(name))}
    assert "v1" in left and not left & {"next", "stable", "old"}, left
    await throws(k.sdk.SandboxException, "next|not found|404", lambda: k.Sandbox.create(f"{name}:next"))
    await throws(Exception, ".", lambda: T.assign_tags(f"{name}:none", "x"))
