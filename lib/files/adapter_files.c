/* Collects the tensors of each adapter. Does not know how they are named. */
#include "files/adapter_files.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "files/adapter_list.h"
#include "files/masters.h"
#include "files/safetensors_file.h"

static int adapter_add(const struct uns_adapter_files *in, const struct uns_one_adapter *a, bool top,
		       struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = in->catalog;
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	const char *stem =
		top ? "adapter_model" : uns_arena_printf(&out->arena, "%.*s/adapter_model", (int)a->len, a->name);
	size_t n, i;

	UNS_TRY_ALLOC(stem, err);
	UNS_TRY(uns_adapter_tensors(cat, a, &out->arena, &v, &n, err));
	for (i = 0; i < n; i++) {
		v[i].tensor = uns_masters_or(in->masters, v[i].tensor);
		v[i].out = v[i].tensor->dtype;
	}
	return uns_part_safetensors_set(cat, v, n, stem, UINT64_MAX, in->origin, out,
					err); /* one file: PEFT reads no index */
}

int uns_adapter_files_add(const struct uns_adapter_files *in, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_adapter_list_fini) struct uns_adapter_list all = { 0 };
	size_t i;

	UNS_TRY(uns_adapter_list(in->catalog, in->other, &all, err));
	for (i = 0; i < all.n; i++)
		UNS_TRY(adapter_add(in, &all.v[i], in->apart ? all.n == 1 : i == all.chosen, out, err));
	return 0;
}
