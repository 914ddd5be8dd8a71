/* What all steps of an export do: fail, and report how far they are. */
#include "export/exporting.h"

#include <stdatomic.h>
#include <string.h>

int export_fail(struct uns_err *err, int code, const struct unshard_error *why)
{
	return uns_fail(err, code, "%s", why->text[0] ? why->text : strerror(-code));
}

int export_step(struct export *e, enum unshard_phase phase, _Atomic uint64_t *done, uint64_t n_bytes,
		uint64_t total_bytes, struct uns_err *err)
{
	uint64_t sum = atomic_fetch_add(done, n_bytes) + n_bytes;

	return caller_progress(&e->caller, phase, sum, total_bytes) ? uns_fail(err, -EINTR, "interrupted") : 0;
}
