package sched

// Adopt promises d without asking whether it fits: the box runs already, and was
// admitted by an earlier node whose total may have been larger. Until enough is
// released again, Admit refuses.
func (l *Ledger) Adopt(d Demand) {
	l.promised.Memory += d.Memory
	l.milli += millis(d.CPU)
}
