"""Tries ways out of a box. argv[1] is JSON: [[label, kind, arguments...], ...]; prints label, outcome, milliseconds."""
import ctypes, errno, fcntl, json, os, socket, ssl, struct, subprocess, sys, time

LIBC = ctypes.CDLL(None, use_errno=True)


EXPLAINER = "192.0.0.8"  # where refused names lead, and every request is refused in words


def tcp(host, port):
    socket.create_connection((host, port), 5).close()


def udp(host, port, data="\xc0 quic"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect((host, port))
        s.send(data.encode())
        s.recv(1500)


def tcp6(host, port):
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.settimeout(5)
        s.connect((host, port))


def udp6(host, port):
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect((host, port))
        s.send(b"x")
        s.recv(1500)


def name(host):
    if [a[4][0] for a in socket.getaddrinfo(host, 80, socket.AF_INET, socket.SOCK_STREAM)] == [EXPLAINER]:
        raise OSError("led to the explainer")


def query(server, qtype, host, over="udp"):
    """A question of its own making; an answer with records is a leak."""
    q = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l.encode() for l in host.split(".")) + b"\0" + struct.pack(">HH", qtype, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if over == "tcp" else socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect((server, 53))
        s.send(struct.pack(">H", len(q)) + q if over == "tcp" else q)
        r = s.recv(1500)
        if over == "tcp":
            r = r[2:] or s.recv(1500)
    if struct.unpack(">H", r[6:8])[0] == 0:
        raise OSError("no answer, rcode %d" % (r[3] & 15))
    if r.endswith(socket.inet_aton(EXPLAINER)):
        raise OSError("led to the explainer")


def sends(host, port, data):
    """Connects, says something, and wants an answer."""
    with socket.create_connection((host, port), 5) as s:
        s.send(data.encode())
        r = s.recv(1500)
        if not r:
            raise OSError("ended")
        if r[:2] == b"\x15\x03" or r.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403")):
            raise OSError("told: %r" % r[:60])


def spills(host, port):
    """No error comes back where the kernel takes none: no answer may come either."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.2)
        s.connect((host, port))
        s.send(b"x")
        try:
            s.recv(1500)
        except TimeoutError:
            raise OSError("swallowed")


def tls(host, port, sni):
    c = ssl.create_default_context()
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, port), 5) as s:
        with c.wrap_socket(s, server_hostname=sni or None) as t:
            t.send(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % sni.encode())
            r = t.recv(4096)
    if r.startswith(b"HTTP/1.1 403") and b"X-Dsec-Reason: " in r:
        raise OSError("told: %r" % r[:60])


def scan(host, first, last):
    """Every port of a host at once; one that opens is a leak."""
    import selectors
    sel, left = selectors.DefaultSelector(), 0
    for port in range(first, last + 1):
        s = socket.socket()
        s.setblocking(False)
        e = s.connect_ex((host, port))
        if e == errno.EINPROGRESS:
            sel.register(s, selectors.EVENT_WRITE, port)
            left += 1
        else:
            s.close()
            if e == 0:
                return
    end = time.monotonic() + 5
    while left and time.monotonic() < end:
        for key, _ in sel.select(1):
            if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                return
            sel.unregister(key.fileobj)
            key.fileobj.close()
            left -= 1
    raise OSError("all refused" if left == 0 else "timed out on %d ports" % left)


def sweep(prefix, port):
    """One port of every host of a /24."""
    for i in range(1, 255):
        try:
            tcp(prefix + str(i), port)
            return
        except TimeoutError:
            raise OSError("timed out at %d" % i)
        except OSError:
            pass
    raise OSError("all refused")


def abstract(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + path)


def sock(family, kind, proto):
    socket.socket(family, kind, proto).close()


def frame():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300) as s:
        s.bind(("eth0", 0))
        s.send(b"\xff" * 60)


def ping(host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
        s.settimeout(5)
        s.connect((host, 0))
        s.send(struct.pack(">BBHHH", 8, 0, 0xf7ff, 0, 0))
        s.recv(100)


def forged(source, host, port):
    with socket.socket() as s:
        s.settimeout(5)
        s.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
        s.bind((source, 0))
        s.connect((host, port))


def option(level, opt, value):
    with socket.socket() as s:
        s.setsockopt(level, opt, value.encode() if isinstance(value, str) else value)


def netlink(kind, flags, body):
    """A routing message; the kernel acknowledges what it has done."""
    index = dict((n, i) for i, n in socket.if_nameindex()).get("eth0", 2)
    body = bytes.fromhex(body.replace("INDEX", struct.pack("=I", index).hex()))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.settimeout(5)
        s.send(struct.pack("=IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body)
        r = s.recv(4096)
        e = struct.unpack("=i", r[16:20])[0]
        if e:
            raise OSError(-e, os.strerror(-e))


def ifdown():
    with socket.socket() as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"eth0", 0))  # SIOCSIFFLAGS


def opens(path):
    os.close(os.open(path, os.O_RDWR))


def mktun(path):
    os.mknod(path, 0o20666, os.makedev(10, 200))
    opens(path)


def setns(path):
    fd = os.open(path, os.O_RDONLY)
    if LIBC.setns(fd, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def unshare(flags):
    pid = os.fork()  # what it gains must not be this process's
    if pid == 0:
        os._exit(0 if LIBC.unshare(flags) == 0 else 1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError("refused")


def writes(path, value):
    with open(path, "w") as f:
        f.write(value)


def shell(command):
    p = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=10)
    if p.returncode:
        raise OSError("exit %d %s" % (p.returncode, p.stderr.strip().split("\n")[-1]))


for label, kind, *args in json.loads(sys.argv[1]):
    start = time.monotonic()
    try:
        globals()[kind](*args)
        outcome = "WENT"
    except TimeoutError:
        outcome = "HUNG"
    except Exception as e:
        outcome = type(e).__name__ + " " + str(e)
    print(label, outcome.replace("\t", " ").replace("\n", " "), "%.2f" % ((time.monotonic() - start) * 1000), sep="\t", flush=True)
