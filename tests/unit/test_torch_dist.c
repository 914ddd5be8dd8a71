/* What a view torch_dist is made of: chunks of tensors (dcp/items.h), each element once, and the common state that is
 * kept (megatron/common_pickle.h). megatron-core loads such directories in tests/e2e/test_torch_dist.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "dcp/items.h"
#include "dcp/metadata.h"
#include "megatron/common_pickle.h"
#include "wire/pickle.h"
#include "wire/pickle_emit.h"
#include "wire/value_new.h"

/* clang-format off: tables, a case a row */

static const struct {
	const char *name;
	struct uns_shape shape;
	uint64_t chunk_bytes;
	size_t n; /* chunks */
	uint64_t most_elems; /* of one */
} cut[] = {
	{ "whole", { 2, { 6, 5 } }, 1000, 1, 30 },
	{ "a vector of each layer", { 2, { 3, 4 } }, 1000, 1, 12 },
	{ "layers", { 3, { 3, 4, 5 } }, 1000, 3, 20 },
	{ "layers and experts", { 4, { 2, 3, 4, 5 } }, 1000, 6, 20 },
	{ "rows", { 2, { 7, 5 } }, 40, 4, 10 },
	{ "rows of each layer", { 3, { 2, 5, 3 } }, 24, 6, 6 },
	{ "a row that is too long", { 2, { 3, 100 } }, 16, 3, 100 },
	{ "a vector", { 1, { 9 } }, 16, 1, 9 },
	{ "one number", { 0, { 0 } }, 16, 1, 1 },
	{ "nothing", { 3, { 2, 0, 4 } }, 16, 1, 0 },
};

/* clang-format on */

/* A catalog of one tensor of fp32, in the order of its elements. */
struct source {
	struct uns_catalog cat;
	struct uns_file file;
	struct uns_tensor tensor;
	struct uns_piece piece;
};

static void source_of(struct source *s, struct uns_shape shape)
{
	*s = (struct source){ .file = { .path = "f", .stat.id.size = UINT64_MAX } };
	s->cat = (struct uns_catalog){ .path = "run",
				       .files = &s->file,
				       .n_files = 1,
				       .tensors = &s->tensor,
				       .n_tensors = 1,
				       .pieces = &s->piece,
				       .n_pieces = 1 };
	s->piece = (struct uns_piece){ .kind = UNS_PIECE_RANGE,
				       .range = { 0, uns_shape_elems(&shape) },
				       .length_bytes = 4 * uns_shape_elems(&shape) };
	s->tensor = (struct uns_tensor){
		.name = "t", .key = "t", .root = "", .dtype = UNS_F32, .shape = shape, .n_pieces = 1, UNS_TENSOR_ALONE
	};
}

/* The bytes of a file of literals. */
static struct uns_span text_of(const struct uns_vfile *file)
{
	assert_true(file && file->layout.n == 1 && file->layout.segment[0].from == UNS_FROM_LITERAL);
	return uns_span_of(file->layout.segment[0].literal, (size_t)file->layout.size_bytes);
}

/* The first element of the tensor that is in these bytes of the file, and how many are. */
static uint64_t elems_at(const struct uns_layout *layout, uint64_t at, uint64_t end, uint64_t *first)
{
	const struct uns_segment *s = layout->segment, *stop = s + layout->n;
	uint64_t n = 0;

	for (; s < stop; s++)
		if (s->from == UNS_FROM_PIECES && s->at_bytes >= at && s->at_bytes < end) {
			*first = n ? *first : s->first_elem;
			n += s->len_bytes / 4;
		}
	return n;
}

