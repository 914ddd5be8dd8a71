/* ranks/dtensor_new.c: a DTensor for other ranks, in the spelling of one that was read, is read back as
 * what it was meant to be; what is not known is refused. That torch takes it is tests/e2e's matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "ranks/dtensor.h"
#include "ranks/dtensor_new.h"
#include "wire/pickle.h"
#include "wire/value_new.h"

struct file {
	uint8_t bytes[32 * 1024];
	struct uns_span span;
	struct uns_reader r;
	struct uns_arena arena;
	struct uns_torchfile torch;
};

static void fini(struct file *f)
{
	uns_arena_fini(&f->arena);
}

static void load(struct file *f, const char *name)
{
	struct uns_err err = { 0 };
	char path[512];
	FILE *in;

	snprintf(path, sizeof(path), "%s/rank_files/%s", UNSHARD_GOLDEN, name);
	in = fopen(path, "rb");
	if (!in)
		fail_msg("%s is missing", path);
	f->span = uns_span_of(f->bytes, fread(f->bytes, 1, sizeof(f->bytes), in));
	fclose(in);
	f->r = uns_reader_of_span(&f->span);
	f->arena = UNS_ARENA_INIT;
	if (uns_torchfile_open(&f->r, &f->arena, &f->torch, &err) < 0)
		fail_msg("%s", err.text);
}

/* What a rank of `world` pickles of a tensor of `rows` rows, twice in a list, and read again. */
static const struct uns_value *round_trip(struct file *f, const struct uns_dtensor_form *form, uint64_t world,
					  uint64_t rank, uint64_t rows)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const uint64_t dims[] = { rows, 3 }, none[] = { 0, 3 };
	const struct uns_pickle_tensor tensors[] = { { form->ranks, 1, &world }, { UNS_F32, 2, none } };
	struct uns_value *list = uns_value_new_list(&f->arena, 2);
	const struct uns_value *mesh, *v;
	struct uns_err err = { 0 };
	struct uns_span in;
	size_t once = 0;
	const char *p;
	int i;

	if (uns_dtensor_mesh_new(form, &f->arena, world, rank, uns_value_new_tensor(&f->arena, 0), &mesh, &err) < 0)
		fail_msg("%s", err.text);
	for (i = 0; i < 2; i++) {
		if (uns_dtensor_new(form, &f->arena, mesh, UNS_F32, dims, 2, uns_value_new_tensor(&f->arena, 1), &v,
				    &err) < 0)
			fail_msg("%s", err.text);
		assert_true(uns_value_append(list, v));
	}
	if (uns_pickle_emit(list, tensors, 2, uns_dtensor_classes, &text, &err) < 0)
		fail_msg("%s", err.text);
	for (p = text.p; (p = memmem(p, text.len - (size_t)(p - text.p), "\nDeviceMesh\n", 12)); p++)
		once++;
	assert_int_equal(once, 1);
	in = uns_span_of(uns_arena_strn(&f->arena, text.p, text.len), text.len);
	if (uns_pickle_parse(&in, &f->arena, &v, &err) < 0)
		fail_msg("%s", err.text);
	return v;
}

static const struct uns_value *a_dtensor(const struct file *f)
{
	const struct uns_value *dict = f->torch.root;
	size_t i = 0;

	while (i < dict->n && !uns_dtensor_is(dict->pair[i].value))
		i++;
	assert_true(i < dict->n);
	return dict->pair[i].value;
}

static const struct {
	const char *file; /* whose spelling */
	uint64_t world, rank, rows, lo, len;
} cases[] = {
	{ "model_rank_0.pt", 4, 0, 6, 0, 2 },
	{ "model_rank_0.pt", 4, 2, 6, 4, 2 },
	{ "model_rank_0.pt", 4, 3, 6, 6, 0 }, /* torch.chunk makes three of these */
	{ "model_rank_0.pt", 1, 0, 6, 0, 6 },
	{ "model_rank_3.pt", 3, 1, 7, 3, 3 },
	{ "torch2.1.2/model_world_size_3_rank_1.pt", 2, 1, 5, 3, 2 },
	{ "torch2.1.2/model_world_size_3_rank_1.pt", 5, 4, 4, 4, 0 },
};

