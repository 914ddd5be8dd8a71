/* The restricted pickle machine. A table holds one handler for each opcode; handlers build plain
 * data and can do nothing else. What a few well-known callables mean as data (OrderedDict, set,
 * bytes) is in pickle_reduce.c. Knows no torch. */
#include "wire/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/budget.h"
#include "base/cleanup.h"
#include "base/utf8.h"
#include "wire/pickle_machine.h"

enum { MIN_RECENT = 16, MAX_RECENT = 1 << 14, BYTES_PER_RECENT = 32, MAX_RECENT_TEXT = 256 };

/* -- failing -- */

static int damaged(struct uns_pickle *m, const char *what)
{
	return uns_fail(m->err, -EBADMSG, "pickle is damaged at byte %zu: %s", m->op_at, what);
}

static int truncated(struct uns_pickle *m)
{
	return damaged(m, "it ends inside an opcode");
}

static int no_memory(struct uns_pickle *m)
{
	if (m->over_limit)
		return uns_fail(m->err, -ENOTSUP, "pickle of %zu bytes needs more than %zu bytes of memory",
				(size_t)(m->in.end - m->start), m->limit_bytes);
	return uns_oom(m->err);
}

/* -- memory -- */

static bool stack_room(struct uns_pickle *m)
{
	struct uns_value_stack *s = &m->stack;
	size_t cap = s->cap + s->cap / 2 + 64;
	struct uns_value **v;

	if (s->n < s->cap)
		return true;
	if (!uns_pickle_within_limit(m, cap - s->cap, sizeof(*v)))
		return false;
	v = realloc(s->v, cap * sizeof(*v));
	if (!v)
		return false;
	s->v = v;
	s->cap = cap;
	return true;
}

/* -- the stack -- */

static int push(struct uns_pickle *m, struct uns_value *v)
{
	if (!v || !stack_room(m))
		return no_memory(m);
	m->stack.v[m->stack.n++] = v;
	return 0;
}

/* Values above the newest mark; opcodes may not reach below it. */
static size_t above_mark(const struct uns_pickle *m)
{
	return m->stack.n - (m->n_marks ? m->mark[m->n_marks - 1] : 0);
}

static int top(struct uns_pickle *m, struct uns_value **out)
{
	if (above_mark(m) == 0)
		return damaged(m, "its stack is empty");
	*out = m->stack.v[m->stack.n - 1];
	return 0;
}

static int pop(struct uns_pickle *m, struct uns_value **out)
{
	UNS_TRY(top(m, out));
	m->stack.n--;
	return 0;
}

/* Pop the values above the newest mark, and the mark. *items stays valid until the next push. */
static int pop_mark(struct uns_pickle *m, struct uns_value ***items, size_t *n)
{
	if (m->n_marks == 0)
		return damaged(m, "there is no mark on the stack");
	*n = above_mark(m);
	m->stack.n -= *n;
	m->n_marks--;
	*items = m->stack.n + *n ? m->stack.v + m->stack.n : NULL;
	return 0;
}

static int op_mark(struct uns_pickle *m)
{
	if (!uns_pickle_within_limit(m, m->n_marks == m->cap_marks ? m->cap_marks : 0, sizeof(*m->mark)) ||
	    !UNS_HEAP_ROOM(m->mark, m->n_marks, m->cap_marks))
		return no_memory(m);
	m->mark[m->n_marks++] = m->stack.n;
	return 0;
}

static int op_pop(struct uns_pickle *m)
{
	struct uns_value *unused;

	if (m->n_marks && above_mark(m) == 0) {
		m->n_marks--;
		return 0;
	}
	return pop(m, &unused);
}

static int op_pop_mark(struct uns_pickle *m)
{
	struct uns_value **items;
	size_t n;

	return pop_mark(m, &items, &n);
}

/* -- values that are used more than once -- */

static int charge(struct uns_pickle *m, size_t uses, size_t items)
{
	size_t more;

	if (!__builtin_mul_overflow(uses, items, &more) && more <= m->limit_shared - m->shared) {
		m->shared += more;
		return 0;
	}
	return uns_fail(m->err, -ENOTSUP, "pickle of %zu bytes uses the same items more than %zu times",
			(size_t)(m->in.end - m->start), m->limit_shared);
}

