/* Findings as values: copies, equality, and the one place where a finding becomes a sentence. Knows the syntax of
 * templates (finding.h), not their content. */
#include "model/finding.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"

/* -- copies: the struct, then its texts -- */

typedef void each_text(void *ctx, const char **text);

static void visit_texts(struct uns_finding *f, each_text *visit, void *ctx)
{
	struct uns_datum *data[] = { &f->rank, &f->expected, &f->found };
	size_t i;

	visit(ctx, &f->checkpoint);
	visit(ctx, &f->file);
	visit(ctx, &f->tensor);
	for (i = 0; i < sizeof(data) / sizeof(*data); i++)
		if (data[i]->kind == UNS_DATUM_TEXT)
			visit(ctx, &data[i]->text);
	for (i = 0; i < UNS_FINDING_ARGS && f->arg[i].name; i++) {
		visit(ctx, &f->arg[i].name);
		if (f->arg[i].is.kind == UNS_DATUM_TEXT)
			visit(ctx, &f->arg[i].is.text);
	}
}

static void add_length(void *bytes, const char **text)
{
	*(size_t *)bytes += *text ? strlen(*text) + 1 : 0;
}

static void move_text(void *room, const char **text)
{
	char **at = room;
	size_t n = *text ? strlen(*text) + 1 : 0;

	if (n)
		*text = memcpy(*at, *text, n);
	*at += n;
}

static size_t bytes_of(const struct uns_finding *f)
{
	struct uns_finding copy = *f;
	size_t bytes = sizeof(copy);

	visit_texts(&copy, add_length, &bytes);
	return bytes;
}

/* A finding that keeps something from being served is damage, unless it or its kind has another code. */
static int code_of(const struct uns_finding *f)
{
	int code = f->code ? f->code : uns_finding_words(f->id)->code;

	return code || f->scope == UNS_SCOPE_NOTE ? code : -EBADMSG;
}

enum uns_severity uns_finding_severity(const struct uns_finding *f)
{
	const enum uns_severity of_kind = uns_finding_words(f->id)->severity;
	const int code = code_of(f);

	if (of_kind == UNS_PROBLEM && !uns_code_is_finding(code))
		return UNS_UNJUDGED;
	/* What is sound, for all that is known, and in a form that some view cannot be made of, is no
	 * problem, unless no view has the weights. */
	return code == -ENOTSUP && f->scope != UNS_SCOPE_WEIGHTS ? UNS_NOTE : of_kind;
}

static struct uns_finding *copy_into(struct uns_finding *room, const struct uns_finding *f)
{
	char *texts = (char *)(room + 1);

	*room = *f;
	room->code = code_of(f);
	room->severity = uns_finding_severity(f);
	visit_texts(room, move_text, &texts);
	return room;
}

const struct uns_finding *uns_finding_copy(struct uns_arena *arena, const struct uns_finding *f)
{
	struct uns_finding *room = uns_arena_alloc(arena, bytes_of(f), 1);

	return room ? copy_into(room, f) : NULL;
}

struct uns_finding *uns_finding_dup(const struct uns_finding *f)
{
	struct uns_finding *room = malloc(bytes_of(f));

	return room ? copy_into(room, f) : NULL;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_datum(const struct uns_datum *a, const struct uns_datum *b)
{
	if (a->kind != b->kind)
		return false;
	return a->kind == UNS_DATUM_TEXT ? same_text(a->text, b->text)
					 : a->kind == UNS_DATUM_NONE || a->number == b->number;
}

bool uns_finding_equal(const struct uns_finding *a, const struct uns_finding *b)
{
	size_t i;

	if (a->id != b->id || a->scope != b->scope || a->code != b->code || !same_text(a->checkpoint, b->checkpoint) ||
	    !same_text(a->file, b->file) || !same_text(a->tensor, b->tensor) || !same_datum(&a->rank, &b->rank) ||
	    !same_datum(&a->expected, &b->expected) || !same_datum(&a->found, &b->found))
		return false;
	for (i = 0; i < UNS_FINDING_ARGS; i++)
		if (!same_text(a->arg[i].name, b->arg[i].name) || !same_datum(&a->arg[i].is, &b->arg[i].is))
			return false;
	return true;
}

/* -- errors -- */

int uns_findings_add(struct uns_findings *list, struct uns_arena *arena, const struct uns_finding *f,
		     struct uns_err *err)
{
	const struct uns_finding *copy = uns_finding_copy(arena, f);

	UNS_TRY_ALLOC(copy && UNS_ARENA_ROOM(arena, list->v, list->n, list->cap), err);
	list->v[list->n++] = *copy;
	return 0;
}

int uns_fail_with(struct uns_err *err, const struct uns_finding *f)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const struct uns_finding *kept = NULL;
	int code = code_of(f);

