/* Seals: their text, and what they find of checkpoints that were swapped, mixed, cut, rotten or restored since. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "seal/seal.h"
#include "shell.h"
#include "unshard.h"

/* -- the text -- */

static struct uns_seal_piece pieces[] = {
	{ .tensor = "a", .elements = "0:2,4:3", .rank = 0, .offset_bytes = 0, .length_bytes = 24, .crc = 0xdeadbeef },
	{ .tensor = "b\\c\nd\re", .elements = "17+9", .rank = -1, .offset_bytes = 24, .length_bytes = 36, .crc = 7 },
	{ .tensor = "step", .elements = ".", .rank = 3, .offset_bytes = 24, .length_bytes = 0 },
};
static struct uns_seal_file files[] = {
	{ .name = "#file",
	  .size_bytes = 60,
	  .mtime_ns = -5,
	  .scope = UNS_SCOPE_WEIGHTS,
	  .piece = pieces,
	  .n_pieces = 3 },
	{ .name = "back\\slash", .scope = UNS_SCOPE_ALL },
	{ .name = "sub/two\nlines \xff",
	  .size_bytes = INT64_MAX,
	  .mtime_ns = INT64_MAX,
	  .sample = UINT64_MAX,
	  .scope = UNS_SCOPE_OPTIMIZER,
	  .sha256 = { 0xff, 1, 2 } },
};
static const struct uns_seal example = { "check\npoint", 1764000000, files, 3 };

static char *emitted(const struct uns_seal *seal, size_t *len)
{
	struct uns_text t = UNS_TEXT_INIT;

	uns_seal_emit(seal, &t);
	assert_false(t.failed);
	return uns_text_take(&t, len);
}

static int parse(const char *text, size_t len, struct uns_arena *arena, struct uns_seal *out, struct uns_err *err)
{
	char *own = malloc(len ? len : 1); /* its end is where the sanitizer sees a read behind it */
	int code;

	assert_non_null(own);
	memcpy(own, text, len);
	*err = (struct uns_err){ 0 };
	code = uns_seal_parse(uns_span_of(own, len), arena, out, err);
	free(own);
	return code;
}

static void what_is_emitted_is_parsed(void **state)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_seal seal;
	struct uns_err err;
	size_t len, len_again;
	char *text = emitted(&example, &len), *again;

	(void)state;
	assert_int_equal(parse(text, len, &arena, &seal, &err), 0);
	assert_string_equal(seal.checkpoint, "check\npoint");
	assert_int_equal(seal.n_files, 3);
	assert_string_equal(seal.file[0].piece[1].tensor, "b\\c\nd\re");
	assert_string_equal(seal.file[2].name, "sub/two\nlines \xff");
	assert_int_equal(seal.file[0].mtime_ns, -5);
	assert_int_equal(seal.file[0].piece[1].rank, -1);
	again = emitted(&seal, &len_again);
	assert_int_equal(len, len_again);
	assert_memory_equal(text, again, len);
	assert_ptr_equal(uns_seal_find(&seal, "back\\slash"), &seal.file[1]);
	assert_null(uns_seal_find(&seal, "back"));
	free(again);
	free(text);
	uns_arena_fini(&arena);
}

static void any_changed_byte_and_any_cut_is_noticed(void **state)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_seal seal;
	struct uns_err err;
	size_t len, i;
	char *text = emitted(&example, &len);

	(void)state;
	for (i = 0; i < len; i++) {
		text[i] ^= 1;
		assert_true(parse(text, len, &arena, &seal, &err) < 0);
		text[i] ^= 1;
		assert_int_equal(parse(text, i, &arena, &seal, &err), -EBADMSG);
	}
	assert_int_equal(parse("", 0, &arena, &seal, &err), -EBADMSG);
	free(text);
	uns_arena_fini(&arena);
}

/* With its last line made anew: what a program wrote that does not know the form. */
static char *resealed(const char *body, size_t *len)
{
	struct uns_text t = UNS_TEXT_INIT;
	uint8_t hash[UNS_SHA256_BYTES];
	struct uns_sha256 h;
	size_t i;

	uns_sha256_init(&h);
	uns_sha256_add(&h, body, strlen(body));
	uns_sha256_end(&h, hash);
	uns_text_printf(&t, "%s# end ", body);
	for (i = 0; i < sizeof(hash); i++)
		uns_text_printf(&t, "%02x", hash[i]);
	uns_text_str(&t, "\n");
	return uns_text_take(&t, len);
}