static size_t items_of(const struct uns_value *v)
{
	if (v->kind == UNS_VALUE_RECORD) /* as many as the dict had */
		return 2 * uns_value_n_items(v);
	if (v->kind != UNS_VALUE_OBJECT)
		return uns_value_n_items(v);
	return uns_value_n_items(v->object.args) + uns_value_n_items(v->state);
}

static int push_again(struct uns_pickle *m, struct uns_value *v)
{
	UNS_TRY(charge(m, 1, items_of(v)));
	if (v->uses < UINT16_MAX)
		v->uses++;
	return push(m, v);
}

/* A value that is used again and again is given more. */
static int charge_more(struct uns_pickle *m, const struct uns_value *v, size_t items)
{
	if (v->uses == UINT16_MAX)
		return uns_fail(m->err, -ENOTSUP, "pickle gives items to a value that it used %u times before",
				v->uses);
	return charge(m, v->uses, items);
}

static int op_dup(struct uns_pickle *m)
{
	struct uns_value *v;

	UNS_TRY(top(m, &v));
	return push_again(m, v);
}

/* -- arguments of opcodes -- */

/* uns_le without its loop, for the lengths that most opcodes have. */
static uint64_t number_of(const uint8_t *p, unsigned n_bytes)
{
	switch (n_bytes) {
	case 1:
		return *p;
	case 2:
		return uns_le(p, 2);
	case 4:
		return uns_le(p, 4);
	default:
		return uns_le(p, 8);
	}
}

/* The number behind the opcode, in as many bytes as the table has: 1, 2, 4 or 8. */
static int take_number(struct uns_pickle *m, uint64_t *out)
{
	const uint8_t *p;

	if (!uns_span_take(&m->in, m->arg, &p))
		return truncated(m);
	*out = number_of(p, m->arg);
	return 0;
}

/* Such a number, which is a length, then that many bytes. */
static int take_counted(struct uns_pickle *m, const uint8_t **p, size_t *n)
{
	uint64_t len;

	UNS_TRY(take_number(m, &len));
	if (!uns_span_take(&m->in, (size_t)len, p))
		return damaged(m, "a string is longer than the rest of the file");
	*n = (size_t)len;
	return 0;
}

static int take_line(struct uns_pickle *m, const uint8_t **p, size_t *n)
{
	const uint8_t *end = memchr(m->in.p, '\n', uns_span_left(&m->in));

	if (!end)
		return truncated(m);
	*p = m->in.p;
	*n = (size_t)(end - m->in.p);
	m->in.p = end + 1;
	return 0;
}

/* -- scalars -- */

static int op_none(struct uns_pickle *m)
{
	if (!m->none)
		m->none = uns_pickle_value(m, UNS_VALUE_NONE);
	return push(m, m->none);
}

static int op_bool(struct uns_pickle *m)
{
	bool b = m->arg;

	if (!m->boolean[b]) {
		m->boolean[b] = uns_pickle_value(m, UNS_VALUE_BOOL);
		if (m->boolean[b])
			m->boolean[b]->b = b;
	}
	return push(m, m->boolean[b]);
}

static int push_int(struct uns_pickle *m, int64_t i)
{
	struct uns_value **recent = &m->recent.ints[uns_pickle_slot(m, (uint64_t)i)];

	if (!*recent || (*recent)->i != i) {
		*recent = uns_pickle_value(m, UNS_VALUE_INT);
		if (!*recent)
			return no_memory(m);
		(*recent)->i = i;
	}
	return push(m, *recent);
}

/* Only that of four bytes has a sign. */
static int op_int(struct uns_pickle *m)
{
	uint64_t u;

	UNS_TRY(take_number(m, &u));
	return push_int(m, m->arg == 4 ? (int32_t)(uint32_t)u : (int64_t)u);
}

/* Two's complement, little endian. Bytes that only repeat the sign are dropped first: Python writes
 * 2^63 with nine. A negative length is longer than any input. */
