import asyncio
import io
import urllib.error
import urllib.request
from datetime import datetime, timezone

from harness import case, eq, eventually, match, of, throws, w

base_dir = "/home/user/files"


def missing(k):
    return getattr(k.sdk, "FileNotFoundException", k.sdk.NotFoundException)


@case("files/write and read")
async def _(k):
    f = k.sbx.files
    p = f"{base_dir}/a/b/note.txt"
    info = await w(f.write(p, "ä\n€"))
    eq((info.path, info.name, getattr(info.type, "value", info.type)), (p, "note.txt", "file"))
    eq(await w(f.read(p)), "ä\n€")
    eq(await w(f.read(p, format="text")), "ä\n€")
    eq(bytes(await w(f.read(p, format="bytes"))), "ä\n€".encode())
    eq(b"".join(await of(await w(f.read(p, format="stream")))), "ä\n€".encode())
    await w(f.write(p, "shorter"))
    eq(await w(f.read(p)), "shorter")
    await w(f.write("relative.txt", "in the home"))
    eq(await w(f.read("/home/user/relative.txt")), "in the home")
    await w(f.write(f"{base_dir}/empty", ""))
    eq(await w(f.read(f"{base_dir}/empty")), "")
    await throws(missing(k), ".", lambda: f.read("/no/such/file"))
    await throws(k.sdk.InvalidArgumentException, "director", lambda: f.read(base_dir))


@case("files/write of every kind of data")
async def _(k):
    f = k.sbx.files
    data = bytes(i * 7 % 256 for i in range(1 << 20))
    await w(f.write(f"{base_dir}/bytes", data))
    eq(bytes(await w(f.read(f"{base_dir}/bytes", format="bytes"))), data)
    await w(f.write(f"{base_dir}/io", io.BytesIO(data)))
    eq(bytes(await w(f.read(f"{base_dir}/io", format="bytes"))), data)
    await w(f.write(f"{base_dir}/text-io", io.StringIO("text")))
    eq(await w(f.read(f"{base_dir}/text-io")), "text")
    odd = f"{base_dir}/mit leer ä?&#%+.txt"
    await w(f.write(odd, "odd"))
    eq(await w(f.read(odd)), "odd")
    many = await w(f.write_files([{"path": f"{base_dir}/m1", "data": "one"}, {"path": f"{base_dir}/new/m2", "data": b"two"}], user="user"))
    eq([x.path for x in many], [f"{base_dir}/m1", f"{base_dir}/new/m2"])
    eq(await w(f.read(f"{base_dir}/new/m2")), "two")
    eq(await w(f.write_files([])), [])


@case("files/octet-stream, gzip and metadata", lambda k: k.new)
async def _(k):
    f = k.sbx.files
    await w(f.write_files([{"path": f"{base_dir}/w3", "data": "three"}, {"path": f"{base_dir}/w4", "data": "four"}], use_octet_stream=True, gzip=True))
    eq(await w(f.read(f"{base_dir}/w4", gzip=True)), "four")
    await w(f.write(f"{base_dir}/octets", "octets", use_octet_stream=True))
    eq(await w(f.read(f"{base_dir}/octets")), "octets")
    await w(f.write(f"{base_dir}/packed", "p" * 100_000, gzip=True))
    eq(len(await w(f.read(f"{base_dir}/packed"))), 100_000)
    eq(len(b"".join(await of(await w(f.read(f"{base_dir}/packed", format="stream", gzip=True, stream_idle_timeout=10))))), 100_000)
    kept = await w(f.write(f"{base_dir}/with", "x", metadata={"Source": "test", "run": "7"}))
    eq(kept.metadata, {"source": "test", "run": "7"})
    eq((await w(f.get_info(f"{base_dir}/with"))).metadata, {"source": "test", "run": "7"})
    await w(f.write_files([{"path": f"{base_dir}/with2", "data": "x"}], metadata={"a": "b"}))
    eq(next(e for e in await w(f.list(base_dir)) if e.name == "with2").metadata, {"a": "b"})


