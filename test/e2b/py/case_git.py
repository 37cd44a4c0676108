from harness import case, eq, eventually, match, throws, w

repo = "/home/user/repo"


def newer(k):
    return k.new


@case("git/a repository of one's own", newer)
async def _(k):
    g, files, run = k.sbx.git, k.sbx.files, k.sbx.commands.run
    await w(run(f"rm -rf {repo} /home/user/remote.git /home/user/copy"))
    await w(g.configure_user("Ada", "ada@example.com", scope="global"))
    eq(await w(g.get_config("user.name", scope="global")), "Ada")
    await w(g.init(repo, bare=False, initial_branch="main", envs={"GIT_TRACE": "0"}, user="user", cwd="/home/user", timeout=30))
    await w(g.set_config("core.pager", "cat", scope="local", path=repo))
    eq(await w(g.get_config("core.pager", scope="local", path=repo)), "cat")
    await w(g.configure_user("Bob", "bob@example.com", scope="local", path=repo))
    await w(files.write(f"{repo}/a.txt", "1"))
    s = await w(g.status(repo))
    eq((s.current_branch, s.is_clean, s.has_changes, s.has_untracked, s.untracked_count, s.total_count), ("main", False, True, True, 1, 1))
    eq((s.has_staged, s.has_conflicts, s.conflict_count, s.unstaged_count), (False, False, 0, 1))
    await w(g.add(repo, files=["a.txt"]))
    eq((await w(g.status(repo))).staged_count, 1)
    await w(g.commit(repo, "First", author_name="Ada", author_email="ada@example.com"))
    await w(g.commit(repo, "Nothing", allow_empty=True))
    match((await w(run('git log --format="%an: %s"', cwd=repo))).stdout, "Ada: First")
    await w(g.create_branch(repo, "topic"))
    await w(g.checkout_branch(repo, "main"))
    b = await w(g.branches(repo))
    eq((sorted(b.branches), b.current_branch), (["main", "topic"], "main"))
    await w(g.delete_branch(repo, "topic", force=True))
    await w(files.write(f"{repo}/a.txt", "2"))
    await w(g.add(repo, all=True))
    await w(g.reset(repo, paths=["a.txt"]))
    eq((await w(g.status(repo))).staged_count, 0)
    await w(g.restore(repo, paths=["a.txt"], worktree=True, staged=False))
    eq(await w(files.read(f"{repo}/a.txt")), "1")
    await w(files.write(f"{repo}/a.txt", "3"))
    await w(g.add(repo))
    await w(g.restore(repo, paths=["a.txt"], staged=True, worktree=True, source="HEAD"))
    await w(g.reset(repo, mode="hard", target="HEAD~1"))
    assert "Nothing" not in (await w(run("git log --format=%s", cwd=repo))).stdout


@case("git/remotes", newer)
async def _(k):
    g, files, run = k.sbx.git, k.sbx.files, k.sbx.commands.run
    await w(g.init("/home/user/remote.git", bare=True, initial_branch="main"))
    await w(g.remote_add(repo, "origin", "/home/user/remote.git"))
    await w(g.push(repo, remote="origin", branch="main", set_upstream=True))
    await w(g.remote_add(repo, "origin", "/home/user/remote.git", overwrite=True, fetch=True))
    eq(await w(g.remote_get(repo, "origin")), "/home/user/remote.git")
    eq(await w(g.remote_get(repo, "none")), None)
    await w(g.clone("/home/user/remote.git", path="/home/user/copy", branch="main", depth=1))
    eq(await w(files.read("/home/user/copy/a.txt")), "1")
    await w(files.write(f"{repo}/b.txt", "b"))
    await w(g.add(repo))
    await w(g.commit(repo, "Second"))
    eq((await w(g.status(repo))).ahead, 1)
    await w(g.push(repo))
    await w(g.pull("/home/user/copy", remote="origin", branch="main"))
    eq(await w(files.read("/home/user/copy/b.txt")), "b")
    await w(g.init("/home/user/lonely", initial_branch="main"))
    await w(g.commit("/home/user/lonely", "x", allow_empty=True))
    await w(g.remote_add("/home/user/lonely", "origin", "/home/user/remote.git"))
    await throws(k.sdk.GitUpstreamException, ".", lambda: g.pull("/home/user/lonely"))
    await w(run("rm -rf /home/user/lonely"))


SERVE = """
import base64, functools, http.server
class H(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(b"ada:secret").decode():
            self.send_response(401); self.send_header("WWW-Authenticate", "Basic realm=x"); self.send_header("Content-Length", "0"); self.end_headers(); return
        super().do_GET()
http.server.ThreadingHTTPServer(("127.0.0.1", 8090), functools.partial(H, directory="/tmp")).serve_forever()
"""


@case("git/passwords", newer)
async def _(k):
    g, files, run = k.sbx.git, k.sbx.files, k.sbx.commands.run
    await w(run("cp -r /home/user/remote.git /tmp/served.git && cd /tmp/served.git && git update-server-info"))
    await w(files.write("/home/user/serve.py", SERVE))
    server = await w(run("python3 serve.py", background=True, timeout=0))
    await eventually("it serves", lambda: up(run))
    url = "http://127.0.0.1:8090/served.git"
    await throws(k.sdk.GitAuthException, ".", lambda: g.clone(url, path="/home/user/denied"))
    await w(g.clone(url, path="/home/user/named", username="ada", password="secret"))
    assert "secret" not in await w(files.read("/home/user/named/.git/config"))
    await w(g.clone(url, path="/home/user/stored", username="ada", password="secret", dangerously_store_credentials=True))
    match(await w(files.read("/home/user/stored/.git/config")), "secret")
    await w(g.pull("/home/user/named", username="ada", password="secret", remote="origin", branch="main"))
    await throws(Exception, ".", lambda: g.push("/home/user/named", username="ada", password="wrong", remote="origin", branch="main"))
    await w(g.dangerously_authenticate("ada", "secret", host="127.0.0.1:8090", protocol="http"))
    await w(g.clone(url, path="/home/user/remembered"))
    await w(server.kill())


async def up(run):
    r = await w(run("python3 -c \"import socket; socket.create_connection(('127.0.0.1', 8090))\" && echo up || true"))
    return r.stdout == "up\n"