static int op_long(struct uns_pickle *m)
{
	const uint8_t *p;
	uint64_t u;
	size_t n;

	UNS_TRY(take_counted(m, &p, &n));
	while (n > 1 && p[n - 1] == (p[n - 2] & 0x80 ? 0xff : 0))
		n--;
	if (n > 8)
		return push(m, uns_pickle_bytes(m, UNS_VALUE_BIGINT, p, n));
	u = uns_le(p, (unsigned)n);
	if (n && n < 8 && p[n - 1] & 0x80)
		u |= UINT64_MAX << (8 * n);
	return push_int(m, (int64_t)u);
}

static int op_binfloat(struct uns_pickle *m)
{
	struct uns_value *v = uns_pickle_value(m, UNS_VALUE_FLOAT);
	uint64_t bits;

	if (!v)
		return no_memory(m);
	UNS_TRY(take_number(m, &bits));
	bits = __builtin_bswap64(bits); /* the one big-endian number in a pickle */
	memcpy(&v->f, &bits, sizeof(v->f));
	return push(m, v);
}

/* -- text and bytes -- */

static uint64_t text_hash(const uint8_t *p, size_t n)
{
	uint64_t h = n, word;

	for (; n >= sizeof(word); p += sizeof(word), n -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 32;
	}
	return h ^ uns_le(p, (unsigned)n);
}

static bool text_is(const struct uns_pickle_recent_text *recent, uint64_t hash, const uint8_t *p, size_t n)
{
	return recent->v && recent->hash == hash && recent->v->n == n && memcmp(recent->v->bytes, p, n) == 0;
}

static int op_unicode(struct uns_pickle *m)
{
	struct uns_pickle_recent_text *recent = NULL;
	struct uns_value *v;
	const uint8_t *p;
	uint64_t hash = 0;
	size_t n;

	UNS_TRY(take_counted(m, &p, &n));
	if (n <= MAX_RECENT_TEXT) {
		hash = text_hash(p, n);
		recent = &m->recent.texts[uns_pickle_slot(m, hash)];
		if (text_is(recent, hash, p, n))
			return push(m, recent->v);
	}
	if (!uns_utf8_valid(p, n, true))
		return damaged(m, "a string is not UTF-8");
	v = uns_pickle_bytes(m, UNS_VALUE_STR, p, n);
	if (recent)
		*recent = (struct uns_pickle_recent_text){ v, hash };
	return push(m, v);
}

static int op_bytes(struct uns_pickle *m)
{
	const uint8_t *p;
	size_t n;

	UNS_TRY(take_counted(m, &p, &n));
	return push(m, uns_pickle_bytes(m, UNS_VALUE_BYTES, p, n));
}

/* Python 2's str: text if it is UTF-8, else bytes. */
static int op_string(struct uns_pickle *m)
{
	const uint8_t *p;
	size_t n;

	UNS_TRY(take_counted(m, &p, &n));
	return push(m, uns_pickle_bytes(m, uns_utf8_valid(p, n, false) ? UNS_VALUE_STR : UNS_VALUE_BYTES, p, n));
}

/* -- tuples -- */

static int push_tuple(struct uns_pickle *m, struct uns_value **items, size_t n)
{
	struct uns_value *v;
	bool again = false;

	if (n == 0 && m->unit)
		return push(m, m->unit);
	v = uns_pickle_tuple(m, items, n, &again);
	if (n == 0)
		m->unit = v;
	return again ? push_again(m, v) : push(m, v);
}

static int op_tuple(struct uns_pickle *m)
{
	struct uns_value **items;
	size_t n;

	UNS_TRY(pop_mark(m, &items, &n));
	return push_tuple(m, items, n);
}

static int op_tuple_of_top(struct uns_pickle *m)
{
	size_t n = m->arg;

	if (above_mark(m) < n)
		return damaged(m, "the stack is empty");
	m->stack.n -= n;
	return push_tuple(m, n ? m->stack.v + m->stack.n : NULL, n);
}

/* -- containers that grow -- */

static int op_empty(struct uns_pickle *m)
{
	return push(m, uns_pickle_value(m, (enum uns_value_kind)m->arg));
}

/* The top of the stack as a container of this kind. If it is an object, it is of a subclass of list
 * or dict, and is turned into that. */