	code = code ? code : -EBADMSG;
	if (!uns_err_takes(err, code))
		return code;
	uns_finding_print(f, &text);
	if (text.failed)
		return uns_oom(err);
	if (err->keep && !(kept = uns_finding_copy(err->keep, f)))
		return uns_oom(err);
	uns_fail(err, code, "%s", text.p);
	err->finding = kept;
	return code;
}

int uns_fail_copy(struct uns_err *err, const struct uns_err *why)
{
	struct uns_err own = *why;

	if (uns_err_takes(err, own.code) && err->keep && own.finding &&
	    !(own.finding = uns_finding_copy(err->keep, own.finding)))
		return uns_oom(err);
	return uns_fail_as(err, &own);
}

int uns_finding_code(int code)
{
	switch (code) {
	case -ELOOP:
	case -EXDEV:
		return -EBADMSG;
	case -ENOTDIR:
		return -ENOENT;
	default:
		return code;
	}
}

struct uns_finding uns_finding_of_err(const struct uns_err *err, enum uns_scope scope)
{
	struct uns_finding f = { .id = UNS_FOUND_PART_UNREADABLE, .file = err->file };

	if (err->finding)
		f = *err->finding;
	else if (err->file && err->cause)
		f.id = UNS_FOUND_FILE_UNREADABLE;
	if (!err->finding)
		f.arg[0] = (struct uns_finding_arg){ "cause", uns_str(f.id == UNS_FOUND_FILE_UNREADABLE ? err->cause
													: err->text) };
	f.scope = scope;
	f.code = uns_finding_code(err->code);
	return f;
}

struct uns_finding uns_finding_quoting(enum uns_finding_id id, const struct uns_err *err, enum uns_scope scope)
{
	struct uns_finding f = uns_finding_of_err(err, scope);

	if (!err->finding) {
		f.id = id;
		f.arg[0].is = uns_str(err->text);
	}
	return f;
}

/* -- sentences -- */

const char *uns_scope_text(enum uns_scope scope)
{
	static const char *const text[] = { [UNS_SCOPE_NOTE] = "note",
					    [UNS_SCOPE_WEIGHTS] = "weights",
					    [UNS_SCOPE_OPTIMIZER] = "optimizer",
					    [UNS_SCOPE_ALL] = "all",
					    [UNS_SCOPE_SHARDED] = "sharded" };

	return text[scope];
}

const char *uns_severity_text(enum uns_severity severity)
{
	static const char *const text[] = {
		[UNS_PROBLEM] = "problem", [UNS_NOTE] = "note", [UNS_UNJUDGED] = "not judged"
	};

	return text[severity];
}

const char *uns_finding_name(enum uns_finding_id id)
{
	return uns_finding_words(id)->name;
}

const char *uns_finding_check(const struct uns_finding *f)
{
	const char *check = uns_finding_words(f->id)->check;

	if (check)
		return check;
	if (f->code == -ENOTSUP)
		return "not_supported";
	return f->code ? "damaged" : "note";
}

void uns_datum_print(const struct uns_datum *d, struct uns_text *out)
{
	if (d->kind == UNS_DATUM_TEXT)
		uns_text_str(out, d->text);
	else if (d->kind == UNS_DATUM_NUMBER)
		uns_text_printf(out, "%lld", (long long)d->number);
}

static bool is_named(const char *name, size_t len, const char *wanted)
{
	return strlen(wanted) == len && strncmp(name, wanted, len) == 0;
}

static struct uns_datum field(const struct uns_finding *f, const char *name, size_t len)
{
	size_t i;

	if (is_named(name, len, "file"))
		return uns_str(f->file);
	if (is_named(name, len, "tensor"))
		return uns_str(f->tensor);
	if (is_named(name, len, "checkpoint"))
		return uns_str(f->checkpoint);
	if (is_named(name, len, "rank"))
		return f->rank;
	if (is_named(name, len, "expected"))
		return f->expected;
	if (is_named(name, len, "found"))
		return f->found;
	for (i = 0; i < UNS_FINDING_ARGS && f->arg[i].name; i++)
		if (is_named(name, len, f->arg[i].name))
			return f->arg[i].is;
	return uns_str(NULL);
}

/* The text between braces: "file", "file.name", "n|file|files", "?copies". */
static struct uns_datum field_of(const struct uns_finding *f, const char *p)
{
	p += *p == '?';
	return field(f, p, strcspn(p, ".|}"));
}

/* Sentences are printed below the checkpoint's path, or behind it, so its files are named relative to it. */
static const char *path_inside(const struct uns_finding *f, const char *file)
{
	size_t n = f->checkpoint ? strlen(f->checkpoint) : 0;

	return n && strncmp(file, f->checkpoint, n) == 0 && file[n] == '/' ? file + n + 1 : file;
}

