/* A Lightning directory (golden/dcp/torch2.2.2_lightning) in a session's tree: one file, under
 * which names, and what is in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "formats/format.h"
#include "unshard.h"
#include "wire/torchfile.h"

#define GOLDEN UNSHARD_GOLDEN "/dcp/torch2.2.2_lightning/ckpt"

extern const struct uns_format uns_format_lightning_fsdp;

struct fixture {
	char dir[40];
	unshard *u;
};

/* Commands run beside a copy of the golden directory, "ckpt". */
static void fixture_init(struct fixture *f, const char *command, const char *strip)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true, .strip = strip };
	struct unshard_error err = { 0 };
	char text[2048];

	*f = (struct fixture){ .dir = "/tmp/uns_lightning_XXXXXX" };
	assert_non_null(mkdtemp(f->dir));
	snprintf(text, sizeof(text), "cp -r " GOLDEN " %s/ckpt && cd %s && chmod -R u+w . && %s", f->dir, f->dir,
		 command);
	assert_int_equal(system(text), 0);
	if (unshard_open(f->dir, &options, &f->u, &err) < 0)
		fail_msg("%s", err.text);
}

static void fixture_fini(struct fixture *f)
{
	char text[64];

	unshard_close(f->u);
	snprintf(text, sizeof(text), "rm -r %s", f->dir);
	assert_int_equal(system(text), 0);
}

/* Names separated by blanks, "/" behind a directory's. */
static void check_listing(unshard *u, const char *path, const char *want)
{
	unshard_listing *list;
	struct uns_text text = UNS_TEXT_INIT;
	size_t i;

	assert_int_equal(unshard_list(u, path, &list, NULL), 0);
	for (i = 0; i < unshard_listing_count(list); i++)
		uns_text_printf(&text, "%s%s%s", i ? " " : "", unshard_listing_at(list, i)->name,
				unshard_listing_at(list, i)->stat.kind == UNSHARD_DIR ? "/" : "");
	assert_string_equal(text.p ? text.p : "", want);
	uns_text_fini(&text);
	unshard_listing_free(list);
}

static const struct {
	const char *name, *make, *full, *weights;
} name_cases[] = {
	{ "a name without .ckpt", "true", "ckpt.ckpt", "ckpt/ ckpt.ckpt" },
	{ "a name with it", "mv ckpt step=9.ckpt", "step=9.ckpt", "step=9/ step=9.ckpt" },
	{ "a directory of the source's own", "mv ckpt a.ckpt; mkdir a", "a/ a.ckpt", "a/ a.ckpt a.unshard/" },
	{ "a file of the source's own", "touch ckpt.ckpt", "ckpt.ckpt ckpt.ckpt.unshard",
	  "ckpt/ ckpt.ckpt ckpt.ckpt.unshard" },
	{ "two that want one name", "mv ckpt a; cp -r a a.ckpt", "a.ckpt a.ckpt.unshard",
	  "a/ a.ckpt a.ckpt.unshard a.unshard/" },
	{ "only the suffix", "mv ckpt .ckpt", ".ckpt.ckpt", ".ckpt/ .ckpt.ckpt" },
	{ "damaged shards", "truncate -s 100 ckpt/__1_0.distcp", "ckpt.ckpt/", "ckpt/ ckpt.ckpt/" },
	{ "a damaged meta.pt", "truncate -s 100 ckpt/meta.pt", "ckpt.ckpt/", "ckpt/ ckpt.ckpt/" },
	{ "no meta.pt: a plain DCP directory", "rm ckpt/meta.pt", "ckpt/", "ckpt/" },
};

static void names(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(name_cases) / sizeof(*name_cases); i++) {
		struct fixture f;

		print_message("%s\n", name_cases[i].name);
		fixture_init(&f, name_cases[i].make, NULL);
		check_listing(f.u, "full", name_cases[i].full);
		check_listing(f.u, "weights", name_cases[i].weights);
		fixture_fini(&f);
	}
}

static void unlisted_names(void **state)
{
	struct unshard_stat file = { UNSHARD_STAT_INIT }, dir = { UNSHARD_STAT_INIT };
	struct fixture f;

	(void)state;
	fixture_init(&f, "mv ckpt a.ckpt", NULL);
	assert_int_equal(unshard_stat(f.u, "full/a", &dir, NULL), 0);
	assert_int_equal(dir.kind, UNSHARD_DIR);
	check_listing(f.u, "full/a", "");
	assert_int_equal(unshard_stat(f.u, "full/a/.unshard/provenance.json", &dir, NULL), 0);
	assert_int_equal(unshard_stat(f.u, "weights/a.ckpt", &file, NULL), 0);
	assert_int_equal(unshard_stat(f.u, "weights/a", &dir, NULL), 0);
	assert_true(file.ino != dir.ino);
	assert_int_equal(unshard_stat(f.u, "full/a.ckpt/meta.pt", &file, NULL), -ENOTDIR);
	assert_int_equal(unshard_stat(f.u, "full/a.ckpt.ckpt", &file, NULL), -ENOENT);
	assert_int_equal(unshard_stat(f.u, "full/a.unshard", &file, NULL), -ENOENT);
	assert_int_equal(unshard_stat(f.u, "dcp/a", &file, NULL), -ENOENT);
	fixture_fini(&f);
}

/* -- content -- */

struct opened {
	struct uns_arena arena;
	struct uns_span bytes;
	struct uns_reader r;
	struct uns_torchfile torch;
};