static int top_growing(struct uns_pickle *m, enum uns_value_kind kind, struct uns_value **out)
{
	struct uns_value *v;

	UNS_TRY(top(m, &v));
	if (v->kind == UNS_VALUE_RECORD && !uns_pickle_unrecord(m, v))
		return no_memory(m);
	if (v->kind == UNS_VALUE_OBJECT && kind != UNS_VALUE_SET && v->cls && !v->constant) {
		v->kind = kind;
		v->item = NULL;
	}
	if (v->kind != kind)
		return damaged(m, "items are given to a value that cannot hold them");
	*out = v;
	return 0;
}

/* The first room is exact, since most containers are filled by one opcode; one that has grown since
 * has room for a power of two. */
static size_t room_of(const struct uns_value *v, size_t n)
{
	size_t cap = 1;

	if (!v->grown)
		return n;
	while (cap < n)
		cap *= 2;
	return cap;
}

/* Behind what the container holds: n pointers, for a dict keys and values by turns. */
static int add_items(struct uns_pickle *m, struct uns_value *v, struct uns_value **items, size_t n)
{
	size_t each = v->kind == UNS_VALUE_DICT ? 2 : 1, have = v->n, all = have + n / each;
	const struct uns_value **old = v->item;

	if (n % each)
		return damaged(m, "a key has no value");
	if (n == 0)
		return 0;
	UNS_TRY(charge_more(m, v, n));
	if (all > room_of(v, have)) {
		v->grown = have > 0;
		v->item = uns_pickle_alloc(m, room_of(v, all) * each, sizeof(*v->item));
		if (!v->item)
			return no_memory(m);
		if (have) /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): so many are in `old` */
			memcpy(v->item, old, have * each * sizeof(*old));
	}
	/* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): without items there is no room for any */
	memcpy(v->item + have * each, items, n * sizeof(*items));
	v->n = (uint32_t)all;
	return 0;
}

static int op_append(struct uns_pickle *m)
{
	struct uns_value *item;
	struct uns_value *list;

	UNS_TRY(pop(m, &item));
	UNS_TRY(top_growing(m, UNS_VALUE_LIST, &list));
	return add_items(m, list, &item, 1);
}

static int op_add_all(struct uns_pickle *m)
{
	struct uns_value **items, *v;
	size_t n;

	UNS_TRY(pop_mark(m, &items, &n));
	UNS_TRY(top_growing(m, (enum uns_value_kind)m->arg, &v));
	return add_items(m, v, items, n);
}

static int op_frozenset(struct uns_pickle *m)
{
	struct uns_value *set = uns_pickle_value(m, UNS_VALUE_SET), **items;
	size_t n;

	if (!set)
		return no_memory(m);
	UNS_TRY(pop_mark(m, &items, &n));
	UNS_TRY(add_items(m, set, items, n));
	return push(m, set);
}

static int op_setitem(struct uns_pickle *m)
{
	struct uns_value *pair[2];
	struct uns_value *dict;

	UNS_TRY(pop(m, &pair[1]));
	UNS_TRY(pop(m, &pair[0]));
	UNS_TRY(top_growing(m, UNS_VALUE_DICT, &dict));
	return add_items(m, dict, pair, 2);
}

/* -- names and objects -- */

static int push_global(struct uns_pickle *m, const char *module, size_t module_len, const char *name, size_t name_len)
{
	if (memchr(module, '\0', module_len) || memchr(name, '\0', name_len) ||
	    !uns_utf8_valid(module, module_len, false) || !uns_utf8_valid(name, name_len, false))
		return damaged(m, "a class has no proper name");
	return push(m, uns_pickle_dotted(m, module, module_len, name, name_len));
}

