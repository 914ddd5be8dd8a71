/* wire/torchfile.c and dtensor.c: any bytes as a torch.save file. Every tensor in it must lie inside
 * its storage, and its storage inside the file. */
#include "fuzz.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/span.h"
#include "ranks/dtensor.h"
#include "wire/torchfile.h"

static void touch(const struct uns_torchfile *file, const struct uns_value *v, struct uns_arena *arena)
{
	struct uns_sharded_tensor sharded;
	struct uns_torch_tensor t;
	size_t i;

	if (!v)
		return;
	if (uns_torch_is_tensor(v) && uns_torch_tensor(file, v, &t, NULL) == 0 &&
	    !uns_inside(t.data_bytes, t.storage_bytes, file->r->size))
		abort();
	if (uns_dtensor_is(v))
		uns_dtensor_parse(file, v, 0, arena, &sharded, NULL);
	touch(file, v->state, arena);
	if (v->kind == UNS_VALUE_OBJECT)
		touch(file, v->object.args, arena);
	for (i = 0; v->kind == UNS_VALUE_DICT && i < v->n; i++)
		touch(file, v->pair[i].value, arena);
	for (i = 0; uns_value_at(v, i); i++)
		touch(file, uns_value_at(v, i), arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_span in = uns_span_of(data, size);
	struct uns_reader r = uns_reader_of_span(&in);
	struct uns_err err = { 0 };
	struct uns_torchfile file;

	if (uns_torchfile_open(&r, &arena, &file, &err) == 0) {
		if (uns_value_fits(file.root, 1000, 64))
			touch(&file, file.root, &arena);
	} else if (err.code >= 0) {
		abort();
	}
	uns_arena_fini(&arena);
	return 0;
}
