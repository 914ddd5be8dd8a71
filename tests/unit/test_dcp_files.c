/* A torch distributed checkpoint made of a DeepSpeed one, read again: every state of the optimizer is
 * what the live engine held, and the model its fp32 copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "views/view.h"
#include "zero_golden.h"

extern const struct uns_view uns_view_dcp;
extern const struct uns_format uns_format_zero, uns_format_dcp;

enum { MAX_FILE_BYTES = 1 << 20 };

/* The fp32 copies are the model's weights, also under a tied weight's other name; what is frozen has
 * none; which tensors are buffers is not recorded. */
static const char fp32_model[] =
	"awk '{ line[NR] = $0; name[NR] = $2; role[NR] = $1 }"
	"     $1 == \"master\" { of[$2] = $3 \" \" $4 \" \" $5 \" \" $6 }"
	"     END { of[\"head.weight\"] = of[\"emb.weight\"]; sub(/ 0 /, \" -1 \", of[\"head.weight\"]);"
	"           for (i = 1; i <= NR; i++) {"
	"             if (role[i] == \"weight\" && name[i] in of)"
	"               line[i] = \"weight \" name[i] \" \" of[name[i]];"
	"             sub(/^buffer/, \"weight\", line[i]);"
	"             if (role[i] != \"master\") print line[i] } }' expected.txt > changed &&"
	"mv changed expected.txt";

static void write_file(struct fixture *f, const struct uns_vfile *file)
{
	static uint8_t bytes[MAX_FILE_BYTES];
	struct uns_err err = { 0 };
	char path[256];
	FILE *out;

	if (file->layout.size_bytes > sizeof(bytes) ||
	    uns_read(f->backing, &file->layout, bytes, file->layout.size_bytes, 0, &err) !=
		    (ssize_t)file->layout.size_bytes)
		fail_msg("%s: %s", file->path, err.text);
	snprintf(path, sizeof(path), "%s/made/%s", f->dir, file->path);
	out = fopen(path, "wb");
	assert_non_null(out);
	assert_int_equal(fwrite(bytes, 1, file->layout.size_bytes, out), file->layout.size_bytes);
	assert_int_equal(fclose(out), 0);
}

/* f, opened with format zero, becomes what the view dcp makes of it. */
static void make_dcp(struct fixture *f)
{
	const struct uns_view_input in = { .catalog = f->cat };
	struct uns_vtree tree = { 0 };
	struct uns_err err = { 0 };
	size_t i;

	shell(f->dir, "mkdir made");
	if (uns_view_dcp.supports(f->cat, 0, &err) < 0 || uns_view_dcp.tree(&in, 0, &tree, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(tree.n, 2);
	for (i = 0; i < tree.n; i++)
		write_file(f, &tree.v[i]);
	uns_vtree_fini(&tree);
	uns_backing_free(f->backing);
	uns_engine_free(f->engine);
	uns_catalog_free(f->cat);
}

static void becomes_dcp(void **state)
{
	static const char *const golden[] = { "z2_w3", "z3_w2", "z1_bf16_optimizer_w2" };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(golden) / sizeof(*golden); i++) {
		struct fixture f;

		print_message("%s\n", golden[i]);
		fixture_init(&f, golden[i]);
		fixture_open(&f, &uns_format_zero, "global_step2");
		make_dcp(&f);
		fixture_open(&f, &uns_format_dcp, "made");
		assert_string_equal(serious(&f), "");
		assert_int_equal(f.cat->n_groups, 2);
		shell(f.dir, fp32_model);
		compare_expected(&f, MODEL_ROLES | STATE_ROLES);
		fixture_fini(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(becomes_dcp) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