#define HASH  "0000000000000000000000000000000000000000000000000000000000000000"
#define HEAD  "# unshard-seal 1\n# checkpoint c\n# made 1\n"
#define A     HASH "  a\n#file 8 1 0000000000000000 all\n"
#define PIECE "#piece 0 0 8 00000000 . t\n"

static void what_is_no_seal_is_refused(void **state)
{
	static const struct {
		const char *body;
		int code;
	} cases[] = {
		{ HEAD, 0 },
		{ HEAD A, 0 },
		{ HEAD A PIECE, 0 },
		{ "# unshard-seal 2\n", -ENOTSUP },
		{ "# unshard-seal 02\n", -EBADMSG },
		{ "# unshard-seal 1 \n", -EBADMSG },
		{ "# unshard-seal 1\n", -EBADMSG },
		{ "# unshard-seal 1\n# checkpoint \n# made 1\n", -EBADMSG },
		{ "# unshard-seal 1\n# checkpoint c\n# made -0\n", -EBADMSG },
		{ HEAD PIECE, -EBADMSG },
		{ HEAD A A, -EBADMSG },
		{ HEAD "x\n", -EBADMSG },
		{ HEAD "\n", -EBADMSG },
		{ HEAD HASH "  a\n", -EBADMSG },
		{ HEAD HASH "  \n#file 8 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD HASH "  /a\n#file 8 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD HASH "  a/../b\n#file 8 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD HASH "  a//b\n#file 8 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD HASH "  a/\n#file 8 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD HASH "  .\n#file 8 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD HASH "  a\\\\\n#file 8 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD "\\" HASH "  a\n#file 8 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD "\\" HASH "  a\\x\n#file 8 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD "\\" HASH "  a\\n\n#file 8 1 0000000000000000 all\n", 0 },
		{ HEAD HASH "  a\n#file 08 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD HASH "  a\n#file 9223372036854775808 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD HASH "  a\n#file 99999999999999999999 1 0000000000000000 all\n", -EBADMSG },
		{ HEAD HASH "  a\n#file 8 1 000000000000000G all\n", -EBADMSG },
		{ HEAD HASH "  a\n#file 8 1 0000000000000000 none\n", -EBADMSG },
		{ HEAD HASH "  a\n#file 8 1 0000000000000000 all \n", -EBADMSG },
		{ HEAD A "#piece -1 0 8 00000000 . t\n", -EBADMSG },
		{ HEAD A "#piece 0 1 8 00000000 . t\n", -EBADMSG },
		{ HEAD A "#piece 0 18446744073709551615 8 00000000 . t\n", -EBADMSG },
		{ HEAD A "#piece 0 1 1 00000000 . t\n#piece 0 0 1 00000000 . t\n", -EBADMSG },
		{ HEAD A "#piece 0 0 8 00000000 x t\n", -EBADMSG },
		{ HEAD A "#piece 0 0 8 00000000 . \n", -EBADMSG },
	};
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_seal seal;
	struct uns_err err;
	size_t i, len;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *text = resealed(cases[i].body, &len);
		int code = parse(text, len, &arena, &seal, &err);

		if (code != cases[i].code)
			fail_msg("case %zu: %d (%s), not %d:\n%s", i, code, err.text, cases[i].code, text);
		free(text);
	}
	uns_arena_fini(&arena);
}

/* A small file with many pieces that all cover it would only cost time. */
static void pieces_that_overlap_without_end_are_refused(void **state)
{
	struct uns_text t = UNS_TEXT_INIT;
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_seal seal;
	struct uns_err err;
	size_t i, len;
	char *text;

	(void)state;
	uns_text_str(&t, HEAD A);
	for (i = 0; i < 100; i++)
		uns_text_str(&t, PIECE);
	text = resealed(t.p, &len);
	assert_int_equal(parse(text, len, &arena, &seal, &err), -EBADMSG);
	free(text);
	uns_text_fini(&t);
	uns_arena_fini(&arena);
}

/* -- checkpoints and their seals -- */

struct fixture {
	char dir[32], source[64], seals[64], store[64];
	struct unshard_options options;
	struct uns_text found; /* "id file rank tensor", a line each */
	struct unshard_check_counts counts;
	struct unshard_seal_counts sealed;
	char text[512];
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/uns_seal_XXXXXX", .options = { UNSHARD_OPTIONS_INIT, .no_settling = true } };
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.source, sizeof(f.source), "%s/src", f.dir);
	snprintf(f.seals, sizeof(f.seals), "%s/seals", f.dir);
	snprintf(f.store, sizeof(f.store), "%s/state/store.db", f.dir);
	f.options.store = f.store;
	shell(f.dir, "mkdir src state && cp -r " UNSHARD_GOLDEN "/run src/run && chmod -R u+w src");
	/* Saved at different times, long ago: files of one time would be told apart by their samples alone. */
	shell(f.source,
	      "i=1; find run -type f | sort | while read f; do touch -d @$((1700000000 + i)) $f; i=$((i+1)); done");
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	uns_text_fini(&f->found);
	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

static unshard *opened(struct fixture *f)
{
	struct unshard_error err = { 0 };
	unshard *u = NULL;

	if (unshard_open(f->source, &f->options, &u, &err) < 0)
		fail_msg("%s", err.text);
	return u;
}

static int on_seal(void *ctx, const struct unshard_seal *seal)
{
	struct fixture *f = ctx;

	snprintf(f->text, sizeof(f->text), "%s", seal->text ? seal->text : "");
	return 0;
}

static void seal_with(struct fixture *f, unsigned flags)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = f, .sealed = on_seal };
	struct unshard_error err = { 0 };
	unshard *u = opened(f);

	f->sealed = (struct unshard_seal_counts){ UNSHARD_SEAL_COUNTS_INIT };
	if (unshard_seal(u, "", flags, &calls, &f->sealed, &err) < 0)
		fail_msg("%s", err.text);
	unshard_close(u);
}

