/* Findings: the table has every kind once and well-formed, sentences come out of their templates, copies are
 * equal and own their texts. Templates of the test's own: -Wl,--wrap=uns_finding_words. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "model/finding.h"
#include "said.h"

static const struct uns_finding_words *own;

const struct uns_finding_words *__real_uns_finding_words(enum uns_finding_id id);
const struct uns_finding_words *__wrap_uns_finding_words(enum uns_finding_id id);

const struct uns_finding_words *__wrap_uns_finding_words(enum uns_finding_id id)
{
	return own ? own : __real_uns_finding_words(id);
}

/* -- the table -- */

static void check_template(const char *name, const char *p)
{
	int braces = 0, brackets = 0;

	for (; *p; p++) {
		if (braces && *p == '{')
			fail_msg("%s: '{' in a field's name", name);
		braces += *p == '{' ? 1 : *p == '}' ? -1 : 0;
		brackets += *p == '[' ? 1 : *p == ']' ? -1 : 0;
		if (braces < 0 || brackets < 0)
			fail_msg("%s: closes what is not open: %s", name, p);
	}
	if (braces || brackets)
		fail_msg("%s: something is open at the end", name);
}

static void test_table(void **state)
{
	const struct uns_finding_words *w, *v;
	const char *c;
	size_t i, k;

	(void)state;
	for (i = 0; i < UNS_N_FINDINGS; i++) {
		w = uns_finding_words((enum uns_finding_id)i);
		if (!w->name || !*w->name || !w->sentence || !*w->sentence)
			fail_msg("finding %zu has no words", i);
		for (c = w->name; *c; c++)
			if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
				fail_msg("%s: names are of lower-case letters, digits and '_'", w->name);
		for (k = 0; k < i; k++) {
			v = uns_finding_words((enum uns_finding_id)k);
			if (strcmp(v->name, w->name) == 0)
				fail_msg("%s stands there twice", w->name);
		}
		if (w->severity == UNS_NOTE && w->code && w->code != -ENOTSUP)
			fail_msg("%s: a note with a code of damage", w->name);
		check_template(w->name, w->sentence);
		if (w->advice)
			check_template(w->name, w->advice);
	}
}

static void test_scopes_and_severities(void **state)
{
	(void)state;
	assert_string_equal(uns_scope_text(UNS_SCOPE_NOTE), "note");
	assert_string_equal(uns_scope_text(UNS_SCOPE_SHARDED), "sharded");
	assert_string_equal(uns_severity_text(UNS_PROBLEM), "problem");
	assert_string_equal(uns_severity_text(UNS_NOTE), "note");
}

/* -- sentences -- */

static void says(const char *sentence, const char *advice, const struct uns_finding *f, const char *expected)
{
	const struct uns_finding_words words = { .name = "own", .sentence = sentence, .advice = advice };

	own = &words;
	assert_string_equal(said(f), expected);
	own = NULL;
}

static void test_sentences(void **state)
{
	const struct uns_finding *f =
		UNS_FINDING(.file = "run/ckpt/a.pt", .rank = uns_rank(3), .expected = uns_num(8),
			    .found = uns_str("seven"),
			    .arg = { { "n", uns_num(1) }, { "m", uns_num(2) }, { "more", uns_more(0) } });

	(void)state;
	says("plain", "", f, "plain");
	says("{file}: {found}, not {expected} (rank {rank})", "", f, "run/ckpt/a.pt: seven, not 8 (rank 3)");
	says("{file.name}", "", f, "a.pt");
	says("{n} {n|file|files}, {m} {m|file|files}", "", f, "1 file, 2 files");
	says("a[ (rank {rank})][, tensor {tensor}]", "", f, "a (rank 3)");
	says("[{tensor}|nothing] and [{found}|nothing]", "", f, "nothing and seven");
	says("[{file}[ of {tensor}]]", "", f, "run/ckpt/a.pt");
	says("[{file}[ of {tensor}| of none]]", "", f, "run/ckpt/a.pt of none");
	says("[one{?n}|none][ and {more} more]", "", f, "one");
	says("[one{?more}|none]", "", f, "none");
	says("-{tensor}-{unknown}-", "", f, "---");
}

static void test_advice(void **state)
{
	const struct uns_finding *f = UNS_FINDING(.file = "a.pt");

	(void)state;
	says("cut", "copy {file} again", f, "cut; copy a.pt again");
	says("cut", ": copy it again", f, "cut: copy it again");
	says("cut", ". Copy it again", f, "cut. Copy it again");
	says("cut", NULL, f, "cut");
}

/* -- values -- */

static void test_equal(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	char file[] = "a.pt";
	struct uns_finding f = { .id = UNS_FOUND_FILE_MISSING,
				 .scope = UNS_SCOPE_WEIGHTS,
				 .file = file,
				 .found = uns_str("x"),
				 .arg = { { "n", uns_num(3) } } };
	const struct uns_finding *copy = uns_finding_copy(&arena, &f);
	struct uns_finding *dup = uns_finding_dup(copy), other = *copy;

	(void)state;
	assert_true(uns_finding_equal(copy, dup));
	assert_int_equal(copy->code, dup->code);
	assert_int_not_equal(copy->code, 0);
	file[0] = 'b';
	assert_string_equal(copy->file, "a.pt");
	assert_string_equal(dup->file, "a.pt");
	other.arg[0].is = uns_num(4);
	assert_false(uns_finding_equal(copy, &other));
	other = *copy;
	other.rank = uns_rank(0);
	assert_false(uns_finding_equal(copy, &other));
	free(dup);
}

