/* Whatever a session looked at may change, be replaced, go or come: a second later, whatever is looked up is what a
 * session shows that is opened only then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "fake_clock.h"
#include "shell.h"
#include "traced.h"
#include "unshard.h"

struct fixture {
	char dir[32], source[64], model[80];
	const char *models[1];
	struct unshard_options options;
	unshard *u;
};

static int setup(void **state)
{
	static struct fixture f;
	const char *tmp = "/tmp/uns_inputs_XXXXXX";

	f = (struct fixture){ .options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true } };
	strcpy(f.dir, tmp);
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.source, sizeof(f.source), "%s/src", f.dir);
	snprintf(f.model, sizeof(f.model), "%s/model", f.dir);
	shell(f.dir, "mkdir src src/run model");
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	unshard_close(f->u);
	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

/* -- what a session shows -- */

static uint64_t hash_of_file(unshard *u, const char *path)
{
	static char buf[1 << 16];
	uint64_t h = UNS_HASH_INIT, off = 0;
	unshard_file *file;
	ssize_t n;
	int code = unshard_file_open(u, path, NULL, &file, NULL, NULL);

	if (code < 0)
		return (uint64_t)code;
	while ((n = unshard_pread(file, buf, sizeof(buf), off, NULL)) > 0) {
		h = uns_hash_bytes(h, buf, (size_t)n);
		off += (uint64_t)n;
	}
	unshard_file_close(file);
	return n < 0 ? (uint64_t)n : h;
}

/* All names below, with what each is and holds. */
static void describe(unshard *u, const char *path, struct uns_text *out)
{
	const struct unshard_dirent *e;
	unshard_listing *listing;
	char child[PATH_MAX];
	int code = unshard_list(u, path, &listing, NULL);
	size_t i;

	if (code < 0) {
		uns_text_printf(out, "%s: %d\n", path, code);
		return;
	}
	for (i = 0; i < unshard_listing_count(listing); i++) {
		e = unshard_listing_at(listing, i);
		snprintf(child, sizeof(child), "%s%s%s", path, *path ? "/" : "", e->name);
		uns_text_printf(out, "%s kind %d mode %o ino %llx size %llu mtime %lld", child, e->stat.kind,
				e->stat.mode, (unsigned long long)e->stat.ino, (unsigned long long)e->stat.size_bytes,
				e->stat.kind == UNSHARD_FILE ? (long long)e->stat.mtime_ns : 0);
		if (e->stat.kind == UNSHARD_FILE)
			uns_text_printf(out, " holds %llx", (unsigned long long)hash_of_file(u, child));
		uns_text_str(out, "\n");
		if (e->stat.kind == UNSHARD_DIR)
			describe(u, child, out);
	}
	unshard_listing_free(listing);
}

static char *shown(unshard *u)
{
	struct uns_text text = UNS_TEXT_INIT;

	describe(u, "", &text);
	assert_false(text.failed);
	return uns_text_take(&text, NULL);
}

static void print_first_difference(const char *is, const char *wanted)
{
	size_t from = 0, i;

	for (i = 0; is[i] && is[i] == wanted[i]; i++)
		if (is[i] == '\n')
			from = i + 1;
	print_error("is:     %.*s\nwanted: %.*s\n", (int)strcspn(is + from, "\n"), is + from,
		    (int)strcspn(wanted + from, "\n"), wanted + from);
}

/* The session that lives shows what a new one shows. */
static void assert_as_new(struct fixture *f, const char *change, const char *path)
{
	char *is, *wanted;
	unshard *fresh;

	wait_recheck();
	is = shown(f->u);
	assert_int_equal(unshard_open(f->source, &f->options, &fresh, NULL), 0);
	wanted = shown(fresh);
	unshard_close(fresh);
	if (strcmp(is, wanted) != 0) {
		wait_recheck(); /* a read found out first */
		free(is);
		is = shown(f->u);
	}
	if (strcmp(is, wanted) != 0) {
		print_first_difference(is, wanted);
		fail_msg("%s %s", change, path);
	}
	free(is);
	free(wanted);
}

/* -- changes -- */

static void change_one(struct fixture *f, const char *path)
{
	struct stat st;

	setenv("P", path, 1);
	if (lstat(path, &st) < 0) {
		char parent[PATH_MAX];

		snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(path, '/') - path), path);
		if (stat(parent, &st) < 0 || !S_ISDIR(st.st_mode))
			return;
		shell(f->dir, "echo '{\"model_type\":\"other\"}' > \"$P\"");
		assert_as_new(f, "new", path);
		shell(f->dir, "rm \"$P\"");
		return;
	}
	if (S_ISREG(st.st_mode)) {
		shell(f->dir, "cp -p \"$P\" kept; echo >> \"$P\"");
		assert_as_new(f, "written", path);
		shell(f->dir, "cp -p kept \"$P\"");
		shell(f->dir, "cp -p kept new; echo >> new; mv new \"$P\"");
		assert_as_new(f, "replaced", path);
		shell(f->dir, "mv kept \"$P\"");
	}
	if (S_ISDIR(st.st_mode)) {
		shell(f->dir, "echo '{% a %}' > \"$P/chat_template.jinja\"; echo '{}' > \"$P/vocab.json\"");
		assert_as_new(f, "names in", path);
		shell(f->dir, "rm -f \"$P/chat_template.jinja\" \"$P/vocab.json\"");
	}
	shell(f->dir, "mv \"$P\" kept");
	assert_as_new(f, "removed", path);
	shell(f->dir, "mv kept \"$P\"");
}