@case("files/list, exists and get_info")
async def _(k):
    f = k.sbx.files
    base = f"{base_dir}/tree"
    await w(f.write(f"{base}/top.txt", "12345"))
    await w(f.write(f"{base}/sub/deep/leaf", "x"))
    await w(k.sbx.commands.run(f"ln -s top.txt {base}/link; chmod 640 {base}/top.txt"))

    async def names(**o):
        return sorted(e.path[len(base) + 1:] for e in await w(f.list(base, **o)))

    eq(await names(), ["link", "sub", "top.txt"])
    eq(await names(depth=2), ["link", "sub", "sub/deep", "top.txt"])
    eq(await names(depth=9), ["link", "sub", "sub/deep", "sub/deep/leaf", "top.txt"])
    await throws(k.sdk.InvalidArgumentException, "depth", lambda: f.list(base, depth=0))
    await throws(missing(k), ".", lambda: f.list(f"{base}/nothing"))
    await throws(k.sdk.InvalidArgumentException, "director", lambda: f.list(f"{base}/top.txt"))
    info = await w(f.get_info(f"{base}/top.txt"))
    eq(next(e for e in await w(f.list(base)) if e.name == "top.txt"), info)
    eq((info.type, info.size, info.mode & 0o777, info.owner, info.group), (k.sdk.FileType.FILE, 5, 0o640, "user", "user"))
    match(info.permissions, "rw-r-----$")
    age = datetime.now(timezone.utc) - (info.modified_time if info.modified_time.tzinfo else info.modified_time.replace(tzinfo=timezone.utc))
    assert abs(age.total_seconds()) < 120, age
    eq((await w(f.get_info(f"{base}/sub"))).type, k.sdk.FileType.DIR)
    eq((await w(f.get_info(f"{base}/link"))).symlink_target, f"{base}/top.txt")
    eq((await w(f.exists(f"{base}/top.txt")), await w(f.exists(base)), await w(f.exists(f"{base}/nothing"))), (True, True, False))
    await throws(missing(k), ".", lambda: f.get_info(f"{base}/nothing"))


@case("files/make_dir, rename and remove")
async def _(k):
    f = k.sbx.files
    base = f"{base_dir}/moves"
    eq(await w(f.make_dir(f"{base}/x/y")), True)
    eq(await w(f.make_dir(f"{base}/x/y")), False)
    await w(f.write(f"{base}/x/y/f", "moved"))
    moved = await w(f.rename(f"{base}/x", f"{base}/z"))
    eq((moved.path, moved.type), (f"{base}/z", k.sdk.FileType.DIR))
    eq((await w(f.exists(f"{base}/x")), await w(f.read(f"{base}/z/y/f"))), (False, "moved"))
    await w(f.remove(f"{base}/z"))
    eq(await w(f.exists(f"{base}/z")), False)
    await throws(missing(k), ".", lambda: f.rename(f"{base}/none", f"{base}/some"))
    await w(f.write(f"{base}/file", "x"))
    await throws(k.sdk.InvalidArgumentException, "director", lambda: f.make_dir(f"{base}/file"))


@case("files/of another user")
async def _(k):
    f = k.sbx.files
    await w(f.write("own.txt", "root", user="root"))
    info = await w(f.get_info("/root/own.txt", user="root"))
    eq((info.owner, info.path), ("root", "/root/own.txt"))
    eq(await w(f.read("own.txt", user="root")), "root")
    eq(await w(f.exists("own.txt", user="root")), True)
    eq(await w(f.make_dir("d/e", user="root")), True)
    assert any(e.name == "e" and e.owner == "root" for e in await w(f.list("d", user="root")))
    await w(f.rename("own.txt", "d/own.txt", user="root"))
    watch = await w(f.watch_dir("d", on_event=lambda _: None, user="root", timeout=5) if k.is_async else f.watch_dir("d", user="root"))
    await w(watch.stop())
    await w(f.remove("d", user="root"))
    eq(await w(f.exists("d", user="root")), False)


