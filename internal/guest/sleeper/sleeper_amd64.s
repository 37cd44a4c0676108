#include "textflag.h"

// The program of a guest at rest. It is copied out of here to be a program of its own (see image) and never runs in
// this process, so it uses its own stack's red zone and knows of no other address. Its arguments are those of the
// guest that it waits for; the second is the descriptor of that guest's program, in decimal.
TEXT program<>(SB),NOSPLIT|NOFRAME,$0
	MOVQ	SP, R12
	MOVQ	(R12), AX		// argc
	LEAQ	8(R12), R13		// argv
	LEAQ	16(R12)(AX*8), R14	// envp
	MOVQ	8(R13), BX
	XORL	R15, R15
digit:
	MOVBLZX	(BX), CX
	TESTL	CX, CX
	JZ	wait
	IMULQ	$10, R15
	LEAQ	-48(R15)(CX*1), R15
	INCQ	BX
	JMP	digit
wait:
	MOVL	$3, -16(R12)		// {fd: ListenFD, events: POLLIN}
	MOVL	$1, -12(R12)
	MOVQ	$7, AX			// poll
	LEAQ	-16(R12), DI
	MOVQ	$1, SI
	MOVQ	$-1, DX
	SYSCALL
	CMPQ	AX, $1
	JNE	wait
	MOVQ	$0, -8(R12)
	MOVQ	$322, AX		// execveat(fd, "", argv, envp, AT_EMPTY_PATH)
	MOVQ	R15, DI
	LEAQ	-8(R12), SI
	MOVQ	R13, DX
	MOVQ	R14, R10
	MOVQ	$0x1000, R8
	SYSCALL
	MOVQ	$0, -32(R12)		// out of memory: once more in 10 ms
	MOVQ	$10000000, -24(R12)
	MOVQ	$35, AX			// nanosleep
	LEAQ	-32(R12), DI
	XORL	SI, SI
	SYSCALL
	JMP	wait

// func code() *[maxCode]byte
TEXT ·code(SB),NOSPLIT,$0-8
	LEAQ	program<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