static void open_file(struct opened *o, unshard *u, const char *path)
{
	struct unshard_error e = { 0 };
	struct uns_err err = { 0 };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_file *file;
	char *bytes;

	if (unshard_file_open(u, path, NULL, &file, &st, &e) < 0)
		fail_msg("%s", e.text);
	*o = (struct opened){ 0 };
	bytes = UNS_NEW_N(&o->arena, char, st.size_bytes);
	if (unshard_pread(file, bytes, st.size_bytes, 0, &e) != (ssize_t)st.size_bytes)
		fail_msg("%s", e.text);
	unshard_file_close(file);
	o->bytes = uns_span_of(bytes, st.size_bytes);
	o->r = uns_reader_of_span(&o->bytes);
	if (uns_torchfile_open(&o->r, &o->arena, &o->torch, &err) < 0)
		fail_msg("%s", err.text);
}

static const struct uns_value *at(const struct uns_value *v, const char *key)
{
	const struct uns_value *found = uns_value_get(v, key);

	if (!found)
		fail_msg("no %s", key);
	return found;
}

static void holds_meta_and_the_rest(void **state)
{
	const struct uns_value *root, *optimizer, *tensor;
	struct uns_torch_tensor t;
	struct uns_err err = { 0 };
	struct opened o;
	struct fixture f;
	int64_t step;

	(void)state;
	fixture_init(&f, "true", "net.");
	open_file(&o, f.u, "full/ckpt.ckpt");
	root = o.torch.root;
	assert_true(uns_value_int(at(root, "global_step"), &step));
	at(root, "lr_schedulers");
	at(root, "hyper_parameters");
	optimizer = uns_value_at(at(root, "optimizer_states"), 0);
	assert_non_null(optimizer);
	tensor = at(at(at(optimizer, "state"), "net.emb.weight"), "exp_avg");
	assert_int_equal(uns_torch_tensor(&o.torch, tensor, &t, &err), 0);
	assert_int_equal(t.dims[0], 13);
	tensor = at(at(root, "state_dict"), "net.emb.weight");
	assert_int_equal(uns_torch_tensor(&o.torch, tensor, &t, &err), 0);
	assert_int_equal(t.dtype, UNS_F32);
	uns_arena_fini(&o.arena);

	open_file(&o, f.u, "weights-bf16/ckpt.ckpt");
	assert_null(uns_value_get(o.torch.root, "optimizer_states"));
	tensor = at(at(o.torch.root, "state_dict"), "net.emb.weight");
	assert_int_equal(uns_torch_tensor(&o.torch, tensor, &t, &err), 0);
	assert_int_equal(t.dtype, UNS_BF16);
	uns_arena_fini(&o.arena);
	fixture_fini(&f);
}

/* As DeepSpeed's engine loads it: Lightning's tag, meta.pt with the engine's keys behind it. */
static void universal_holds_meta_and_the_engines_keys(void **state)
{
	const struct uns_value *param;
	struct uns_torch_tensor t;
	struct uns_err err = { 0 };
	struct opened o;
	struct fixture f;
	int64_t step;

	(void)state;
	fixture_init(&f, "mv ckpt a.ckpt", "net.");
	check_listing(f.u, "universal/a.ckpt", "checkpoint/ latest_universal");
	check_listing(f.u, "universal/a.ckpt/checkpoint/zero/emb.weight", "exp_avg.pt exp_avg_sq.pt fp32.pt step.pt");
	open_file(&o, f.u, "universal/a.ckpt/checkpoint/mp_rank_00_model_states.pt");
	at(o.torch.root, "loops");
	at(o.torch.root, "callbacks");
	at(o.torch.root, "lr_schedulers");
	assert_true(uns_value_int(at(o.torch.root, "global_step"), &step));
	assert_int_equal(step, 2);
	assert_true(uns_value_int(at(o.torch.root, "global_steps"), &step));
	assert_int_equal(step, 2);
	at(o.torch.root, "dp_world_size");
	uns_arena_fini(&o.arena);
	open_file(&o, f.u, "universal/a.ckpt/checkpoint/zero/emb.weight/fp32.pt");
	param = at(o.torch.root, "param");
	assert_int_equal(uns_torch_tensor(&o.torch, param, &t, &err), 0);
	assert_int_equal(t.dims[0], 13);
	uns_arena_fini(&o.arena);
	fixture_fini(&f);
}

/* -- probe -- */

static const struct {
	const char *make;
	int probe;
} probe_cases[] = {
	{ "touch .metadata __0_0.distcp meta.pt", 80 }, { "touch __0_0.distcp meta.pt", 80 },    { "touch meta.pt", 0 },
	{ "touch .metadata __0_0.distcp", 0 },          { "mkdir meta.pt; touch .metadata", 0 },
};

static void probes(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(probe_cases) / sizeof(*probe_cases); i++) {
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_listing list;
		struct uns_directory dir = { .path = "d", .list = &list };
		struct uns_root *root;
		struct fixture f;
		char command[128];

		print_message("%s\n", probe_cases[i].make);
		snprintf(command, sizeof(command), "mkdir d; cd d; %s", probe_cases[i].make);
		fixture_init(&f, command, NULL);
		assert_int_equal(uns_root_open(f.dir, NULL, &root, NULL), 0);
		assert_int_equal(uns_root_list(root, "d", &arena, &list, NULL), 0);
		dir.root = root;
		assert_int_equal(uns_format_lightning_fsdp.probe(&dir), probe_cases[i].probe);
		uns_root_close(root);
		uns_arena_fini(&arena);
		fixture_fini(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probes),
		cmocka_unit_test(names),
		cmocka_unit_test(unlisted_names),
		cmocka_unit_test(holds_meta_and_the_rest),
		cmocka_unit_test(universal_holds_meta_and_the_engines_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
