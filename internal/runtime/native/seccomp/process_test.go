package seccomp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// install puts the filter on the calling thread, which must be locked.
func install(filter []byte) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := struct {
		n uint16
		p *byte
	}{uint16(len(filter) / 8), &filter[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, 1 /* SET_MODE_FILTER */, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return e
	}
	return nil
}

// TestMain turns the test binary into the filtered child when it is asked to:
// DSEC_SECCOMP_CHILD=<profile>, argv[1:] is executed, or "self" tries calls itself.
func TestMain(m *testing.M) {
	profile := os.Getenv("DSEC_SECCOMP_CHILD")
	if profile == "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()
	filter, err := Compile(profile, nil, Options{})
	if err == nil {
		err = install(filter)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(99)
	}
	switch os.Args[1] {
	case "attempts":
		attempts()
		os.Exit(0)
	case "x32":
		unix.RawSyscall(x32Bit|39, 0, 0, 0)
		os.Exit(0)
	}
	bin, err := exec.LookPath(os.Args[1])
	if err == nil {
		os.Unsetenv("DSEC_SECCOMP_CHILD")
		err = syscall.Exec(bin, os.Args[1:], os.Environ())
	}
	fmt.Println(err)
	os.Exit(98)
}

func attempts() {
	try := func(name string, nr uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		_, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		fmt.Printf("%s=%s\n", name, unix.ErrnoName(e))
	}
	try("getpid", unix.SYS_GETPID)
	try("mount", unix.SYS_MOUNT)
	try("bpf", unix.SYS_BPF)
	try("io_uring", unix.SYS_IO_URING_SETUP)
	try("keyctl", unix.SYS_KEYCTL)
	try("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	try("clone", unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD))
	try("clone3", unix.SYS_CLONE3)
	try("unknown", 460+400)
	try("raw", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, 1)
	try("vsock", unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	try("audit", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)
	try("tcp", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)
	try("sti", unix.SYS_IOCTL, 0, unix.TIOCSTI, 0)
	try("sync", unix.SYS_SYNC)
}

func child(t *testing.T, profile string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "DSEC_SECCOMP_CHILD="+profile)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestProcessAttempts(t *testing.T) {
	out, err := child(t, "default", "attempts")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "getpid= mount=EPERM bpf=EPERM io_uring=EPERM keyctl=EPERM unshare=EPERM clone=EPERM clone3=ENOSYS unknown=ENOSYS " +
		"raw=EPERM vsock=EAFNOSUPPORT audit=EPROTONOSUPPORT tcp= sti=EPERM sync="
	if got := strings.Join(strings.Fields(out), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestProcessForeignABIIsKilled(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("x32 is an ABI of amd64")
	}
	_, err := child(t, "debug", "x32")
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSYS {
		t.Errorf("got %v, want death by SIGSYS", err)
	}
}

// TestOrdinaryPrograms runs what agents run under the default profile.
func TestOrdinaryPrograms(t *testing.T) {
	for _, tc := range []struct{ need, script string }{
		{"bash", `x=$(seq 5 | sort -r | head -1); [ "$x" = 5 ] && mkfifo p && (echo hi >p &) && read y <p && [ "$y" = hi ] && ulimit -n 64 && cat <<<ok`},
		{"python3", `python3 -c '
import threading, subprocess, socket, tempfile, multiprocessing, ssl, sqlite3, mmap, asyncio
t=threading.Thread(target=print,args=("t",)); t.start(); t.join()
assert subprocess.run(["true"]).returncode==0
s=socket.create_server(("127.0.0.1",0)); c=socket.create_connection(s.getsockname())
a,b=socket.socketpair(); a.send(b"x"); assert b.recv(1)==b"x"
with multiprocessing.Pool(2) as p: assert p.map(abs,[-1,-2])==[1,2]
sqlite3.connect("x.db").execute("create table t(a)"); asyncio.run(asyncio.sleep(0))
socket.getaddrinfo("localhost",80)'`},
		{"git", `git init -q . && echo a>a && git add a && git -c user.name=a -c user.email=a@b commit -qm m && git gc -q && git log --oneline | cat`},
		{"gcc", `printf '#include <pthread.h>\n#include <stdio.h>\nvoid*f(void*a){return a;}int main(){pthread_t t;pthread_create(&t,0,f,0);pthread_join(t,0);puts("ok");}' >a.c && gcc -O1 a.c -o a -lpthread && ./a`},
		{"node", `node -e 'const{execSync}=require("child_process");execSync("true");require("fs").readdirSync("/");require("net").createServer().listen(0,"127.0.0.1",function(){this.close()});new(require("worker_threads").Worker)("",{eval:true})'`},
		{"java", `java -version`},
		{"go", `printf 'package main\nimport "net"\nfunc main(){l,e:=net.Listen("tcp","127.0.0.1:0");if e!=nil{panic(e)};l.Close()}' >m.go && GOTELEMETRY=off GOCACHE=$PWD/cache GOFLAGS= GOTOOLCHAIN=local go run m.go`},
		{"perl", `perl -e 'use Socket; socketpair(my $a,my $b,AF_UNIX,SOCK_STREAM,0) or die; fork // die; wait; print "ok\n"'`},
		{"tar", `mkdir d && echo a>d/a && ln -s a d/b && tar czf d.tgz d && rm -r d && tar xzf d.tgz && cat d/b`},
		{"make", `printf 'all: a b\na b:\n\ttouch $@\n' >Makefile && make -s -j4`},
		{"dpkg-deb", `mkdir -p p/DEBIAN && printf 'Package: p\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: d\n' >p/DEBIAN/control && dpkg-deb -b p p.deb && dpkg-deb -x p.deb x && apt-cache --version`},
		{"tmux", `tmux -V`},
		{"sync", `sync && sync .`},
	} {
		t.Run(tc.need, func(t *testing.T) {
			if _, err := exec.LookPath(tc.need); err != nil {
				t.Skipf("%s is not installed", tc.need)
			}
			if testing.Short() && tc.need == "go" {
				t.Skip("compiling with an empty cache is slow")
			}
			if out, err := child(t, "default", "bash", "-ec", tc.script); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestDebugProfileTraces(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	if out, err := child(t, "debug", "strace", "-f", "-o", "/dev/null", "true"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// BenchmarkAttach measures what every exec pays.
func BenchmarkAttach(b *testing.B) {
	filters := map[string][]byte{"floor": encode([]insn{{code: opRet, k: actAllow}})}
	for _, profile := range Profiles() {
		filters[profile] = compile(b, profile)
	}
	for _, name := range append([]string{"floor"}, Profiles()...) {
		b.Run(name, func(b *testing.B) {
			filter := filters[name]
			var total time.Duration
			for b.Loop() {
				took := make(chan time.Duration)
				go func() {
					runtime.LockOSThread() // the thread ends with the goroutine, and its filter with it
					start := time.Now()
					if err := install(filter); err != nil {
						b.Error(err)
					}
					took <- time.Since(start)
				}()
				total += <-took
			}
			b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/attach")
			b.ReportMetric(float64(len(filter)/8), "insns")
		})
	}
}