/* The name on top of the stack was pushed by this opcode. */
static int trace_name(struct uns_pickle *m, int64_t memo, bool again)
{
	struct uns_pickle_trace *t = m->trace;

	if (!t)
		return 0;
	if (!uns_pickle_within_limit(m, t->n == t->cap ? 2 * t->cap : 0, sizeof(*t->v)) ||
	    !UNS_ARENA_ROOM(m->arena, t->v, t->n, t->cap))
		return no_memory(m);
	m->stack.v[m->stack.n - 1]->named = true;
	t->v[t->n++] = (struct uns_pickle_site){ .value = m->stack.v[m->stack.n - 1],
						 .at = m->op_at,
						 .len = (size_t)(m->in.p - m->start) - m->op_at,
						 .memo = memo,
						 .again = again };
	return 0;
}

/* Protocol 2's pickler puts a name into the memo right behind the opcode that pushed it, once, and
 * never overwrites it there. A name that results from a call (an inner class) has no site. */
static int trace_put(struct uns_pickle *m, const struct uns_value *v, uint64_t at)
{
	struct uns_pickle_trace *t = m->trace;
	struct uns_pickle_site *last = t && t->n ? &t->v[t->n - 1] : NULL;
	bool *grown;

	if (!t)
		return 0;
	if (at >= m->named_cap) {
		size_t cap = 2 * (size_t)at + 64;

		if (!uns_pickle_within_limit(m, cap, sizeof(*grown)))
			return no_memory(m);
		grown = uns_arena_grow(m->arena, m->named, m->named_cap, cap, sizeof(*grown));
		if (!grown)
			return no_memory(m);
		m->named = grown;
		m->named_cap = cap;
	}
	if (m->named[at]) {
		t->strange = true; /* overwritten, by a name or by something else */
		m->named[at] = false;
	} else if (last && last->value == v && last->at + last->len == m->op_at && last->memo < 0 &&
		   !uns_pickle_memo_has(&m->memo, at)) {
		last->len = (size_t)(m->in.p - m->start) - last->at;
		last->memo = (int64_t)at;
		m->named[at] = true;
	} else if (v->kind == UNS_VALUE_GLOBAL && v->named) {
		t->strange = true;
	}
	return 0;
}

static int op_global(struct uns_pickle *m)
{
	const uint8_t *module, *name;
	size_t module_len, name_len;

	UNS_TRY(take_line(m, &module, &module_len));
	UNS_TRY(take_line(m, &name, &name_len));
	UNS_TRY(push_global(m, (const char *)module, module_len, (const char *)name, name_len));
	return trace_name(m, -1, false);
}

static int op_stack_global(struct uns_pickle *m)
{
	struct uns_value *module, *name;

	UNS_TRY(pop(m, &name));
	UNS_TRY(pop(m, &module));
	if (module->kind != UNS_VALUE_STR || name->kind != UNS_VALUE_STR)
		return damaged(m, "a class has no proper name");
	if (m->trace)
		m->trace->strange = true; /* the memo's name was spelled at another site */
	return push_global(m, module->bytes, module->n, name->bytes, name->n);
}

static int pop_call(struct uns_pickle *m, struct uns_value **callable, struct uns_value **args)
{
	UNS_TRY(pop(m, args));
	UNS_TRY(pop(m, callable));
	if ((*args)->kind != UNS_VALUE_TUPLE)
		return damaged(m, "the arguments of a call are not a tuple");
	return 0;
}

static int op_reduce(struct uns_pickle *m)
{
	struct uns_value *callable, *args, *result;

	UNS_TRY(pop_call(m, &callable, &args));
	result = uns_pickle_reduce(m, callable, args);
	return result && result->constant ? push_again(m, result) : push(m, result);
}

static int op_newobj(struct uns_pickle *m)
{
	struct uns_value *callable, *args;

	UNS_TRY(pop_call(m, &callable, &args));
	return push(m, uns_pickle_object(m, callable, args));
}

/* Keyword arguments, where there are any, follow the others as one dict. */
static int op_newobj_ex(struct uns_pickle *m)
{
	struct uns_value *callable, *args, *kwargs, *all[2];

	UNS_TRY(pop(m, &kwargs));
	UNS_TRY(pop_call(m, &callable, &args));
	if (kwargs->kind != UNS_VALUE_DICT)
		return damaged(m, "the keyword arguments of a call are not a dict");
	if (kwargs->n) {
		all[0] = args;
		all[1] = kwargs;
		UNS_TRY(push_tuple(m, all, 2));
		UNS_TRY(pop(m, &args));
	}
	return push(m, uns_pickle_object(m, callable, args));
}

