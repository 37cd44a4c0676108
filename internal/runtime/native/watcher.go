package native

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher waits for all boxes' descriptors (pidfds, memory events) on one
// thread: a goroutine each would cost thousands of stacks.
type watcher struct {
	ep, wake int
	mu       sync.Mutex
	next     int32
	handlers map[int32]func()
	done     chan struct{}
}

func newWatcher() (*watcher, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return nil, err
	}
	w := &watcher{ep: ep, wake: wake, handlers: map[int32]func(){}, done: make(chan struct{})}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: 0}); err != nil {
		unix.Close(ep)
		unix.Close(wake)
		return nil, err
	}
	go w.loop()
	return w, nil
}

// add calls fn, which must not block, each time fd is ready. fn has to make
// the descriptor unready or remove it.
func (w *watcher) add(fd int, events uint32, fn func()) (token int32, err error) {
	w.mu.Lock()
	w.next++
	if w.next <= 0 {
		w.next = 1
	}
	token = w.next
	w.handlers[token] = fn
	w.mu.Unlock()
	err = unix.EpollCtl(w.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd), Pad: token})
	if err != nil {
		w.forget(token)
	}
	return token, err
}

// remove stops watching. Call it before fd is closed. A call of fn may still be under way.
func (w *watcher) remove(fd int, token int32) {
	_ = unix.EpollCtl(w.ep, unix.EPOLL_CTL_DEL, fd, nil)
	w.forget(token)
}

func (w *watcher) forget(token int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.handlers, token)
}

func (w *watcher) loop() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.ep, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		for _, ev := range events[:n] {
			if ev.Pad == 0 {
				return
			}
			w.mu.Lock()
			fn := w.handlers[ev.Pad]
			w.mu.Unlock()
			if fn != nil {
				fn()
			}
		}
	}
}

func (w *watcher) close() {
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.done
	unix.Close(w.ep)
	unix.Close(w.wake)
}
