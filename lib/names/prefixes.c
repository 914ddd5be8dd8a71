/* Compares names with those by which the family's bare model is recognised (prefix_table.c). */
#include "names/prefixes.h"

#include <string.h>

#include "base/path.h"
#include "names/config_families.h"
#include "names/prefix_table.h"
#include "names/template.h"

/* Takes "PREFIX." off the name as often as it is there. */
static const char *without_base(const char *name, const struct uns_prefix_row *row)
{
	const size_t n = strlen(row->prefix);

	while (n && strncmp(name, row->prefix, n) == 0 && name[n] == '.')
		name += n + 1;
	return name;
}

/* Is it the embedding of the bare model, or a tensor of one of the model's layers? A save of the trained parameters
 * alone has no embedding. Layers without the family's prefix show nothing: other trainers (torchtune) call theirs so
 * too. */
static bool is_known(const char *name, const struct uns_prefix_row *row)
{
	const size_t n = strlen(row->stack);
	const char *bare = without_base(name, row);

	if (strcmp(bare, row->embedding) == 0)
		return true;
	return n && (bare != name || !*row->prefix) && strncmp(bare, row->stack, n) == 0 && bare[n] >= '0' &&
	       bare[n] <= '9';
}

/* How many characters are in front of a name that from_pretrained knows; 0 = the name is no embedding behind a prefix.
 */
static size_t length_before(const char *name, const struct uns_prefix_row *row)
{
	const size_t len = strlen(name), n = strlen(row->embedding), base = strlen(row->prefix);
	size_t kept;

	if (len <= n + 1 || strcmp(name + len - n, row->embedding) != 0 || name[len - n - 1] != '.')
		return 0;
	for (kept = len - n; kept >= base + 1 && strncmp(name + kept - base - 1, row->prefix, base) == 0 &&
			     (kept == base + 1 || name[kept - base - 2] == '.');)
		kept -= base + 1;
	return kept;
}

static bool has_prefix(const struct uns_catalog *cat, const char *prefix)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	for (; t < end; t++)
		if (uns_role_is_model(t->role) && (!uns_str_starts(t->name, prefix) || !t->name[strlen(prefix)]))
			return false;
	return true;
}

int uns_prefix_find(const struct uns_config_info *info, const struct uns_catalog *cat, const char *strip,
		    struct uns_arena *arena, struct uns_found_prefix *out, struct uns_err *err)
{
	const struct uns_prefix_row *row =
		uns_family_row(uns_prefix_table, uns_prefix_table_n, sizeof(*uns_prefix_table), info->model_type);
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const char *name;
	size_t n;
	bool any = false;

	*out = (struct uns_found_prefix){ 0 };
	if (!row || cat->summary.is_megatron || cat->summary.adapter == UNS_ADAPTER_ALONE ||
	    cat->summary.adapter == UNS_ADAPTER_AND_BASE)
		return 0;
	for (; t < end; t++) {
		if (t->role != UNS_ROLE_WEIGHT)
			continue;
		any = true;
		name = uns_strip_name(strip ? strip : "", t->name);
		if (is_known(name, row))
			return 0;
		n = out->prefix ? 0 : length_before(t->name, row);
		if (n)
			UNS_TRY_ALLOC(out->prefix = uns_arena_strn(arena, t->name, n), err);
	}
	if (any)
		UNS_TRY_ALLOC(out->missed = uns_arena_printf(arena, "%s.%s", row->prefix, row->embedding), err);
	out->is_everywhere = out->prefix && has_prefix(cat, out->prefix);
	return 0;
}