static int op_build(struct uns_pickle *m)
{
	struct uns_value *state, *object;

	UNS_TRY(pop(m, &state));
	UNS_TRY(top(m, &object));
	if (!object->cls || object->kind == UNS_VALUE_GLOBAL || object->constant)
		return damaged(m, "state is given to a value that is not an object");
	UNS_TRY(charge_more(m, object, uns_value_n_items(state)));
	if (object->kind == UNS_VALUE_RECORD && !uns_pickle_unrecord(m, object))
		return no_memory(m);
	if (!uns_pickle_is_recordable(m, object, state))
		object->state = state;
	else if (!uns_pickle_record(m, object, state))
		return no_memory(m);
	return 0;
}

static int op_binpersid(struct uns_pickle *m)
{
	struct uns_value *id, *object;

	UNS_TRY(pop(m, &id));
	object = uns_pickle_value(m, UNS_VALUE_OBJECT);
	if (!object)
		return no_memory(m);
	object->cls = UNS_PERSISTENT_ID;
	object->object.args = id->kind == UNS_VALUE_TUPLE ? id : NULL;
	return push(m, object);
}

/* -- the memo -- */

/* Picklers number memo entries from 0 (or 1) without gaps, and every entry costs at least a byte, so
 * a number beyond the input's size is damage and not a reason to allocate. */
static int memo_put(struct uns_pickle *m, uint64_t at)
{
	struct uns_value *v, **entry;

	UNS_TRY(top(m, &v));
	if (at > (uint64_t)(m->in.end - m->start))
		return damaged(m, "a memo number is too large");
	UNS_TRY(trace_put(m, v, at));
	m->n_memo += !uns_pickle_memo_has(&m->memo, at);
	uns_pickle_memo_mark_put(&m->memo, at);
	entry = uns_pickle_memo_entry(&m->memo, at);
	if (entry) {
		*entry = v;
		v->fetched = true;
	}
	return 0;
}

/* MEMOIZE's number is how many entries were put before. */
static int op_memoize(struct uns_pickle *m)
{
	if (m->trace)
		m->trace->strange = true;
	return memo_put(m, m->n_memo);
}

static int op_put(struct uns_pickle *m)
{
	uint64_t at;

	UNS_TRY(take_number(m, &at));
	return memo_put(m, at);
}

static int op_get(struct uns_pickle *m)
{
	struct uns_value **entry, *v, *own;
	uint64_t at;

	UNS_TRY(take_number(m, &at));
	entry = uns_pickle_memo_entry(&m->memo, at);
	if (!entry || !*entry)
		return damaged(m, "a memo number was never written");
	v = *entry;
	if (!m->trace || !m->named[at])
		return push_again(m, v);
	own = uns_pickle_value(m, UNS_VALUE_GLOBAL);
	if (!own)
		return no_memory(m);
	own->cls = v->cls;
	UNS_TRY(push(m, own));
	return trace_name(m, (int64_t)at, true);
}

/* -- the beginning and the end -- */

static int op_proto(struct uns_pickle *m)
{
	uint64_t version;

	UNS_TRY(take_number(m, &version));
	if (version < 2 || version > 5)
		return uns_fail(m->err, -ENOTSUP, "pickle protocol %u is not known (expected 2 to 5)",
				(unsigned)version);
	return 0;
}

static int op_frame(struct uns_pickle *m) /* FRAME: only a hint for reading ahead */
{
	uint64_t len;

	if (m->trace)
		m->trace->strange = true; /* a length follows */
	UNS_TRY(take_number(m, &len));
	return len <= uns_span_left(&m->in) ? 0 : damaged(m, "a frame passes the end: truncated?");
}

static int op_stop(struct uns_pickle *m)
{
	if (m->stack.n != 1 || m->n_marks)
		return damaged(m, "it stops with no value, or with several");
	m->done = true;
	return 0;
}

/* What follows an opcode in the pickle: a number has `arg` bytes. */
enum follows {
	NOTHING,
	NUMBER,
	FETCHED, /* the number of a memo entry, which the opcode fetches */
	COUNTED, /* a number, then as many bytes */
	TWO_LINES
};

