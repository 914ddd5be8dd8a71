#include "edited.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "pickle_ops.h"
#include "torch_maker.h"
#include "wire/zip.h"

enum { MAX_FILES = 64, MAX_MEMBERS = 64, MAX_FILE_BYTES = 1 << 20, MAX_OPS = 4096, MAX_CHANGES = 16 };

/* A file as it was read. Of one that is no archive, or must not move, it is the only member. */
struct member {
	const char *name;
	struct uns_span bytes;
};
struct file {
	const char *name; /* below the golden directory */
	struct member member[MAX_MEMBERS];
	size_t n;
	bool is_archive;
};

/* What is read stays until the target ends. */
struct tree {
	struct edited_tree of;
	struct file file[MAX_FILES];
	size_t n;
	struct tree *next;
};

static void give_up(const char *what)
{
	perror(what);
	_exit(2);
}

/* -- reading -- */

static struct tree *reading; /* nftw takes no context */
static size_t reading_from;

static struct uns_arena kept;    /* of members as they were read */
static struct uns_arena changed; /* of those that the last input changed */

static struct uns_span read_file(const char *path, size_t len)
{
	uint8_t *bytes = uns_arena_alloc(&kept, len + 1, 1);
	FILE *in = fopen(path, "rb");

	if (!in || !bytes || fread(bytes, 1, len, in) != len)
		give_up(path);
	fclose(in);
	return uns_span_of(bytes, len);
}

static bool read_members(struct file *f, struct uns_span bytes)
{
	struct uns_reader r = uns_reader_of_span(&bytes);
	struct uns_zip zip;
	size_t i;

	if (uns_zip_open(&r, &kept, &zip, NULL) < 0 || zip.n > MAX_MEMBERS)
		return false;
	for (i = 0; i < zip.n; i++) {
		f->member[i].name = zip.v[i].name;
		if (uns_zip_read(&r, &zip.v[i], MAX_FILE_BYTES, &kept, &f->member[i].bytes, NULL) < 0)
			return false;
	}
	f->n = zip.n;
	return true;
}

/* An archive in the middle of a file: a CRC of 0 is none, so that bytes may change. */
static void drop_crcs(struct uns_span bytes)
{
	static const char entry[] = "PK\1\2";
	uint8_t *p = memmem(bytes.p, uns_span_left(&bytes), entry, 4);

	for (; p && bytes.end - p > 20; p = memmem(p + 4, (size_t)(bytes.end - p) - 4, entry, 4))
		memset(p + 16, 0, 4);
}

static int read_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	const char *name = path + reading_from;
	struct file *f;
	struct uns_span bytes;

	(void)at;
	if (kind == FTW_D && reading->of.skip && strcmp(name, reading->of.skip) == 0)
		return FTW_SKIP_SUBTREE;
	if (kind != FTW_F || reading->n == MAX_FILES)
		return FTW_CONTINUE;
	f = &reading->file[reading->n++];
	f->name = uns_arena_str(&kept, name);
	bytes = read_file(path, (size_t)st->st_size);
	f->is_archive = !strstr(name, ".distcp") && read_members(f, bytes);
	if (!f->is_archive) {
		drop_crcs(bytes);
		f->member[0] = (struct member){ f->name, bytes };
		f->n = 1;
	}
	return FTW_CONTINUE;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static const struct tree *tree_of(const struct edited_tree *of)
{
	static struct tree *trees;
	struct tree *t;
	char path[512];

	for (t = trees; t; t = t->next)
		if (strcmp(t->of.golden, of->golden) == 0 && t->of.skip == of->skip)
			return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		give_up(of->golden);
	*t = (struct tree){ .of = *of, .next = trees };
	trees = reading = t;
	reading_from = (size_t)snprintf(path, sizeof(path), "%s/%s/", UNSHARD_GOLDEN, of->golden);
	if (nftw(path, read_entry, 16, FTW_PHYS | FTW_ACTIONRETVAL) < 0 || !t->n)
		give_up(path);
	qsort(t->file, t->n, sizeof(*t->file), by_name);
	return t;
}

/* -- changing -- */

struct change {
	uint8_t file, member, what;
	uint16_t at, other;
	struct uns_span text;
};

enum what { OVERWRITE, REPLACE, TEXT_OF_OP, OP_BY_OP, WITHOUT_OPS, OPS_TWICE, CUT, REMOVE, ANOTHERS, N_WHATS };

static bool take_change(struct uns_span *in, struct change *c)
{
	const uint8_t *text;
	uint8_t n;

	if (!uns_take_u8(in, &c->file) || !uns_take_u8(in, &c->member) || !uns_take_u8(in, &c->what) ||
	    !uns_take_u16le(in, &c->at) || !uns_take_u16le(in, &c->other) || !uns_take_u8(in, &n))
		return false;
	if (n > uns_span_left(in))
		n = (uint8_t)uns_span_left(in);
	uns_span_take(in, n, &text);
	c->text = uns_span_of(text, n);
	return true;
}