static void test_errors(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { .keep = &arena };
	struct uns_finding f;
	int code = uns_fail_with(&err,
				 UNS_FINDING(.id = UNS_FOUND_FILE_MISSING, .scope = UNS_SCOPE_WEIGHTS, .file = "a.pt"));

	(void)state;
	assert_int_equal(err.code, code);
	assert_non_null(err.finding);
	f = uns_finding_of_err(&err, UNS_SCOPE_OPTIMIZER);
	assert_int_equal(f.id, UNS_FOUND_FILE_MISSING);
	assert_int_equal(f.scope, UNS_SCOPE_OPTIMIZER);
	assert_string_equal(f.file, "a.pt");
}

/* What only quotes an error says all of its sentence, and knows the file. */
static void test_quoting(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { .keep = &arena };
	struct uns_finding f;

	(void)state;
	uns_fail(&err, -ELOOP, "leads in circles");
	uns_fail_in_file(&err, "run/a.pt");
	f = uns_finding_quoting(UNS_FOUND_CHECKPOINT_UNREADABLE, &err, UNS_SCOPE_ALL);
	assert_int_equal(f.id, UNS_FOUND_CHECKPOINT_UNREADABLE);
	assert_int_equal(f.code, -EBADMSG);
	assert_string_equal(f.file, "run/a.pt");
	uns_finding_print(&f, &text);
	assert_string_equal(text.p, "run/a.pt: leads in circles");
}

/* Who fails for the same reason knows as much, also when the arena of the first has gone. */
static void test_handed_on(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_arena passing = UNS_ARENA_INIT;
	struct uns_err why = { .keep = &passing }, err = { .keep = &arena }, plain = { 0 };
	char path[] = "run/a.pt";

	(void)state;
	uns_fail_with(&why, UNS_FINDING(.id = UNS_FOUND_FILE_MISSING, .file = path));
	assert_int_equal(uns_fail_copy(&err, &why), -ENODATA);
	assert_int_equal(uns_fail_copy(&plain, &why), -ENODATA);
	uns_arena_fini(&passing);
	assert_int_equal(err.finding->id, UNS_FOUND_FILE_MISSING);
	assert_string_equal(err.finding->file, "run/a.pt");
	assert_string_equal(plain.text, err.text);
	assert_null(plain.finding);

	why = (struct uns_err){ .keep = &passing };
	passing = UNS_ARENA_INIT;
	err = (struct uns_err){ .keep = &arena };
	uns_fail(&why, -EBADMSG, "is empty");
	uns_fail_in_file(&why, path);
	assert_int_equal(uns_fail_copy(&err, &why), -EBADMSG);
	uns_arena_fini(&passing);
	assert_string_equal(err.file, "run/a.pt");
	assert_string_equal(err.cause, "is empty");
	assert_string_equal(err.text, "run/a.pt: is empty");
}

/* What is said of the files, and what only of this moment. */
static void test_codes(void **state)
{
	static const int lasting[] = { -EBADMSG, -ENODATA, -ENOTSUP, -ENOENT, -ENOTDIR, -ELOOP, -EXDEV };
	static const int passing[] = { -EIO, -EMFILE, -ENFILE, -EACCES, -EAGAIN, -ENOMEM, -ESTALE, -EINTR };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(lasting) / sizeof(*lasting); i++)
		assert_true(uns_code_is_finding(lasting[i]));
	for (i = 0; i < sizeof(passing) / sizeof(*passing); i++)
		assert_false(uns_code_is_finding(passing[i]));
}

/* What was said about a file gives way to a fault of this moment, and to nothing else. */
static void test_fault_outranks_finding(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { .keep = &arena }, why = { 0 };

	(void)state;
	uns_fail_with(&err, UNS_FINDING(.id = UNS_FOUND_FILE_MISSING, .file = "a.pt"));
	assert_int_equal(uns_fail(&err, -ENOTSUP, "of another form"), -ENOTSUP);
	assert_int_equal(err.code, -ENODATA);
	assert_int_equal(uns_oom(&err), -ENOMEM);
	assert_int_equal(err.code, -ENOMEM);
	assert_string_equal(err.text, "out of memory");
	assert_null(err.finding);
	assert_int_equal(uns_fail(&err, -EIO, "a read failed"), -EIO);
	assert_int_equal(uns_fail_with(&err, UNS_FINDING(.id = UNS_FOUND_FILE_MISSING, .file = "a.pt")), -ENODATA);
	assert_string_equal(err.text, "out of memory");
	assert_null(err.finding);

	/* One that was said after it, and of another code than the call's. */
	uns_fail(&why, -ENOENT, "a.pt: is absent");
	err = (struct uns_err){ 0 };
	assert_int_equal(uns_fail_if_passing(&err, -ENOENT, &why), 0);
	assert_int_equal(uns_fail_if_passing(&err, -ENOMEM, &why), -ENOMEM);
	assert_string_equal(err.text, "out of memory");
	err = (struct uns_err){ 0 };
	assert_int_equal(uns_fail_if_passing(&err, -EIO, &why), -EIO);
	assert_string_equal(err.text, "Input/output error");
	err = (struct uns_err){ .keep = &arena };
	uns_fail_with(&err, UNS_FINDING(.id = UNS_FOUND_FILE_MISSING, .file = "a.pt"));
	why = (struct uns_err){ .code = -EIO, .text = "b.pt: Input/output error" };
	assert_int_equal(uns_fail_copy(&err, &why), -EIO);
	assert_string_equal(err.text, "b.pt: Input/output error");
	assert_null(err.finding);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),     cmocka_unit_test(test_scopes_and_severities),
		cmocka_unit_test(test_sentences), cmocka_unit_test(test_advice),
		cmocka_unit_test(test_equal),     cmocka_unit_test(test_errors),
		cmocka_unit_test(test_quoting),   cmocka_unit_test(test_handed_on),
		cmocka_unit_test(test_codes),     cmocka_unit_test(test_fault_outranks_finding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
