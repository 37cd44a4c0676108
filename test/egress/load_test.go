package egress

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
)

const cut = `import socket,time
s = socket.create_connection(("` + egresstest.GoodAddr + `", 7000), 5)
s.settimeout(30)
try:
    while s.recv(65536): pass
    how = "ended"
except OSError as e: how = type(e).__name__
at = time.time()
try:
    socket.create_connection(("` + egresstest.GoodAddr + `", 7000), 5)
    new = "open"
except OSError as e: new = type(e).__name__
print(at, how, new, (time.time() - at) * 1000)`

// A switch cuts what is no longer allowed, and refuses it from then on.
func TestSwitchCutsAtOnce(t *testing.T) {
	r := start(t)
	zeros := make([]byte, 64<<10)
	open := make(chan struct{}, 100)
	r.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) {
		open <- struct{}{}
		for {
			if _, err := c.Write(zeros); err != nil {
				return
			}
		}
	})
	s := r.session(`{egress_policy: deny, phases: {setup: {egress_policy: whitelist, allowed_ips: ["` + egresstest.GoodAddr + `/32"]}, agent: {egress_policy: deny}}}`)
	op := r.background(s, "python3", "-c", cut)
	select {
	case <-open:
	case <-time.After(20 * time.Second):
		t.Fatal("the box did not connect")
	}
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	if out, err := r.cli("net", "switch", s.ID(), "agent"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	answered := time.Since(began)
	f := strings.Fields(r.ended(s, op))
	if len(f) != 4 || f[1] != "ConnectionResetError" || f[2] == "open" {
		t.Fatalf("the stream and the next connection: %v", f)
	}
	at, _ := strconv.ParseFloat(f[0], 64)
	refused, _ := strconv.ParseFloat(f[3], 64)
	took := time.UnixMicro(int64(at * 1e6)).Sub(began)
	figure(t, "switch: the command answered after %d ms; the open stream was cut %d ms after the command began; a new connection was refused in %.2f ms", answered.Milliseconds(), took.Milliseconds(), refused)
	if took > time.Second || refused > slack {
		t.Errorf("cut after %v, refused after %v ms", took, refused)
	}
}

// crowd opens N connections, each of which stays open until all are answered.
const crowd = `import asyncio,time
N, left, took = 1000, 1000, []
async def one(done):
    global left
    t = time.monotonic()
    r, w = await asyncio.open_connection("` + egresstest.GoodAddr + `", 7000)
    w.write(b"x")
    await r.readexactly(1)
    took.append((time.monotonic() - t) * 1000)
    left -= 1
    if left == 0: done.set()
    await done.wait()
    w.close()
async def main():
    done = asyncio.Event()
    out = await asyncio.wait_for(asyncio.gather(*(one(done) for _ in range(N))), 50)
    took.sort()
    print(N - left, "%.0f" % took[-1], "%.0f" % took[N // 2])
asyncio.run(main())`

// A thousand connections at once from one box are all answered.
func TestThousandConnections(t *testing.T) {
	r := start(t)
	r.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = io.Copy(c, c) })
	s := r.session(`{egress_policy: whitelist, allowed_ips: ["` + egresstest.GoodAddr + `/32"]}`)
	out, code := r.sh(s, "ulimit -n 4096 2>/dev/null; python3 - <<'EOF'\n"+crowd+"\nEOF")
	f := strings.Fields(out)
	if code != 0 || len(f) != 3 || f[0] != "1000" {
		t.Fatalf("answered: %s", out)
	}
	figure(t, "%s connections at once from one box, all open together and answered; p50 %s ms, the slowest %s ms, the box's Python included", f[0], f[2], f[1])
}

const latency = `import socket,time
v = []
for _ in range(%d):
    t = time.monotonic()
    s = socket.create_connection(("` + egresstest.GoodAddr + `", 7000), 10); s.sendall(b"x"); s.recv(1)
    v.append((time.monotonic() - t) * 1000); s.close()
    time.sleep(0.005)
v.sort()
print(v[len(v)//2], v[-1])`

// A box that floods refused datagrams costs the daemon and its neighbour little.
func TestFlood(t *testing.T) {
	r := start(t)
	r.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = io.Copy(c, c) })
	network := `{egress_policy: whitelist, allowed_ips: ["` + egresstest.GoodAddr + `/32"]}`
	bad, quiet := r.session(network), r.session(network)
	measure := func() (p50, worst, cores float64) {
		used, began := r.cpu(), time.Now()
		out, code := r.sh(quiet, "python3 - <<'EOF'\n"+fmt.Sprintf(latency, full(200, 50))+"\nEOF")
		cores = (r.cpu() - used) / time.Since(began).Seconds()
		f := strings.Fields(out)
		if code != 0 || len(f) != 2 {
			t.Fatalf("the neighbour: %s", out)
		}
		p50, _ = strconv.ParseFloat(f[0], 64)
		worst, _ = strconv.ParseFloat(f[1], 64)
		return p50, worst, cores
	}
	calm, calmWorst, idle := measure()
	// A burner beside tells what the mere loss of a processor costs the neighbour.
	burn := r.background(bad, "python3", "-c", "while True: pass")
	busy, busyWorst, _ := measure()
	if err := bad.Signal(t.Context(), burn, "KILL", true); err != nil {
		t.Fatal(err)
	}
	refused, records := r.metric("dsec_egress_refused_total"), r.metric("dsec_egress_records_total")
	flood := r.background(bad, "python3", "-c", `import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try: s.sendto(b"x" * 100, ("`+egresstest.EvilAddr+`", 9))
    except OSError: pass`)
	time.Sleep(500 * time.Millisecond)
	began := time.Now()
	stormy, stormyWorst, cores := measure()
	took := time.Since(began).Seconds() + 0.5
	refused, records = r.metric("dsec_egress_refused_total")-refused, r.metric("dsec_egress_records_total")-records
	if err := bad.Signal(t.Context(), flood, "KILL", true); err != nil {
		t.Fatal(err)
	}
	figure(t, "UDP flood from one box: the daemon used %.2f cores (%.2f without it); %.0f refusals/s, %.0f records/s; a neighbour's connect and echo p50 %.2f ms calm, %.2f beside a busy loop, %.2f beside the flood; slowest %.1f, %.1f, %.1f ms",
		cores, idle, refused/took, records/took, calm, busy, stormy, calmWorst, busyWorst, stormyWorst)
	if records/took > 1000 {
		t.Errorf("%.0f records a second", records/took)
	}
	if stormyWorst > 5000 {
		t.Errorf("a neighbour waited %.0f ms", stormyWorst)
	}
}
