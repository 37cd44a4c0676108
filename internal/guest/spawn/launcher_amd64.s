#include "textflag.h"

// func startThread(flags uintptr, l *launcher) (r uintptr)
//
// Starts a thread that the Go runtime does not know. It runs on registers only
// (its stack pointer is the caller's, but nothing is pushed, and all signals are
// blocked) and works off its initial calls. Whenever state becomes 1 then it forks, or
// where there are no clone arguments works off more calls itself.
// Offsets are those of type launcher and type call.
TEXT ·startThread(SB),NOSPLIT|NOFRAME,$0-24
	MOVQ	flags+0(FP), DI
	MOVQ	l+8(FP), R13
	MOVQ	$0, SI
	MOVQ	$0, DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	MOVQ	$56, AX	// clone
	SYSCALL
	TESTQ	AX, AX
	JZ	thread
	MOVQ	AX, r+16(FP)
	RET
thread:
	MOVQ	8(R13), R12
	MOVQ	16(R13), BX
init:
	TESTQ	BX, BX
	JZ	done
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	MOVQ	40(R12), R8
	SYSCALL
	CMPQ	AX, $-4095
	JCC	dead
	ADDQ	$80, R12
	DECQ	BX
	JMP	init
done:
	MOVL	$2, 0(R13)
	MOVQ	R13, DI
	MOVQ	$129, SI	// FUTEX_WAKE_PRIVATE
	MOVQ	$1, DX
	MOVQ	$202, AX	// futex
	SYSCALL
wait:
	MOVL	0(R13), DX
	CMPL	DX, $1
	JEQ	work
	MOVQ	R13, DI
	MOVQ	$128, SI	// FUTEX_WAIT_PRIVATE
	MOVQ	$0, R10
	MOVQ	$202, AX
	SYSCALL
	JMP	wait
work:
	MOVQ	24(R13), DI
	TESTQ	DI, DI
	JZ	thread
	MOVQ	$88, SI	// sizeof(cloneArgs)
	MOVQ	64(R13), DX	// the key
	MOVQ	72(R13), R10
	MOVQ	80(R13), R8
	MOVQ	88(R13), R9
	MOVQ	$435, AX	// clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	MOVQ	AX, 56(R13)
	JMP	done
child:
	MOVQ	32(R13), R12
	MOVQ	40(R13), BX
	MOVQ	48(R13), R13
loop:
	TESTQ	BX, BX
	JZ	fail
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	MOVQ	40(R12), R8
	MOVQ	48(R12), R9
	SYSCALL
	MOVQ	AX, 72(R12)
	MOVQ	64(R12), CX
	TESTQ	CX, CX
	JZ	check
	MOVQ	AX, (CX)
check:
	CMPQ	AX, $-4095
	JCC	failed
next:
	ADDQ	$80, R12
	DECQ	BX
	JMP	loop
failed:
	CMPQ	56(R12), $0
	JNE	next
fail:
	MOVL	$1, 0(R13)
	MOVQ	$231, AX	// exit_group
	MOVQ	$127, DI
	SYSCALL
	INT	$3
dead:
	MOVL	$3, 0(R13)
	MOVQ	R13, DI
	MOVQ	$129, SI
	MOVQ	$1, DX
	MOVQ	$202, AX
	SYSCALL
	MOVQ	$60, AX	// exit: of this thread
	MOVQ	$0, DI
	SYSCALL
	INT	$3