static void seal_it(struct fixture *f)
{
	seal_with(f, 0);
	assert_int_equal(f->sealed.sealed, 1);
}

static int on_finding(void *ctx, const struct unshard_finding *found)
{
	struct fixture *f = ctx;
	const char *file = found->file ? strstr(found->file, "checkpoint-2/") : NULL;

	uns_text_printf(&f->found, "%s %s %d %s\n", found->id, file ? file + 13 : "-", (int)found->rank,
			found->tensor ? found->tensor : "-");
	return 0;
}

/* What check says, as lines; "" = nothing. */
static const char *checked(struct fixture *f, unsigned flags)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = f, .finding = on_finding };
	struct unshard_error err = { 0 };
	unshard *u = opened(f);

	uns_text_fini(&f->found);
	f->found = UNS_TEXT_INIT;
	uns_text_str(&f->found, "");
	uns_text_add(&f->found, "", 0);
	f->counts = (struct unshard_check_counts){ UNSHARD_CHECK_COUNTS_INIT };
	if (unshard_check(u, "", flags, &calls, &f->counts, &err) < 0)
		fail_msg("%s", err.text);
	unshard_close(u);
	return f->found.len ? f->found.p : "";
}

static int stat_of(struct fixture *f, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard *u = opened(f);
	int code = unshard_stat(u, path, &st, NULL);

	unshard_close(u);
	return code;
}

#define MODEL "weights/run/checkpoint-2/model.safetensors"

static void a_sound_checkpoint_stays_sound(void **state)
{
	struct fixture *f = *state;

	seal_it(f);
	assert_true(f->sealed.read_bytes > 200000);
	assert_string_equal(checked(f, 0), "");
	assert_string_equal(checked(f, UNSHARD_DEEP), "");
	seal_with(f, 0);
	assert_int_equal(f->sealed.sealed_before, 1);
	assert_int_equal(f->sealed.read_bytes, 0);
	assert_int_equal(stat_of(f, MODEL), 0);
}