static void test_other_ranks(void **state)
{
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		UNS_CLEANUP(fini) struct file f;
		struct uns_dtensor_form form;
		struct uns_sharded_tensor t;
		const struct uns_value *list;
		struct uns_err err = { 0 };

		load(&f, cases[i].file);
		if (uns_dtensor_form_of(a_dtensor(&f), &f.arena, &form, &err) < 0)
			fail_msg("%s: %s", cases[i].file, err.text);
		list = round_trip(&f, &form, cases[i].world, cases[i].rank, cases[i].rows);
		for (k = 0; k < 2; k++) {
			if (uns_dtensor_parse(&f.torch, uns_value_at(list, k), (int64_t)cases[i].rank, &f.arena, &t,
					      &err) < 0)
				fail_msg("%s: %s", cases[i].file, err.text);
			assert_int_equal(t.dtype, UNS_F32);
			assert_int_equal(t.dims[0], cases[i].rows);
			assert_int_equal(t.mesh_size, cases[i].world);
			assert_int_equal(t.shard[0].lo[0][0], cases[i].lo);
			assert_int_equal(t.shard[0].len[0][0], cases[i].len);
			assert_int_equal(t.shard[0].len[0][1], 3);
		}
	}
}

static void test_what_is_not_known(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_value *dict, *mesh, *spec;
	struct uns_dtensor_form form;
	struct uns_err err = { 0 };

	(void)state;
	load(&f, "model_rank_0.pt");
	assert_int_equal(uns_dtensor_form_of(uns_value_new_int(&f.arena, 1), &f.arena, &form, &err), -ENOTSUP);
	assert_string_equal(err.text, "it is not a DTensor of a form that unshard knows");

	err = (struct uns_err){ 0 };
	assert_int_equal(uns_dtensor_form_of(a_dtensor(&f), &f.arena, &form, &err), 0);
	mesh = (struct uns_value *)form.mesh;
	dict = uns_value_new_dict(&f.arena, 1);
	assert_true(uns_value_put(dict, uns_value_new_str(&f.arena, "_warp"), uns_value_new_int(&f.arena, 9)));
	mesh->state = dict;
	assert_int_equal(uns_dtensor_form_of(a_dtensor(&f), &f.arena, &form, &err), -ENOTSUP);
	assert_string_equal(err.text, "a DTensor whose torch.distributed.device_mesh.DeviceMesh "
				      "has a field _warp that unshard does not know: another "
				      "version of torch saved it");
	spec = (struct uns_value *)form.spec;
	spec->state = NULL;
	assert_int_equal(uns_dtensor_form_of(a_dtensor(&f), &f.arena, &form, NULL), -ENOTSUP);
}

/* Of two of the same name only the last would be looked at. */
static void test_a_field_that_is_there_twice(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_dtensor_form form;
	const struct uns_value *was;
	struct uns_value *spec, *dict;
	struct uns_err err = { 0 };
	size_t i;

	(void)state;
	load(&f, "model_rank_0.pt");
	assert_int_equal(uns_dtensor_form_of(a_dtensor(&f), &f.arena, &form, &err), 0);
	spec = (struct uns_value *)form.spec;
	was = spec->state;
	dict = uns_value_new_dict(&f.arena, was->n + 1);
	assert_true(uns_value_put(dict, uns_value_new_str(&f.arena, "tensor_meta"), uns_value_new_int(&f.arena, 9)));
	for (i = 0; i < was->n; i++)
		assert_true(uns_value_put(dict, was->pair[i].key, was->pair[i].value));
	spec->state = dict;
	assert_int_equal(uns_dtensor_form_of(a_dtensor(&f), &f.arena, &form, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "has the field tensor_meta twice"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_ranks),
		cmocka_unit_test(test_what_is_not_known),
		cmocka_unit_test(test_a_field_that_is_there_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