static void test_chunks_have_every_element_once(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct uns_dcp_metadata meta;
	struct uns_dcp_items *items;
	const struct uns_vfile *data;
	struct uns_err err = { 0 };
	struct source s;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(cut) / sizeof(*cut); i++) {
		UNS_CLEANUP(uns_vtree_fini) struct uns_vtree tree = { 0 };
		UNS_CLEANUP(uns_free_p) uint8_t *seen = NULL;
		uint64_t elems = uns_shape_elems(&cut[i].shape), first, n, x;

		source_of(&s, cut[i].shape);
		assert_int_equal(uns_dcp_items_count(&s.tensor, cut[i].chunk_bytes), cut[i].n);
		if (uns_dcp_items_new(&s.cat, &tree.arena, &scratch, cut[i].n, false, &items, &err) < 0 ||
		    uns_dcp_items_add_chunks(items, "t", &s.tensor, cut[i].chunk_bytes, &err) < 0 ||
		    uns_dcp_items_finish(items, "", &tree, &err) < 0)
			fail_msg("%s: %s", cut[i].name, err.text);
		uns_vtree_seal(&tree);
		data = uns_vtree_find(&tree, "__0_0.distcp");
		if (uns_dcp_metadata_parse(text_of(uns_vtree_find(&tree, ".metadata")), NULL, &scratch, &meta, &err) <
		    0)
			fail_msg("%s: %s", cut[i].name, err.text);
		assert_false(meta.has_paths);
		assert_int_equal(meta.n_entries, 1);
		assert_int_equal(meta.entry[0].n_chunks, cut[i].n);
		assert_non_null(seen = calloc(elems + 1, 1));
		for (k = 0; k < cut[i].n; k++) {
			const struct uns_dcp_chunk *c = &meta.entry[0].chunk[k];

			assert_non_null(c->storage);
			n = elems_at(&data->layout, c->storage->offset_bytes,
				     c->storage->offset_bytes + c->storage->length_bytes, &first);
			assert_int_equal(n, uns_box_elems(c->box));
			assert_true(n <= cut[i].most_elems);
			for (x = 0; x < n; x++) /* its box is where the elements are */
				assert_int_equal(seen[first + x]++, 0);
			if (n)
				assert_int_equal(uns_stretches_of_box(c->box, &cut[i].shape).base, first);
		}
		for (x = 0; x < elems; x++)
			assert_int_equal(seen[x], 1);
	}
}

/* -- the common state -- */

/* A torch.save file with this value, in memory. */
struct saved {
	struct uns_arena arena;
	struct uns_torch_leaves leaves;
	uint8_t *bytes;
	struct uns_span span;
};

static void saved_fini(struct saved *s)
{
	uns_torch_leaves_fini(&s->leaves);
	uns_arena_fini(&s->arena);
	free(s->bytes);
}

static void save(struct saved *s, const struct uns_value *v)
{
	const struct uns_catalog cat = { .path = "run" };
	const struct uns_torch_input in = { .cat = &cat, .root = v, .leaves = &s->leaves, .stem = "archive" };
	struct uns_err err = { 0 };
	struct uns_layout layout;
	size_t i;

	if (uns_part_torch_file(&in, &s->arena, &layout, &err) < 0)
		fail_msg("%s", err.text);
	assert_non_null(s->bytes = calloc(1, layout.size_bytes));
	for (i = 0; i < layout.n; i++) {
		assert_int_equal(layout.segment[i].from, UNS_FROM_LITERAL);
		memcpy(s->bytes + layout.segment[i].at_bytes, layout.segment[i].literal, layout.segment[i].len_bytes);
	}
	s->span = uns_span_of(s->bytes, layout.size_bytes);
}

static int keep_object(struct uns_megatron_kept *kept, const char *dict, const char *name, bool as_tensor)
{
	UNS_CLEANUP(saved_fini) struct saved s = { 0 };
	struct uns_err err = { 0 };
	int code;

	save(&s, as_tensor ? uns_torch_step_add(&s.leaves, &s.arena, 5) : uns_value_new_str(&s.arena, name));
	code = uns_megatron_kept_add(kept, dict, name, s.span, &err);
	if (code < 0)
		fail_msg("%s", err.text);
	return code;
}

/* The value that was kept. */
static const struct uns_value *kept_of(struct uns_catalog *cat, struct uns_arena *arena)
{
	const struct uns_value *v = uns_catalog_value(cat, UNS_MEGATRON_PICKLE, ""), *out;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_span in;

	assert_non_null(v);
	assert_int_equal(v->kind, UNS_VALUE_BYTES);
	uns_text_add(&text, v->bytes, v->n);
	uns_text_add(&text, ".", 1);
	in = uns_span_of(text.p, text.len);
	assert_int_equal(uns_pickle_parse(&in, arena, &out, NULL), 0);
	return out;
}