static void exchanged_files_are_found_without_reading_all(void **state)
{
	static const char expected[] =
		"sealed_files_exchanged optimizer_0/__0_0.distcp 0 optimizer.state.model.embed_tokens.weight.step\n"
		"sealed_files_exchanged optimizer_0/__1_0.distcp 1 "
		"optimizer.state.model.embed_tokens.weight.exp_avg\n";
	struct fixture *f = *state;

	seal_it(f);
	shell(f->source, "cd run/checkpoint-2/optimizer_0 && mv __0_0.distcp x && mv __1_0.distcp __0_0.distcp && "
			 "mv x __1_0.distcp");
	assert_string_equal(checked(f, 0), expected);
	assert_int_equal(f->counts.problems, 2);
	assert_string_equal(checked(f, UNSHARD_DEEP), expected);
	/* The optimizer is another's; the weights are not. */
	assert_int_equal(stat_of(f, MODEL), 0);
	assert_int_equal(stat_of(f, "full/run/checkpoint-2/optimizer.pt"), -ENOENT);
	assert_int_equal(stat_of(f, "full/run/checkpoint-2/UNSHARD_PROBLEM.txt"), 0);
}

/* Each name has the size and the time that it had. */
static void exchanged_files_of_one_size_and_time_are_found(void **state)
{
	struct fixture *f = *state;

	shell(f->source, "cd run/checkpoint-2 && touch -d @1700000000 rng_state_*.pth");
	seal_it(f);
	shell(f->source, "cd run/checkpoint-2 && mv rng_state_0.pth x && mv rng_state_1.pth rng_state_0.pth && "
			 "mv x rng_state_1.pth && touch -d @1700000000 rng_state_*.pth");
	assert_string_equal(checked(f, 0), "sealed_files_exchanged rng_state_0.pth -1 -\n"
					   "sealed_files_exchanged rng_state_1.pth -1 -\n");
}

static void a_rotten_bit_is_found_deep_with_its_tensor(void **state)
{
	struct fixture *f = *state;

	seal_it(f);
	/* One bit of a tensor's data, in place, and the time as it was. */
	shell(f->source, "cd run/checkpoint-2/pytorch_model_fsdp_0 && touch -r __1_0.distcp t && "
			 "printf '\\001' | dd of=__1_0.distcp bs=1 seek=900 conv=notrunc status=none && "
			 "touch -r t __1_0.distcp && rm t");
	assert_string_equal(checked(f, 0), "");
	assert_string_equal(checked(f, UNSHARD_DEEP),
			    "sealed_file_differs pytorch_model_fsdp_0/__1_0.distcp 1 model.model.embed_tokens.weight\n"
			    "record_crc_differs pytorch_model_fsdp_0/__1_0.distcp 1 model.model.embed_tokens.weight\n");
}

static void a_missing_and_a_cut_file_are_found(void **state)
{
	struct fixture *f = *state;

	seal_it(f);
	shell(f->source, "cd run/checkpoint-2 && rm rng_state_1.pth && truncate -s 100 scheduler.pt");
	checked(f, 0);
	assert_non_null(strstr(f->found.p, "sealed_file_missing rng_state_1.pth -1 -\n"));
	assert_non_null(strstr(f->found.p, "sealed_file_resized scheduler.pt -1 -\n"));
	assert_int_equal(stat_of(f, MODEL), -ENOENT); /* files that no tensor is in count for every view */
}

/* Of a checkpoint that cannot be opened, too. */
static void what_is_missing_is_found_without_metadata(void **state)
{
	struct fixture *f = *state;

	seal_it(f);
	shell(f->source, "rm run/checkpoint-2/pytorch_model_fsdp_0/.metadata");
	checked(f, 0);
	assert_non_null(strstr(f->found.p, "sealed_file_missing pytorch_model_fsdp_0/.metadata -1 -\n"));
	checked(f, UNSHARD_DEEP);
	assert_non_null(strstr(f->found.p, "sealed_file_missing pytorch_model_fsdp_0/.metadata -1 -\n"));
}

static void a_restored_backup_is_as_sealed(void **state)
{
	struct fixture *f = *state;

	seal_it(f);
	shell(f->source, "cp -r run copy && rm -r run && mv copy run");
	assert_string_equal(checked(f, 0), "sealed_at_other_times - -1 -\n");
	assert_int_equal(f->counts.problems, 0);
	assert_string_equal(checked(f, UNSHARD_DEEP), "");
	assert_int_equal(stat_of(f, MODEL), 0);
}

