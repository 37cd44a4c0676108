#include "textflag.h"

// func vforkRun(args *cloneArgs, size uintptr, prog *call, n uintptr, failed *uint32) (r uintptr)
//
// clone3(args, size); the child works off n calls at prog and never returns.
// It uses registers only: the stack is the parent's, who is suspended meanwhile.
// Offsets are those of type call.
TEXT ·vforkRun(SB),NOSPLIT|NOFRAME,$0-48
	MOVQ	prog+16(FP), R12
	MOVQ	n+24(FP), BX
	MOVQ	failed+32(FP), R13
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	$435, AX	// clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	loop
	MOVQ	AX, r+40(FP)
	RET
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
	MOVQ	AX, 72(R12)	// result
	MOVQ	64(R12), CX	// out
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
	CMPQ	56(R12), $0	// lax
	JNE	next
fail:
	MOVL	$1, (R13)
	MOVQ	$231, AX	// exit_group
	MOVQ	$127, DI
	SYSCALL
	INT	$3
