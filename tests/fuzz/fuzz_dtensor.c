/* ranks/dtensor.c and dtensor_new.c: any pickle as a torch.save file, its tensors with their storages. What is
 * read as a sharded tensor lies inside its shape; what is made in its spelling is read as what was asked for. */
#include "fuzz.h"

#include <stdlib.h>

#include "mutate_pickles.h"
#include "ranks/dtensor.h"
#include "ranks/dtensor_new.h"
#include "torch_maker.h"
#include "wire/value_new.h"

static void check_boxes(const struct uns_sharded_tensor *t)
{
	size_t s, b, d;

	for (s = 0; s < t->n_shards; s++)
		for (b = 0; b < t->shard[s].n_boxes; b++)
			for (d = 0; d < t->n_dims; d++)
				if (t->shard[s].lo[b][d] + t->shard[s].len[b][d] > t->dims[d])
					abort();
}

/* The second of two ranks, of five rows and three columns. */
static void make_another(const struct uns_torchfile *file, const struct uns_value *like, struct uns_arena *arena)
{
	static const uint64_t dims[] = { 5, 3 };
	const struct uns_value *mesh, *made;
	struct uns_dtensor_form form;
	struct uns_sharded_tensor t;
	struct uns_err err = { 0 };

	if (uns_dtensor_form_of(like, arena, &form, &err) < 0)
		return;
	if (uns_dtensor_mesh_new(&form, arena, 2, 1, uns_value_new_tensor(arena, 0), &mesh, &err) < 0 ||
	    uns_dtensor_new(&form, arena, mesh, UNS_F32, dims, 2, uns_value_new_tensor(arena, 1), &made, &err) < 0)
		return;
	if (uns_dtensor_parse(file, made, 1, arena, &t, NULL) < 0)
		return; /* what it took over can be odd */
	check_boxes(&t);
	if (t.n_dims != 2 || t.dims[0] != 5 || t.dims[1] != 3 || t.dtype != UNS_F32)
		abort();
}

static void touch(const struct uns_torchfile *file, const struct uns_value *v, struct uns_arena *arena)
{
	struct uns_sharded_tensor t;
	struct uns_err err = { 0 };
	int64_t rank;
	size_t i;

	if (!v)
		return;
	for (rank = -1; uns_dtensor_is(v) && rank < 2; rank++) {
		if (uns_dtensor_parse(file, v, rank, arena, &t, &err) == 0)
			check_boxes(&t);
		else if (err.code >= 0)
			abort();
	}
	if (uns_dtensor_is(v))
		make_another(file, v, arena);
	touch(file, v->state, arena);
	for (i = 0; v->kind == UNS_VALUE_DICT && i < v->n; i++)
		touch(file, v->pair[i].value, arena);
	for (i = 0; v->kind != UNS_VALUE_DICT && uns_value_at(v, i); i++)
		touch(file, uns_value_at(v, i), arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_span in = uns_span_of(data, size), zip;
	struct torch_maker maker;
	struct uns_torchfile file;
	struct uns_reader r;

	if (!torch_of_pickle(&in, &maker))
		return 0;
	zip = uns_span_of(maker.zip.p, maker.zip.len);
	r = uns_reader_of_span(&zip);
	if (uns_torchfile_open(&r, &arena, &file, NULL) == 0 && uns_value_fits(file.root, 10000, 64))
		touch(&file, file.root, &arena);
	uns_arena_fini(&arena);
	torch_maker_fini(&maker);
	return 0;
}
