/* dcp/metadata.c and dcp_merge.c: any bytes as metadata; what parses is merged with itself. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "dcp/metadata.h"

/* What the header promises of every entry. */
static void check(const struct uns_dcp_metadata *m)
{
	const struct uns_dcp_entry *e;
	size_t i, k, d;

	for (i = 0; i < m->n_entries; i++) {
		e = &m->entry[i];
		if (!e->key || !e->path || !e->n_path)
			abort();
		if ((e->kind == UNS_DCP_UNKNOWN) != (e->code < 0) || (e->code < 0) != !!e->why)
			abort();
		for (k = 0; e->kind == UNS_DCP_TENSOR && k < e->n_chunks; k++)
			for (d = 0; d < e->n_dims; d++)
				if (e->chunk[k].box->lo[d] + e->chunk[k].box->len[d] > e->dims[d])
					abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_metadata parts[2], merged;
	struct uns_err err = { 0 };
	int rc = uns_dcp_metadata_parse(uns_span_of(data, size), NULL, &arena, &parts[0], &err);

	if ((rc < 0) != (err.code < 0) || rc > 0)
		abort();
	if (rc == 0) {
		check(&parts[0]);
		parts[1] = parts[0];
		if (uns_dcp_metadata_merge(parts, 2, &arena, &merged, &err) < 0)
			abort();
		check(&merged);
	}
	uns_arena_fini(&arena);
	return 0;
}