static void a_mixed_save_is_found(void **state)
{
	struct fixture *f = *state;

	seal_it(f);
	shell(f->source, "cd run/checkpoint-2/optimizer_0 && head -c 20000 __1_0.distcp >x && "
			 "tail -c +20001 __0_0.distcp | head -c $(($(stat -c %s __1_0.distcp) - 20000)) >>x && "
			 "mv x __1_0.distcp");
	checked(f, 0);
	assert_non_null(strstr(f->found.p, "optimizer_0/__1_0.distcp 1 optimizer.state."));
	assert_int_equal(strncmp(f->found.p, "sealed_file", 11), 0);
}

static void another_save_in_its_place_is_said_and_shown(void **state)
{
	struct fixture *f = *state;

	seal_it(f);
	/* Other bytes in every file of shards, in the padding of its first record; all of them newer than the seal. */
	shell(f->source, "find run -name '*.distcp' | while read f; do printf 'xyz' | dd of=$f bs=1 seek=52 "
			 "conv=notrunc status=none; done; find run -type f | xargs touch -d '+1 hour'");
	checked(f, 0);
	assert_string_equal(f->found.p, "saved_after_seal - -1 -\n");
	assert_int_equal(f->counts.problems, 1);
	assert_int_equal(stat_of(f, MODEL), 0);
	seal_with(f, 0);
	assert_int_equal(f->sealed.differs, 1);
	/* What seals in the background takes it for what it is. */
	seal_with(f, UNSHARD_SEAL_GENTLY);
	assert_int_equal(f->sealed.sealed, 1);
	seal_with(f, 0);
	assert_int_equal(f->sealed.sealed_before, 1);
}

static void only_again_replaces_a_seal(void **state)
{
	struct fixture *f = *state;

	seal_it(f);
	shell(f->source, "cd run/checkpoint-2 && echo >>scheduler.pt");
	seal_with(f, 0);
	assert_int_equal(f->sealed.differs, 1);
	assert_non_null(strstr(f->text, "scheduler.pt has "));
	seal_with(f, UNSHARD_SEAL_GENTLY);
	assert_int_equal(f->sealed.differs, 1);
	seal_with(f, UNSHARD_SEAL_AGAIN);
	assert_int_equal(f->sealed.sealed, 1);
	assert_string_equal(checked(f, 0), "");
}

static void files_that_came_later_are_noted(void **state)
{
	struct fixture *f = *state;

	seal_it(f);
	shell(f->source, "echo x >run/checkpoint-2/notes.txt");
	assert_string_equal(checked(f, 0), "files_after_seal notes.txt -1 -\n");
	assert_int_equal(f->counts.problems, 0);
}

static void a_damaged_checkpoint_is_not_sealed(void **state)
{
	struct fixture *f = *state;

	shell(f->source, "truncate -s 100 run/checkpoint-2/optimizer_0/__0_0.distcp");
	seal_with(f, 0);
	assert_int_equal(f->sealed.refused, 1);
	assert_non_null(strstr(f->text, "truncated"));
	assert_int_equal(f->sealed.sealed, 0);
}

static void a_checkpoint_being_saved_is_not_sealed(void **state)
{
	struct fixture *f = *state;

	f->options.no_settling = false;
	shell(f->source, "rm run/checkpoint-2/trainer_state.json; touch run/checkpoint-2/scheduler.pt");
	seal_with(f, 0);
	assert_int_equal(f->sealed.saving, 1);
	assert_int_equal(f->sealed.sealed, 0);
}

/* -- files of seals -- */

static void a_seal_is_a_file_that_works_elsewhere(void **state)
{
	struct fixture *f = *state;

	f->options.seals = f->seals;
	f->options.no_store = true;
	seal_it(f);
	shell(f->dir, "test -f seals/run/checkpoint-2.sha256");
	shell(f->dir, "! grep -q $PWD seals/run/checkpoint-2.sha256");
	shell(f->dir,
	      "cd src/run/checkpoint-2 && sha256sum -c --strict --status ../../../seals/run/checkpoint-2.sha256");
	assert_string_equal(checked(f, UNSHARD_DEEP), "");
	/* Another path, another machine: the last names are enough. */
	shell(f->dir, "mkdir -p other/place && cp -r src/run other/place/run");
	snprintf(f->source, sizeof(f->source), "%s/other", f->dir);
	assert_string_equal(checked(f, UNSHARD_DEEP), "");
	shell(f->source, "cd place/run/checkpoint-2 && mv rng_state_0.pth x && mv rng_state_1.pth rng_state_0.pth && "
			 "mv x rng_state_1.pth");
	checked(f, 0);
	assert_non_null(strstr(f->found.p, "sealed_files_exchanged rng_state_0.pth"));
	/* One file, named by itself. */
	snprintf(f->seals, sizeof(f->seals), "%s/seals/run/checkpoint-2.sha256", f->dir);
	checked(f, 0);
	assert_non_null(strstr(f->found.p, "sealed_files_exchanged rng_state_0.pth"));
}