/* `arg` is, by the handler: how many bytes the number (or the length) behind the opcode has, how many items
 * of the stack it takes, which value it pushes, or which kind of container it is about. */
static const struct {
	int (*run)(struct uns_pickle *m);
	unsigned arg;
	enum follows follows;
} opcode[256] = {
	['('] = { op_mark, 0, NOTHING },
	['.'] = { op_stop, 0, NOTHING },
	['0'] = { op_pop, 0, NOTHING },
	['1'] = { op_pop_mark, 0, NOTHING },
	['2'] = { op_dup, 0, NOTHING },
	['B'] = { op_bytes, 4, COUNTED },
	['C'] = { op_bytes, 1, COUNTED },
	['G'] = { op_binfloat, 8, NUMBER },
	['J'] = { op_int, 4, NUMBER },
	['K'] = { op_int, 1, NUMBER },
	['M'] = { op_int, 2, NUMBER },
	['N'] = { op_none, 0, NOTHING },
	['Q'] = { op_binpersid, 0, NOTHING },
	['R'] = { op_reduce, 0, NOTHING },
	['T'] = { op_string, 4, COUNTED },
	['U'] = { op_string, 1, COUNTED },
	['X'] = { op_unicode, 4, COUNTED },
	[']'] = { op_empty, UNS_VALUE_LIST, NOTHING },
	['a'] = { op_append, 0, NOTHING },
	['b'] = { op_build, 0, NOTHING },
	['c'] = { op_global, 0, TWO_LINES },
	['e'] = { op_add_all, UNS_VALUE_LIST, NOTHING },
	['h'] = { op_get, 1, FETCHED },
	['j'] = { op_get, 4, FETCHED },
	['q'] = { op_put, 1, NUMBER },
	['r'] = { op_put, 4, NUMBER },
	['s'] = { op_setitem, 0, NOTHING },
	['t'] = { op_tuple, 0, NOTHING },
	['u'] = { op_add_all, UNS_VALUE_DICT, NOTHING },
	['}'] = { op_empty, UNS_VALUE_DICT, NOTHING },
	[')'] = { op_tuple_of_top, 0, NOTHING },
	[0x80] = { op_proto, 1, NUMBER },
	[0x81] = { op_newobj, 0, NOTHING },
	[0x85] = { op_tuple_of_top, 1, NOTHING },
	[0x86] = { op_tuple_of_top, 2, NOTHING },
	[0x87] = { op_tuple_of_top, 3, NOTHING },
	[0x88] = { op_bool, true, NOTHING },
	[0x89] = { op_bool, false, NOTHING },
	[0x8a] = { op_long, 1, COUNTED },
	[0x8b] = { op_long, 4, COUNTED },
	[0x8c] = { op_unicode, 1, COUNTED },
	[0x8d] = { op_unicode, 8, COUNTED },
	[0x8e] = { op_bytes, 8, COUNTED },
	[0x8f] = { op_empty, UNS_VALUE_SET, NOTHING },
	[0x90] = { op_add_all, UNS_VALUE_SET, NOTHING },
	[0x91] = { op_frozenset, 0, NOTHING },
	[0x92] = { op_newobj_ex, 0, NOTHING },
	[0x93] = { op_stack_global, 0, NOTHING },
	[0x94] = { op_memoize, 0, NOTHING },
	[0x95] = { op_frame, 8, NUMBER },
	[0x96] = { op_bytes, 8, COUNTED }, /* BYTEARRAY8 */
};

static void pickle_fini(struct uns_pickle *m)
{
	free(m->stack.v);
	uns_pickle_memo_fini(&m->memo);
	free(m->mark);
	free(m->recent.ints);
	free(m->recent.texts);
}

static bool recent_init(struct uns_pickle_recent *r, size_t input_bytes)
{
	r->n = MIN_RECENT;
	while (r->n < MAX_RECENT && r->n < input_bytes / BYTES_PER_RECENT)
		r->n *= 2;
	r->ints = calloc(3 * r->n, sizeof(struct uns_value *));
	r->texts = calloc(r->n, sizeof(*r->texts));
	if (!r->ints || !r->texts)
		return false;
	r->tuples = r->ints + r->n;
	r->sizes = r->tuples + r->n;
	return true;
}