static void test_objects_become_one_dict(void **state)
{
	UNS_CLEANUP(uns_megatron_kept_fini) struct uns_megatron_kept kept = { 0 };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_value *v, *inner;
	struct uns_catalog *cat;

	(void)state;
	assert_int_equal(uns_catalog_new("run", &cat, NULL), 0);
	assert_int_equal(keep_object(&kept, "", "args", false), 1);
	assert_int_equal(keep_object(&kept, "schedule", "lr", false), 1);
	assert_int_equal(keep_object(&kept, "schedule", "steps", false), 1);
	assert_int_equal(keep_object(&kept, "", "tensor", true), 0); /* it refers to a storage */
	assert_int_equal(keep_object(&kept, "", "last", false), 1);
	assert_int_equal(uns_megatron_kept_finish(&kept, cat, 0, NULL), 0);
	v = kept_of(cat, &arena);
	assert_int_equal(v->n, 3);
	assert_string_equal(uns_value_str(uns_value_get(v, "args")), "args");
	assert_string_equal(uns_value_str(uns_value_get(v, "last")), "last");
	inner = uns_value_get(v, "schedule");
	assert_int_equal(inner->n, 2);
	assert_string_equal(uns_value_str(uns_value_get(inner, "steps")), "steps");
	uns_catalog_free(cat);
}

static void test_a_dict_that_is_open_is_ended(void **state)
{
	UNS_CLEANUP(uns_megatron_kept_fini) struct uns_megatron_kept kept = { 0 };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_catalog *cat;

	(void)state;
	assert_int_equal(uns_catalog_new("run", &cat, NULL), 0);
	assert_int_equal(keep_object(&kept, "schedule", "lr", false), 1);
	assert_int_equal(uns_megatron_kept_finish(&kept, cat, 0, NULL), 0);
	assert_string_equal(uns_value_str(uns_value_get(uns_value_get(kept_of(cat, &arena), "schedule"), "lr")), "lr");
	uns_catalog_free(cat);
}

/* Keeps a common.pt with this value, and returns what the catalog has of it. */
static const struct uns_value *keep_file(struct uns_catalog **cat, struct saved *s, const struct uns_value *v)
{
	struct uns_torchfile torch;
	struct uns_err err = { 0 };
	struct uns_reader r;

	save(s, v);
	r = uns_reader_of_span(&s->span);
	assert_int_equal(uns_catalog_new("run", cat, NULL), 0);
	if (uns_torchfile_open(&r, &s->arena, &torch, &err) < 0 || uns_megatron_common_keep(*cat, 0, &torch, &err) < 0)
		fail_msg("%s", err.text);
	return uns_catalog_value(*cat, UNS_MEGATRON_PICKLE, "");
}

static void test_a_file_is_kept_with_its_storages(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(saved_fini) struct saved s = { 0 };
	struct uns_value *v = uns_value_new_dict(&s.arena, 2);
	const struct uns_value *storage;
	struct uns_catalog *cat;
	float step;

	(void)state;
	uns_value_put_str(&s.arena, v, "step", uns_torch_step_add(&s.leaves, &s.arena, 5));
	uns_value_put_str(&s.arena, v, UNS_MEGATRON_CONTENT, uns_value_new_dict(&s.arena, 0));
	keep_file(&cat, &s, v);
	assert_int_equal(kept_of(cat, &arena)->n, 2);
	storage = uns_catalog_value(cat, UNS_MEGATRON_STORAGE, "0");
	assert_non_null(storage);
	assert_int_equal(storage->n, sizeof(step));
	memcpy(&step, storage->bytes, sizeof(step));
	assert_true(step > 4.9F && step < 5.1F);
	assert_non_null(uns_catalog_value(cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_CONTENT));
	assert_null(uns_catalog_value(cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_SCALER));
	uns_catalog_free(cat);
}

static void test_a_file_without_a_dict_is_not_kept(void **state)
{
	UNS_CLEANUP(saved_fini) struct saved s = { 0 };
	const struct uns_value *why;
	struct uns_catalog *cat;

	(void)state;
	why = keep_file(&cat, &s, uns_value_new_list(&s.arena, 0));
	assert_string_equal(uns_value_str(why), "it does not hold a dict");
	uns_catalog_free(cat);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chunks_have_every_element_once),
		cmocka_unit_test(test_objects_become_one_dict),
		cmocka_unit_test(test_a_dict_that_is_open_is_ended),
		cmocka_unit_test(test_a_file_is_kept_with_its_storages),
		cmocka_unit_test(test_a_file_without_a_dict_is_not_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