static void a_damaged_seal_disproves_nothing(void **state)
{
	struct fixture *f = *state;

	f->options.seals = f->seals;
	seal_it(f);
	shell(f->dir, "sed -i 's/all$/ALL/' seals/run/checkpoint-2.sha256");
	assert_string_equal(checked(f, 0), "seal_unusable - -1 -\n");
	assert_string_equal(checked(f, UNSHARD_DEEP), "seal_unusable - -1 -\n");
	assert_int_equal(f->counts.problems, 1);
	assert_int_equal(stat_of(f, MODEL), 0);
	seal_with(f, 0);
	assert_int_equal(f->sealed.differs, 1);
	seal_with(f, UNSHARD_SEAL_AGAIN);
	assert_string_equal(checked(f, UNSHARD_DEEP), "");
}

static void nothing_is_written_into_what_is_sealed(void **state)
{
	static const char *const inside[] = { "src/seals", "src/run/checkpoint-2/x.sha256", "link/y", "src" };
	struct unshard_error err = { 0 };
	struct fixture *f = *state;
	unshard *u;
	size_t i;

	shell(f->dir, "ln -s src/run link");
	shell(f->dir, "find src | sort >before");
	f->options.seals = f->seals;
	for (i = 0; i < sizeof(inside) / sizeof(*inside); i++) {
		snprintf(f->seals, sizeof(f->seals), "%s/%s", f->dir, inside[i]);
		u = opened(f);
		assert_int_equal(unshard_seal(u, "", 0, NULL, NULL, &err), -EINVAL);
		assert_non_null(strstr(err.text, "nothing is ever written"));
		unshard_close(u);
	}
	shell(f->dir, "find src | sort | cmp - before");
}

static void one_file_is_the_seal_of_one_checkpoint(void **state)
{
	struct fixture *f = *state;

	shell(f->source, "cp -r run/checkpoint-2 run/checkpoint-4");
	f->options.seals = f->seals;
	snprintf(f->seals, sizeof(f->seals), "%s/one.sha256", f->dir);
	seal_with(f, 0);
	assert_int_equal(f->sealed.sealed, 1);
	assert_int_equal(f->sealed.refused, 1);
	seal_with(f, UNSHARD_SEAL_AGAIN);
	assert_int_equal(f->sealed.sealed, 1);
	assert_int_equal(f->sealed.refused, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_emitted_is_parsed),
		cmocka_unit_test(any_changed_byte_and_any_cut_is_noticed),
		cmocka_unit_test(what_is_no_seal_is_refused),
		cmocka_unit_test(pieces_that_overlap_without_end_are_refused),
		TEST(a_sound_checkpoint_stays_sound),
		TEST(exchanged_files_are_found_without_reading_all),
		TEST(exchanged_files_of_one_size_and_time_are_found),
		TEST(a_rotten_bit_is_found_deep_with_its_tensor),
		TEST(a_missing_and_a_cut_file_are_found),
		TEST(what_is_missing_is_found_without_metadata),
		TEST(a_restored_backup_is_as_sealed),
		TEST(a_mixed_save_is_found),
		TEST(another_save_in_its_place_is_said_and_shown),
		TEST(only_again_replaces_a_seal),
		TEST(files_that_came_later_are_noted),
		TEST(a_damaged_checkpoint_is_not_sealed),
		TEST(a_checkpoint_being_saved_is_not_sealed),
		TEST(a_seal_is_a_file_that_works_elsewhere),
		TEST(a_damaged_seal_disproves_nothing),
		TEST(nothing_is_written_into_what_is_sealed),
		TEST(one_file_is_the_seal_of_one_checkpoint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
