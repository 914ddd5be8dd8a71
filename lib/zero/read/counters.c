#include "zero/read/counters.h"

#include "base/cleanup.h"
#include "zero/file.h"

static int counter_read(const struct uns_catalog *cat, const struct uns_zero_entry *e, int64_t *out,
			struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	struct uns_err why = { .keep = &arena };
	int code = uns_zero_file_open(cat, e->file, &arena, &file, &why);

	*out = UNS_UNKNOWN;
	if (code < 0)
		return uns_code_is_finding(code) ? 0 : uns_fail_copy(err, &why);
	if (!uns_value_int(uns_value_get(file.torch.root, "global_steps"), out))
		*out = UNS_UNKNOWN;
	return 0;
}

int uns_zero_counters_check(struct uns_catalog *cat, const struct uns_zero_dir *dir, struct uns_err *err)
{
	const struct uns_zero_entry *e, *end, *first = NULL, *odd = NULL;
	int64_t steps, expected = UNS_UNKNOWN, found = UNS_UNKNOWN;
	size_t n, n_odd = 0;

	e = uns_zero_dir_of(dir, UNS_ZERO_MODEL, -1, &n);
	for (end = e + n; n > 1 && e < end; e++) {
		UNS_TRY(counter_read(cat, e, &steps, err));
		if (steps < 0 || (first && steps == expected))
			continue;
		if (!first) {
			first = e;
			expected = steps;
			continue;
		}
		if (!n_odd++) {
			odd = e;
			found = steps;
		}
	}
	if (!odd)
		return 0;
	return UNS_ADD_FINDING(cat, err, ZERO_COUNTERS_DIFFER, .scope = UNS_SCOPE_OPTIMIZER, .file = odd->path,
			       .found = uns_num((uint64_t)found), .expected = uns_num((uint64_t)expected),
			       .arg = { { "other_file", uns_str(first->path) }, { "more", uns_more(n_odd - 1) } });
}
