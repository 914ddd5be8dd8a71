#include "session/reads.h"

#include "base/clock.h"

ssize_t session_read(const struct read_from *from, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	struct unshard *u = from->u;
	const int64_t began_ns = uns_now_ns();
	ssize_t got = uns_read_by(from->way, from->backing, from->layout, buf, len, off, err);

	usage_read(&u->usage, from->usage, uns_now_ns() - began_ns, got > 0 ? (uint64_t)got : 0);
	__atomic_add_fetch(&u->n_reads, 1, __ATOMIC_RELAXED);
	if (got >= 0) {
		__atomic_add_fetch(&u->n_read_bytes, (uint64_t)got, __ATOMIC_RELAXED);
		return got;
	}
	__atomic_add_fetch(&u->n_errors, 1, __ATOMIC_RELAXED);
	errors_add(&u->errors, &u->log, err, from->name);
	if (from->record)
		records_suspect(&u->records, from->record, got == -ESTALE);
	return got;
}