/* Skips the number behind an opcode, and if it is a length, that many bytes. */
static bool skip_number(struct uns_pickle *m, struct uns_span *in, uint8_t op)
{
	const uint8_t *p;
	uint64_t number;

	if (!uns_span_take(in, opcode[op].arg, &p))
		return false;
	if (opcode[op].follows == NUMBER)
		return true;
	number = number_of(p, opcode[op].arg);
	if (opcode[op].follows == COUNTED)
		return uns_span_skip(in, (size_t)number);
	uns_pickle_memo_will_fetch(&m->memo, number);
	return true;
}

static bool skip_line(struct uns_span *in)
{
	const uint8_t *end = memchr(in->p, '\n', uns_span_left(in));

	return end && uns_span_skip(in, (size_t)(end + 1 - in->p));
}

/* Goes through the opcodes once without running any, for the numbers that are fetched from the memo. Ends where
 * running them will end, or fail. */
static void find_fetched(struct uns_pickle *m)
{
	struct uns_span in = m->in;
	bool more = true;
	uint8_t op;

	while (more && uns_take_u8(&in, &op) && opcode[op].run && op != '.') {
		if (opcode[op].follows == TWO_LINES)
			more = skip_line(&in) && skip_line(&in);
		else if (opcode[op].follows != NOTHING)
			more = skip_number(m, &in, op);
	}
}

static int parse(struct uns_pickle *m, struct uns_span *in, const struct uns_value **out)
{
	struct uns_err *err = m->err;
	uint8_t op;

	if (uns_span_left(in) == 0)
		return uns_fail(err, -EBADMSG, "pickle is empty");
	if (uns_span_left(in) > UINT32_MAX)
		return uns_fail(err, -ENOTSUP, "pickle of %zu bytes is too large", uns_span_left(in));
	if (*in->p != 0x80)
		return uns_fail(err, -ENOTSUP,
				"pickle starts with 0x%02x: expected 0x80, which begins protocols 2 to 5", *in->p);
	UNS_TRY_ALLOC(recent_init(&m->recent, uns_span_left(in)) && uns_pickle_memo_init(&m->memo, uns_span_left(in)),
		      err);
	m->in = *in;
	m->start = in->p;
	m->used_before = m->arena->used_bytes;
	m->limit_bytes = uns_parse_budget(uns_span_left(in));
	m->limit_shared = uns_share_budget(uns_span_left(in));
	find_fetched(m);
	UNS_TRY_ALLOC(uns_pickle_memo_make(&m->memo), err);
	while (!m->done) {
		m->op_at = (size_t)(m->in.p - m->start);
		if (!uns_take_u8(&m->in, &op))
			return damaged(m, "it ends without STOP: truncated?");
		if (!opcode[op].run)
			return uns_fail(m->err, -ENOTSUP, "pickle opcode 0x%02x at byte %zu is not known", op,
					m->op_at);
		m->arg = opcode[op].arg;
		UNS_TRY(opcode[op].run(m));
	}
	*out = m->stack.v[0];
	*in = m->in;
	return 0;
}

int uns_pickle_parse_traced(struct uns_span *in, struct uns_arena *arena, const struct uns_value **out,
			    struct uns_pickle_trace *trace, struct uns_err *err)
{
	UNS_CLEANUP(pickle_fini)
	struct uns_pickle m = { .arena = arena, .trace = trace, .err = err };

	return parse(&m, in, out);
}

int uns_pickle_parse_records(struct uns_span *in, struct uns_arena *arena, const struct uns_value **out,
			     struct uns_err *err)
{
	UNS_CLEANUP(pickle_fini)
	struct uns_pickle m = { .arena = arena, .records = true, .err = err };

	return parse(&m, in, out);
}

int uns_pickle_parse(struct uns_span *in, struct uns_arena *arena, const struct uns_value **out, struct uns_err *err)
{
	return uns_pickle_parse_traced(in, arena, out, NULL, err);
}