/* A field of a form: FILE for {file.name}. */
static void print_form_field(const char *p, struct uns_text *out)
{
	char upper;

	for (; *p != '.' && *p != '}'; p++) {
		upper = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
		uns_text_add(out, &upper, 1);
	}
}

/* f: NULL = of any finding (uns_finding_print_form), as in the functions below. */
static void print_field(const struct uns_finding *f, const char *p, const char *end, struct uns_text *out)
{
	struct uns_datum d = f ? field_of(f, p) : uns_str(NULL);
	const char *how = p + strcspn(p, ".|}"), *bar;

	if (*how == '|') {
		bar = strchr(how + 1, '|');
		if (d.kind == UNS_DATUM_NUMBER && d.number == 1)
			uns_text_add(out, how + 1, (size_t)(bar - how - 1));
		else
			uns_text_add(out, bar + 1, (size_t)(end - bar - 1));
	} else if (!f && *p != '?') {
		print_form_field(p, out);
	} else if (*how == '.' && d.kind == UNS_DATUM_TEXT) {
		uns_text_str(out, uns_path_name(d.text));
	} else if (d.kind == UNS_DATUM_TEXT &&
		   (is_named(p, strcspn(p, "}"), "file") || is_named(p, strcspn(p, "}"), "other_file"))) {
		uns_text_str(out, path_inside(f, d.text));
	} else if (d.kind == UNS_DATUM_TEXT && is_named(p, strcspn(p, "}"), "checkpoint")) {
		uns_text_str(out, *f->checkpoint ? uns_path_name(f->checkpoint) : "the checkpoint");
	} else if (*p != '?') {
		uns_datum_print(&d, out);
	}
}

/* The bracket that closes the one before `p`; the '|' between its alternatives, if that comes first. */
static const char *end_of(const char *p, bool at_bar)
{
	int depth = 0;

	for (; *p; p++) {
		if (*p == '{')
			p = strchr(p, '}');
		else if (*p == '[')
			depth++;
		else if (*p == ']' && depth-- == 0)
			return p;
		else if (*p == '|' && depth == 0 && at_bar)
			return p;
	}
	return p;
}

/* Whether a finding has the field; any finding has all but those about more of its kind. */
static bool has_field(const struct uns_finding *f, const char *p)
{
	if (f)
		return field_of(f, p).kind != UNS_DATUM_NONE;
	return *p != '?' && !is_named(p, strcspn(p, ".|}"), "more");
}

/* Every field of this level is there; those in brackets inside it speak for themselves. */
static bool is_complete(const struct uns_finding *f, const char *p, const char *end)
{
	for (; p < end; p++) {
		if (*p == '{' && !has_field(f, p + 1))
			return false;
		if (*p == '{')
			p = strchr(p, '}');
		else if (*p == '[')
			p = end_of(p + 1, false);
	}
	return true;
}

static void print_words(const struct uns_finding *f, const char *p, const char *end, struct uns_text *out);

/* Prints the text between brackets: "A" or "A|B". */
static void print_choice(const struct uns_finding *f, const char *p, const char *end, struct uns_text *out)
{
	const char *bar = end_of(p, true);

	if (is_complete(f, p, bar))
		print_words(f, p, bar, out);
	else if (bar < end)
		print_words(f, bar + 1, end, out);
}

static void print_words(const struct uns_finding *f, const char *p, const char *end, struct uns_text *out)
{
	const char *close;
	size_t n;

	for (; p < end; p = close + 1) {
		n = strcspn(p, "{[");
		close = p + n;
		if (close > end)
			close = end;
		uns_text_add(out, p, (size_t)(close - p));
		if (close == end)
			return;
		p = close + 1;
		close = *close == '{' ? strchr(p, '}') : end_of(p, false);
		if (p[-1] == '{')
			print_field(f, p, close, out);
		else
			print_choice(f, p, close, out);
	}
}

static void print_all(const struct uns_finding *f, const char *words, struct uns_text *out)
{
	size_t from = out->len;

	print_words(f, words, words + strlen(words), out);
	if (!out->failed)
		uns_one_line(out->p + from, out->len - from);
}

/* "; copy it back": without what joins it to the sentence. */
static const char *bare(const char *advice)
{
	return advice + strspn(advice, ":;,. ");
}

void uns_finding_print(const struct uns_finding *f, struct uns_text *out)
{
	const struct uns_finding_words *words = uns_finding_words(f->id);

	print_all(f, words->sentence, out);
	if (!words->advice)
		return;
	if (*words->advice && bare(words->advice) == words->advice)
		uns_text_str(out, "; ");
	print_all(f, words->advice, out);
}

void uns_finding_print_advice(const struct uns_finding *f, struct uns_text *out)
{
	const struct uns_finding_words *words = uns_finding_words(f->id);

	if (words->advice)
		print_all(f, bare(words->advice), out);
}

void uns_finding_print_form(const char *template, struct uns_text *out)
{
	print_all(NULL, bare(template), out);
}
