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
#include "golden_sources.h"
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

/* -- changes, without a process for each -- */

static void write_file(const char *path, const void *bytes, size_t n, const struct stat *as)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
					   as ? as->st_mtim : (struct timespec){ .tv_nsec = UTIME_NOW } };
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && futimens(fd, times) == 0);
	close(fd);
}

/* With a byte more than what it holds: in its place, then as another file of the same name. What the change before this
 * left of the directory's times is seen first: a write in place changes the file alone. */
static void change_file(struct fixture *f, const char *path, const char *other, const struct stat *is)
{
	size_t n = (size_t)is->st_size;
	char *bytes = malloc(n + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	wait_recheck();
	free(shown(f->u));
	assert_true(bytes && fd >= 0 && read(fd, bytes, n) == (ssize_t)n);
	close(fd);
	bytes[n] = '\n';
	write_file(path, bytes, n + 1, NULL);
	assert_as_new(f, "written", path);
	write_file(path, bytes, n, is);
	write_file(other, bytes, n + 1, NULL);
	assert_int_equal(rename(other, path), 0);
	assert_as_new(f, "replaced", path);
	write_file(other, bytes, n, is);
	assert_int_equal(rename(other, path), 0);
	free(bytes);
}

/* Names that views borrow where they exist. */
static void add_names(struct fixture *f, const char *path)
{
	char template[PATH_MAX], vocabulary[PATH_MAX];
	struct stat st;
	bool has;

	snprintf(template, sizeof(template), "%s/chat_template.jinja", path);
	snprintf(vocabulary, sizeof(vocabulary), "%s/vocab.json", path);
	has = lstat(vocabulary, &st) == 0;
	write_file(template, "{% a %}", 7, NULL);
	if (!has)
		write_file(vocabulary, "{}", 2, NULL);
	assert_as_new(f, "names in", path);
	unlink(template);
	if (!has)
		unlink(vocabulary);
}

static void change_one(struct fixture *f, const char *path)
{
	char other[PATH_MAX], parent[PATH_MAX];
	struct stat st;

	snprintf(other, sizeof(other), "%s/other", f->dir);
	if (lstat(path, &st) < 0) {
		snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(path, '/') - path), path);
		if (stat(parent, &st) < 0 || !S_ISDIR(st.st_mode))
			return;
		write_file(path, "{\"model_type\":\"other\"}", 22, NULL);
		assert_as_new(f, "new", path);
		unlink(path);
		return;
	}
	if (S_ISREG(st.st_mode))
		change_file(f, path, other, &st);
	if (S_ISDIR(st.st_mode))
		add_names(f, path);
	assert_int_equal(rename(path, other), 0);
	assert_as_new(f, "removed", path);
	assert_int_equal(rename(other, path), 0);
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
	assert_true(n >= 2);
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

/* -- every golden checkpoint -- */

/* Which test_faults does without: they are read by the same code as others. */
static const struct golden_source more_sources[] = {
	{ "fsdp1 2.2", "cp -r $G/older/torch2.2.2_fsdp1st_w2_bf16_dcp/run/ckpt .", NULL, false },
	{ "zero of two groups", "cp -r $G/zero/other/. .", NULL, false },
	{ "adapter", "cp -r $G/check/sliced/. .", NULL, false },
	{ "torch file", "cp $G/torchfile/tensors.pt run && cp $G/run/*.json run", NULL, false },
};

static void change_source(void **state, const struct golden_source *s)
{
	char path[PATH_MAX], real[PATH_MAX];
	struct fixture *f;

	print_message("%s: ", s->name);
	assert_int_equal(setup(state), 0);
	f = *state;
	shell(f->source, s->make);
	shell(f->dir, "chmod -R u+w .");
	if (s->model) {
		snprintf(path, sizeof(path), "%s/%s", f->source, s->model);
		assert_non_null(realpath(path, real));
		snprintf(f->model, sizeof(f->model), "%s", real);
		f->models[0] = f->model;
		f->options.model = f->models;
		f->options.n_model = 1;
	}
	change_all(f);
	teardown(state);
}

static void of_each(void **state)
{
	size_t i;

	setenv("G", UNSHARD_GOLDEN, 1);
	for (i = 0; i < sizeof(golden_sources) / sizeof(*golden_sources); i++)
		change_source(state, &golden_sources[i]);
	for (i = 0; i < sizeof(more_sources) / sizeof(*more_sources); i++)
		change_source(state, &more_sources[i]);
}

/* test_inputs: what is borrowed in which way. test_inputs golden: every golden checkpoint. */
int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(of_a_trainer), TEST(of_a_trainer_with_less), TEST(whose_parts_are_links), TEST(with_a_model),
		TEST(with_a_base),  TEST(that_is_the_source),     TEST(of_deepspeed),          TEST(of_verl),
		TEST(of_megatron),  TEST(of_lightning),
	};
	const struct CMUnitTest golden[] = { cmocka_unit_test(of_each) };

	if (argc == 2 && strcmp(argv[1], "golden") == 0)
		return cmocka_run_group_tests(golden, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
