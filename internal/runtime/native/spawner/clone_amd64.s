#include "textflag.h"

// func cloneRun(args *cloneArgs, size uintptr, prog *call, n uintptr) (r uintptr)
//
// clone3(args, size). The parent returns at once; the child, which shares its
// memory, works off n calls at prog and never returns. It uses registers only:
// the stack is the parent's. A call that fails ends the child.
TEXT ·cloneRun(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	prog+16(FP), R12
	MOVQ	n+24(FP), BX
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	$435, AX	// clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	loop
	MOVQ	AX, r+32(FP)
	RET
loop:
	TESTQ	BX, BX
	JZ	end
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	SYSCALL
	CMPQ	AX, $-4095
	JCC	end
	ADDQ	$32, R12
	DECQ	BX
	JMP	loop
end:
	MOVQ	$231, AX	// exit_group
	MOVQ	$127, DI
	SYSCALL
	INT	$3