@case("files/watch_dir")
async def _(k):
    f, T = k.sbx.files, k.sdk.FilesystemEventType
    base = f"{base_dir}/watched"
    await w(f.make_dir(f"{base}/inner"))
    seen, exits = [], []
    if k.is_async:
        watch = await f.watch_dir(base, on_event=seen.append, on_exit=exits.append, recursive=True, timeout=60)
    else:
        watch = f.watch_dir(base, recursive=True)

    async def has(type, name):
        if not k.is_async:
            seen.extend(watch.get_new_events())
        return any(e.type == type and e.name == name for e in seen)

    async def comes(type, name):
        await eventually(f"{type} {name}", lambda: has(type, name))

    await w(f.write(f"{base}/new.txt", "x"))
    await comes(T.CREATE, "new.txt")
    await comes(T.WRITE, "new.txt")
    await w(k.sbx.commands.run(f"chmod 600 {base}/new.txt"))
    await comes(T.CHMOD, "new.txt")
    await w(f.rename(f"{base}/new.txt", f"{base}/old.txt"))
    await comes(T.RENAME, "new.txt")
    await w(f.remove(f"{base}/old.txt"))
    await comes(T.REMOVE, "old.txt")
    await w(f.write(f"{base}/inner/deep.txt", "x"))
    await comes(T.CREATE, "inner/deep.txt")
    await w(watch.stop())
    if k.is_async and k.new:
        await eventually("on_exit", lambda: len(exits) == 1)
    n = len(seen)
    await w(f.write(f"{base}/unseen", "x"))
    await asyncio.sleep(0.3)
    eq(len(seen), n, "nothing after stop")
    if not k.is_async:
        await throws(Exception, ".", watch.get_new_events)
    on = {"on_event": seen.append} if k.is_async else {}
    await throws(missing(k), ".", lambda: f.watch_dir(f"{base}/none", **on))
    await throws(k.sdk.InvalidArgumentException, "director", lambda: f.watch_dir(f"{base}/unseen", **on))


@case("files/watch_dir, newer options", lambda k: k.new)
async def _(k):
    f, seen = k.sbx.files, []
    options = {"include_entry": True, "allow_network_mounts": True}
    watch = await f.watch_dir(base_dir, on_event=seen.append, **options) if k.is_async else f.watch_dir(base_dir, **options)
    await w(f.write(f"{base_dir}/entry", "123"))

    async def entry():
        if not k.is_async:
            seen.extend(watch.get_new_events())
        return next((e for e in seen if e.name == "entry" and e.entry and e.entry.size == 3), None)

    eq((await eventually("an entry", entry)).entry.path, f"{base_dir}/entry")
    await w(watch.stop())


@case("files/upload_url and download_url")
async def _(k):
    s = k.sbx
    own = {"E2b-Sandbox-Id": s.sandbox_id, "E2b-Sandbox-Port": "49983"}

    def form(text):
        body = f'--xyz\r\nContent-Disposition: form-data; name="file"; filename="up.txt"\r\n\r\n{text}\r\n--xyz--\r\n'.encode()
        return {"data": body, "headers": {**own, "Content-Type": "multipart/form-data; boundary=xyz"}, "method": "POST"}

    async def fetch(url, **o):
        o.setdefault("headers", own)

        def get():
            try:
                with urllib.request.urlopen(urllib.request.Request(url, **o)) as r:
                    return r.status, r.read().decode()
            except urllib.error.HTTPError as e:
                return e.code, e.read().decode()

        return await asyncio.to_thread(get)

    for o in ({}, {"use_signature_expiration": 60}, {"user": "root"}, {"user": "root", "use_signature_expiration": 60}):
        path = "/root/up.txt" if o.get("user") else "/home/user/up.txt"
        status, text = await fetch(s.upload_url(path, **o), **form(f"by {o}"))
        eq(status, 200, text)
        eq(await fetch(s.download_url(path, **o)), (200, f"by {o}"))
    url = s.download_url("/home/user/up.txt", use_signature_expiration=60)
    for old, new in (("signature=v1_", "signature=v1_A"), ("signature=", "other="), ("up.txt", "relative.txt")):
        assert old in url, url
        assert (await fetch(url.replace(old, new)))[0] in (400, 401), new
    if hasattr(k.sdk, "get_signature"):
        signed = k.sdk.get_signature(path="/x", operation="read", user="user", envd_access_token="t", expiration_in_seconds=10)
        match(signed["signature"], "^v1_")


@case("files/a full disk")
async def _(k):
    s = await k.create()
    await w(s.commands.run("dd if=/dev/zero of=/home/user/big bs=1M || true"))

    async def fill():
        for i in range(400):
            await w(s.files.write(f"/home/user/fill{i}", "x" * 4_000_000))

    await throws(k.sdk.NotEnoughSpaceException, ".", fill)
    await w(s.kill())
