package guest

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// Where there is no cgroup (a runtime without root), an op's tree is found in
// /proc: its session, its process group and what descends from it.

type procStat struct{ pid, ppid, pgrp, session int }

func readStat(pid int) (p procStat, ok bool) {
	b := readRegular("/proc/"+strconv.Itoa(pid)+"/stat", 4096)
	_, rest, ok := bytes.Cut(b, []byte(") ")) // the name before may hold anything but this
	if i := bytes.LastIndex(b, []byte(") ")); i >= 0 {
		rest = b[i+2:]
	}
	f := bytes.Fields(rest)
	if !ok || len(f) < 4 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return p, false
	}
	p.pid = pid
	p.ppid, _ = strconv.Atoi(string(f[1]))
	p.pgrp, _ = strconv.Atoi(string(f[2]))
	p.session, _ = strconv.Atoi(string(f[3]))
	return p, true
}

func allProcs() []procStat {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var list []procStat
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n <= 0 {
			return list
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				if p, ok := readStat(pid); ok {
					list = append(list, p)
				}
			}
		}
	}
}

// treeOf gives the living processes that belong to the op with this leader.
func treeOf(leader int) []int {
	procs := allProcs()
	in := map[int]bool{leader: true}
	for grown := true; grown; {
		grown = false
		for _, p := range procs {
			if !in[p.pid] && (in[p.ppid] || p.pgrp == leader || p.session == leader) {
				in[p.pid], grown = true, true
			}
		}
	}
	var list []int
	for _, p := range procs {
		if in[p.pid] {
			list = append(list, p.pid)
		}
	}
	return list
}

// killTree stops the tree first, so that it cannot fork away, then kills it.
func killTree(leader int) {
	for range 8 {
		pids := treeOf(leader)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGSTOP)
		}
		more := treeOf(leader)
		for _, pid := range more {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if len(more) == len(pids) {
			return
		}
	}
}