static void add(struct uns_text *out, const uint8_t *from, const uint8_t *to)
{
	uns_text_add(out, from, (size_t)(to - from));
}

static void change_bytes(struct uns_text *out, struct uns_span in, const struct change *c)
{
	size_t len = uns_span_left(&in), at = c->at % (len + 1), n = uns_span_left(&c->text);
	size_t gone = c->what == OVERWRITE ? n : c->other % 64;

	if (gone > len - at)
		gone = len - at;
	if (c->what == OVERWRITE)
		n = gone;
	add(out, in.p, in.p + at);
	if (c->what == CUT)
		return;
	uns_text_add(out, c->text.p, n);
	add(out, in.p + at + gone, in.end);
}

static void change_ops(struct uns_text *out, struct uns_span in, const struct change *c)
{
	static struct pickle_op op[MAX_OPS]; /* one thread */
	struct uns_span rest;
	size_t n = pickle_ops(in, op, MAX_OPS, &rest), at, other, past;

	if (!n) {
		change_bytes(out, in, c);
		return;
	}
	at = c->at % n;
	other = c->other % n;
	past = at + 1;
	add(out, in.p, op[at].p);
	if (c->what == TEXT_OF_OP)
		pickle_op_with(&op[at], c->text, out);
	else if (c->what == OP_BY_OP)
		uns_text_add(out, op[other].p, op[other].len);
	else
		past = at + 1 + other % 8 < n ? at + 1 + other % 8 : n;
	in.p = past < n ? op[past].p : rest.p;
	if (c->what == OPS_TWICE) {
		add(out, op[at].p, in.p);
		add(out, op[at].p, in.p);
	}
	add(out, in.p, in.end);
}

static void change_member(struct member *m, const struct change *c)
{
	struct uns_text out = UNS_TEXT_INIT;
	char *bytes;
	size_t len;

	if (c->what == TEXT_OF_OP || c->what == OP_BY_OP || c->what == WITHOUT_OPS || c->what == OPS_TWICE)
		change_ops(&out, m->bytes, c);
	else
		change_bytes(&out, m->bytes, c);
	bytes = uns_text_take(&out, &len);
	if (!bytes)
		give_up("memory");
	m->bytes = uns_span_of(uns_arena_strn(&changed, bytes, len), len);
	free(bytes);
}

void edited_bytes(struct uns_span bytes, struct uns_span changes, struct uns_text *out)
{
	struct member m = { NULL, bytes };
	struct change c;
	size_t i;

	uns_arena_fini(&changed);
	for (i = 0; i < MAX_CHANGES && take_change(&changes, &c); i++) {
		c.what %= REPLACE + 1;
		change_member(&m, &c);
	}
	uns_text_add(out, m.bytes.p, uns_span_left(&m.bytes));
}

static void change(struct file *files, size_t n, struct change *c)
{
	struct file *f = &files[c->file % n];

	c->what %= N_WHATS;
	if (c->what == ANOTHERS) {
		const struct file *other = &files[c->other % n];

		f->n = other->n;
		f->is_archive = other->is_archive;
		memcpy(f->member, other->member, sizeof(f->member));
	} else if (c->what == REMOVE && c->member % (f->n + 1) == 0) {
		f->n = 0;
	} else if (c->what == REMOVE) {
		f->n--;
		f->member[c->member % (f->n + 2) - 1] = f->member[f->n];
	} else if (f->n) {
		change_member(&f->member[c->member % f->n], c);
	}
}

/* -- writing -- */

static void put_file(const struct file *f)
{
	struct torch_maker maker = TORCH_MAKER_INIT;
	size_t i;

	if (!f->n) {
		files_remove(f->name);
		return;
	}
	if (!f->is_archive) {
		files_put(f->name, f->member[0].bytes);
		return;
	}
	for (i = 0; i < f->n; i++)
		torch_maker_add(&maker, f->member[i].name, f->member[i].bytes);
	torch_maker_end(&maker);
	files_put(f->name, uns_span_of(maker.zip.p, maker.zip.len));
	torch_maker_fini(&maker);
}

void edited_put(const struct edited_tree *tree, struct uns_span changes)
{
	static struct file files[MAX_FILES]; /* one thread */
	const struct tree *t = tree_of(tree);
	struct change c;
	size_t i;

	files_clear();
	uns_arena_fini(&changed);
	memcpy(files, t->file, t->n * sizeof(*files));
	for (i = 0; i < MAX_CHANGES && take_change(&changes, &c); i++)
		change(files, t->n, &c);
	for (i = 0; i < t->n; i++)
		put_file(&files[i]);
}