static void change_all(struct fixture *f)
{
	size_t i, n;

	assert_int_equal(unshard_open(f->source, &f->options, &f->u, NULL), 0);
	n_traced = 0;
	traced_below = f->dir;
	free(shown(f->u));
	traced_below = NULL;
	n = n_traced;
	for (i = 0; i < n; i++)
		if (strncmp(f->source, traced[i], strlen(traced[i])) != 0 && strcmp(traced[i], f->model) != 0)
			change_one(f, traced[i]);
	assert_as_new(f, "nothing", "");
	print_message("%zu paths\n", n);
	for (i = 0; i < n; i++)
		free(traced[i]);
	assert_true(n >= 10);
}

/* -- checkpoints -- */

static void of_a_trainer(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/run/. src/run && chmod -R u+w src");
	change_all(f);
}

/* It has no trainer_state.json of its own, and another checkpoint of the run has. */
static void of_a_trainer_with_less(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/run/. src/run && chmod -R u+w src && cd src/run && "
		      "mkdir checkpoint-4 && mv checkpoint-2/trainer_state.json checkpoint-4 && "
		      "echo '{}' > preprocessor_config.json && echo '{}' > vocab.json");
	change_all(f);
}

static void whose_parts_are_links(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/run/. src/run && chmod -R u+w src && cd src/run && mkdir parts && "
		      "mv checkpoint-2/optimizer_0 parts/o && mv checkpoint-2/pytorch_model_fsdp_0 parts/m && "
		      "ln -s ../parts/o checkpoint-2/optimizer_0 && "
		      "ln -s ../parts/m checkpoint-2/pytorch_model_fsdp_0");
	change_all(f);
}

/* What is borrowed from a directory that the user names. */
static void with_a_model(void **state)
{
	struct fixture *f = *state;

	f->models[0] = f->model;
	f->options.model = f->models;
	f->options.n_model = 1;
	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/run/checkpoint-2 src/run && chmod -R u+w src && "
		      "cp " UNSHARD_GOLDEN "/run/*.json model && chmod -R u+w model && cd model && "
		      "echo '{}' > vocab.json && echo '{}' > preprocessor_config.json");
	change_all(f);
}

/* The tensors' names come from the model's index, where its family publishes others than it has in memory. */
static void with_a_base(void **state)
{
	struct fixture *f = *state;

	f->models[0] = f->model;
	f->options.model = f->models;
	f->options.n_model = 1;
	f->options.view = "weights";
	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/run/checkpoint-2 src/run && chmod -R u+w src && "
		      "sed 's/\"llama\"/\"qwen2_vl\"/' " UNSHARD_GOLDEN "/run/config.json > model/config.json && "
		      "echo '{\"weight_map\":{\"model.embed_tokens.weight\":\"a.safetensors\"}}' "
		      "> model/model.safetensors.index.json");
	change_all(f);
}

/* SOURCE is the checkpoint itself: what it borrows lies above. */
static void that_is_the_source(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/run/. src && chmod -R u+w src");
	strcat(f->source, "/checkpoint-2");
	change_all(f);
}

static void of_deepspeed(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/zero/z2_w3/. src/run && chmod -R u+w src");
	change_all(f);
}

static void of_verl(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "mkdir -p src/run/global_step_2/actor/huggingface && "
		      "cp " UNSHARD_GOLDEN "/ranks/fsdp2/* src/run/global_step_2/actor && "
		      "cp " UNSHARD_GOLDEN "/run/*.json src/run/global_step_2/actor/huggingface && "
		      "chmod -R u+w src && echo 2 > src/run/latest_checkpointed_iteration.txt");
	change_all(f);
}

static void of_megatron(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/dcp/megatron/iter_0000010 src/run && chmod -R u+w src && "
		      "mkdir src/run/huggingface && cp " UNSHARD_GOLDEN "/run/*.json src/run/huggingface && "
		      "chmod -R u+w src");
	change_all(f);
}

static void of_lightning(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/dcp/torch2.2.2_lightning/ckpt 'src/run/epoch=0-step=2.ckpt' && "
		      "chmod -R u+w src");
	change_all(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(of_a_trainer), TEST(of_a_trainer_with_less), TEST(whose_parts_are_links), TEST(with_a_model),
		TEST(with_a_base),  TEST(that_is_the_source),     TEST(of_deepspeed),          TEST(of_verl),
		TEST(of_megatron),  TEST(of_lightning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
