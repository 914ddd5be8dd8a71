/* wire/pickle.c: what each opcode builds, and that nothing else gets through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "base/budget.h"
#include "base/number.h"
#include "wire/pickle.h"

#define BYTES(text) text, sizeof(text) - 1

static int parse(const void *bytes, size_t len, struct uns_arena *arena, const struct uns_value **out,
		 struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena other = UNS_ARENA_INIT;
	struct uns_span in = uns_span_of(bytes, len), again = in;
	int rc = uns_pickle_parse(&in, arena, out, err);
	struct uns_err err_again = { 0 };
	const struct uns_value *unused;

	assert_true(rc <= 0);
	assert_int_equal(rc, err->code);
	if (rc == 0)
		assert_int_equal(uns_span_left(&in), 0);
	assert_int_equal(uns_pickle_parse_records(&again, &other, &unused, &err_again), rc);
	assert_string_equal(err_again.text, err->text);
	return rc;
}

/* Values as text, near to Python's repr; an object is cls(args)!state. */
static void repr(struct uns_text *t, const struct uns_value *v);

static void repr_items(struct uns_text *t, const char *open, const struct uns_value **v, size_t n, const char *close)
{
	size_t i;

	uns_text_str(t, open);
	for (i = 0; i < n; i++) {
		uns_text_str(t, i ? ", " : "");
		repr(t, v[i]);
	}
	uns_text_str(t, close);
}

static void repr_bytes(struct uns_text *t, const struct uns_value *v)
{
	size_t i;

	for (i = 0; i < v->n; i++)
		uns_text_printf(t, "%02x", (unsigned char)v->bytes[i]);
}

static void repr_dict(struct uns_text *t, const struct uns_value *v)
{
	size_t i;

	uns_text_str(t, "{");
	for (i = 0; i < v->n; i++) {
		uns_text_str(t, i ? ", " : "");
		repr(t, v->pair[i].key);
		uns_text_str(t, ": ");
		repr(t, v->pair[i].value);
	}
	uns_text_str(t, "}");
}

/* As the object that it stands for. */
static void repr_record(struct uns_text *t, const struct uns_value *v)
{
	size_t i;

	assert_int_equal(v->names->n, v->n);
	for (i = 0; i < v->n; i++) {
		uns_text_str(t, i ? ", " : "()!{");
		repr(t, v->names->item[i]);
		uns_text_str(t, ": ");
		repr(t, v->item[i]);
	}
	uns_text_str(t, "}");
}

static void repr(struct uns_text *t, const struct uns_value *v)
{
	char text[UNS_NUMBER_ROOM];

	if (v->cls)
		uns_text_str(t, v->cls);
	switch (v->kind) {
	case UNS_VALUE_NONE:
		uns_text_str(t, "None");
		break;
	case UNS_VALUE_BOOL:
		uns_text_str(t, v->b ? "True" : "False");
		break;
	case UNS_VALUE_INT:
		uns_text_printf(t, "%" PRId64, v->i);
		break;
	case UNS_VALUE_BIGINT:
		uns_text_str(t, "big ");
		repr_bytes(t, v);
		break;
	case UNS_VALUE_FLOAT:
		uns_text_str(t, uns_number_print(text, v->f, 17));
		break;
	case UNS_VALUE_STR:
		assert_int_equal(v->bytes[v->n], 0);
		uns_text_str(t, "'");
		uns_text_add(t, v->bytes, v->n);
		uns_text_str(t, "'");
		break;
	case UNS_VALUE_BYTES:
		uns_text_str(t, "b:");
		repr_bytes(t, v);
		break;
	case UNS_VALUE_LIST:
		repr_items(t, "[", v->item, v->n, "]");
		break;
	case UNS_VALUE_TUPLE:
		repr_items(t, "(", v->item, v->n, ")");
		break;
	case UNS_VALUE_SET:
		repr_items(t, "set{", v->item, v->n, "}");
		break;
	case UNS_VALUE_DICT:
		repr_dict(t, v);
		break;
	case UNS_VALUE_GLOBAL:
		break;
	case UNS_VALUE_TENSOR:
		fail_msg("a parsed pickle holds a tensor to be emitted");
		break;
	case UNS_VALUE_OBJECT:
		if (v->object.args)
			repr(t, v->object.args);
		break;
	case UNS_VALUE_RECORD:
		repr_record(t, v);
		return;
	}
	if (v->state) {
		uns_text_str(t, "!");
		repr(t, v->state);
	}
}

#define P            "\x80\x02"
#define S(len, text) "X" len "\0\0\0" text
#define ORDERED      "ccollections\nOrderedDict\n"
#define OBJECT       "cm\nC\n)\x81}" /* and the dict that is to be its state */
#define A            S("\1", "a")
#define B            S("\1", "b")

static const struct {
	const char *bytes;
	size_t len;
	const char *is;
} good[] = {
	/* scalars */
	{ BYTES(P "N."), "None" },
	{ BYTES(P "\x88."), "True" },
	{ BYTES(P "\x89."), "False" },
	{ BYTES(P "K\xff."), "255" },
	{ BYTES(P "M\xff\xff."), "65535" },
	{ BYTES(P "J\xff\xff\xff\xff."), "-1" },
	{ BYTES(P "\x8a\0."), "0" },
	{ BYTES(P "\x8a\1\xff."), "-1" },
	{ BYTES(P "\x8a\2\xff\0."), "255" },
	{ BYTES(P "\x8a\5\0\0\0\0\1."), "4294967296" },
	{ BYTES(P "\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7f."), "9223372036854775807" },
	{ BYTES(P "\x8a\x8\0\0\0\0\0\0\0\x80."), "-9223372036854775808" },
	{ BYTES(P "\x8a\x9\0\0\0\0\0\0\0\x80\xff."), "-9223372036854775808" },
	{ BYTES(P "\x8a\x9\0\0\0\0\0\0\0\x80\0."), "big 000000000000008000" },
	{ BYTES(P "\x8b\2\0\0\0\0\1."), "256" },
	{ BYTES(P "G\x3f\xf8\0\0\0\0\0\0."), "1.5" },
	{ BYTES(P "G\xff\xf0\0\0\0\0\0\0."), "-inf" },
	/* text and bytes */
	{ BYTES(P S("\2", "ab") "."), "'ab'" },
	{ BYTES(P "\x8c\2\xc3\xa4."), "'\xc3\xa4'" },
	{ BYTES(P "\x8c\3\xed\xa0\x80."), "'\xed\xa0\x80'" }, /* a lone surrogate, as Python writes it */
	{ BYTES(P "\x8d\1\0\0\0\0\0\0\0z."), "'z'" },
	{ BYTES(P "U\2ab."), "'ab'" },
	{ BYTES(P "U\2a\xff."), "b:61ff" },
	{ BYTES(P "T\2\0\0\0ab."), "'ab'" },
	{ BYTES(P "C\2\0\xff."), "b:00ff" },
	{ BYTES(P "B\1\0\0\0a."), "b:61" },
	{ BYTES(P "\x8e\1\0\0\0\0\0\0\0a."), "b:61" },
	{ BYTES("\x80\5\x96\1\0\0\0\0\0\0\0a."), "b:61" },
	/* containers */
	{ BYTES(P ")."), "()" },
	{ BYTES(P "K\1\x85."), "(1)" },
	{ BYTES(P "K\1K\2\x86."), "(1, 2)" },
	{ BYTES(P "K\1K\2K\3\x87."), "(1, 2, 3)" },
	{ BYTES(P "(K\1K\2K\3K\4t."), "(1, 2, 3, 4)" },
	{ BYTES(P "(t."), "()" },
	{ BYTES(P "]."), "[]" },
	{ BYTES(P "]K\1aK\2a(K\3K\4e."), "[1, 2, 3, 4]" },
	{ BYTES(P "](e."), "[]" },
	{ BYTES(P "}K\1K\2s(K\3K\4K\5K\6u."), "{1: 2, 3: 4, 5: 6}" },
	{ BYTES("\x80\4\x8f(K\1K\2\x90."), "set{1, 2}" },
	{ BYTES("\x80\4(K\1K\2\x91."), "set{1, 2}" },
	/* stack and memo */
	{ BYTES(P "K\1K\0020."), "1" },
	{ BYTES(P "K\1(K\2K\0031."), "1" },
	{ BYTES(P "K\1(0."), "1" }, /* POP takes a mark too */
	{ BYTES(P "K\0012\x86."), "(1, 1)" },
	{ BYTES(P "]q\0K\1q\1ah\1a."), "[1, 1]" },
	{ BYTES(P "]r\5\0\0\0j\5\0\0\0\x86."), "([], [])" },
	{ BYTES("\x80\4]\x94K\1\x94"
		"ah\1a."),
	  "[1, 1]" },
	{ BYTES("\x80\4\x95\2\0\0\0\0\0\0\0N."), "None" },
	/* names and objects */
	{ BYTES(P "ctorch\nfloat32\n."), "torch.float32" },
	{ BYTES("\x80\4\x8c\5torch\x8c\7float32\x93."), "torch.float32" },
	{ BYTES(P "cm\nf\nK\1\x85R."), "m.f(1)" },
	{ BYTES(P "cm\nC\n)\x81}K\1K\2sb."), "m.C()!{1: 2}" },
	{ BYTES("\x80\4cm\nC\n)}\x92."), "m.C()" },
	{ BYTES("\x80\4cm\nC\nK\1\x85}K\2K\3s\x92."), "m.C((1), {2: 3})" },
	{ BYTES(P "cm\nC\n)\x81K\1K\2s."), "m.C{1: 2}" },      /* a dict subclass */
	{ BYTES(P "cm\nC\n)\x81K\1aK\2a}b."), "m.C[1, 2]!{}" }, /* a list subclass with state */
	{ BYTES(P "cm\nf\n)R)\x81."), "(computed)()" },
	{ BYTES(P "(K\1K\2tQ."), "(persistent id)(1, 2)" },
	{ BYTES(P S("\1", "k") "Q."), "(persistent id)" },
	{ BYTES(P "cos\nsystem\n" S("\2", "ls") "\x85R."), "os.system('ls')" },
	/* objects with fields: records, if those are asked for */
	{ BYTES(P OBJECT A "K\1sb."), "m.C()!{'a': 1}" },
	{ BYTES(P OBJECT "(" A "K\1" B "K\2ub."), "m.C()!{'a': 1, 'b': 2}" },
	{ BYTES(P "(" OBJECT A "K\1sb" OBJECT A "K\2sb" OBJECT A A "sbt."),
	  "(m.C()!{'a': 1}, m.C()!{'a': 2}, m.C()!{'a': 'a'})" },
	{ BYTES(P OBJECT A OBJECT A "}" B "K\1ss"
				    "bsb."),
	  "m.C()!{'a': m.C()!{'a': {'b': 1}}}" },
	{ BYTES(P OBJECT "(" A "K\1" A "K\2ub."), "m.C()!{'a': 1, 'a': 2}" },
	{ BYTES(P OBJECT "(" A "K\1K\3K\2ub."), "m.C()!{'a': 1, 3: 2}" },
	{ BYTES(P "(" OBJECT A "K\1sq\1bh\1t."), "(m.C()!{'a': 1}, {'a': 1})" },
	{ BYTES(P "(" OBJECT A "K\1sq\1bh\1" B "K\2st."), "(m.C()!{'a': 1, 'b': 2}, {'a': 1, 'b': 2})" },
	{ BYTES(P OBJECT A "K\1sbK\5K\6s."), "m.C{5: 6}!{'a': 1}" },
	{ BYTES(P OBJECT A "K\1sbK\5a."), "m.C[5]!{'a': 1}" },
	{ BYTES(P OBJECT A "K\1sb}" B "K\2sb."), "m.C()!{'b': 2}" },
	{ BYTES(P OBJECT A "K\1sbNb."), "m.C()!None" },
	{ BYTES(P OBJECT A "K\1sbq\1h\1\x86."), "(m.C()!{'a': 1}, m.C()!{'a': 1})" },
	{ BYTES(P OBJECT "(" A "N" A "N" A "N" A "N" A "N" A "N" A "N" A "N" A "Nub."),
	  "m.C()!{'a': None, 'a': None, 'a': None, 'a': None, 'a': None, 'a': None, 'a': None, 'a': None, 'a': None}" },
	{ BYTES(P "cm\nC\nN\x85\x81}" A "K\1sb."), "m.C(None)!{'a': 1}" },
	/* calls that are plain data */
	{ BYTES(P ORDERED ")R(K\1K\2u}b."), "collections.OrderedDict{1: 2}!{}" },
	{ BYTES(P ORDERED "](K\1K\2\x86K\3K\4\x86"
			  "e\x85R."),
	  "collections.OrderedDict{1: 2, 3: 4}" },
	{ BYTES(P ORDERED "]K\1a\x85R."), "collections.OrderedDict([1])" },
	{ BYTES(P ORDERED "]\x85RK\1K\2s."), "collections.OrderedDict{1: 2}" },
	{ BYTES(P "ccollections\ndefaultdict\nc__builtin__\nint\n\x85RK\1K\2s."), "collections.defaultdict{1: 2}" },
	{ BYTES(P "c__builtin__\nset\n]K\1a\x85R."), "set{1}" },
	{ BYTES(P "c__builtin__\nset\n)R."), "set{}" },
	{ BYTES(P "cbuiltins\nfrozenset\n]K\1a\x85R."), "set{1}" },
	{ BYTES(P "c__builtin__\nset\nK\1\x85R."), "__builtin__.set(1)" },
	{ BYTES(P "c_codecs\nencode\n" S("\4", "a\xc3\xbf\x7f") S("\6", "latin1") "\x86R."), "b:61ff7f" },
	{ BYTES(P "c_codecs\nencode\n" S("\2", "\xc4\x80") S("\6", "latin1") "\x86R."),
	  "_codecs.encode('\xc4\x80', 'latin1')" },
	{ BYTES(P "c_codecs\nencode\n" S("\1", "a") S("\5", "rot13") "\x86R."), "_codecs.encode('a', 'rot13')" },
	{ BYTES(P "c__builtin__\nbytes\n)R."), "b:" },
	{ BYTES(P "c__builtin__\nbytearray\nC\1a\x85R."), "b:61" },
	{ BYTES(P "c__builtin__\ngetattr\ncm\nOuter\n" S("\5", "Inner") "\x86R)\x81."), "m.Outer.Inner()" },
	{ BYTES(P "c__builtin__\ngetattr\ncdeepspeed.runtime.zero.config\nZeroStageEnum\n" S("\x9",
											     "gradients") "\x86R."),
	  "deepspeed.runtime.zero.config.ZeroStageEnum(2)" },
	{ BYTES(P "c__builtin__\ngetattr\nctransformers.trainer_utils\nSaveStrategy\n" S("\4", "BEST") "\x86R."),
	  "transformers.trainer_utils.SaveStrategy('best')" },
};

static void test_good(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
		UNS_CLEANUP(uns_text_fini) struct uns_text records = UNS_TEXT_INIT;
		struct uns_span in = uns_span_of(good[i].bytes, good[i].len);
		struct uns_err err = { 0 };
		const struct uns_value *v;

		if (parse(good[i].bytes, good[i].len, &arena, &v, &err) < 0)
			fail_msg("case %zu (%s): %s", i, good[i].is, err.text);
		repr(&text, v);
		assert_string_equal(text.p, good[i].is);
		assert_int_equal(uns_pickle_parse_records(&in, &arena, &v, NULL), 0);
		repr(&records, v);
		assert_string_equal(records.p, good[i].is);
	}
}

static enum uns_value_kind kind_of_object(struct uns_arena *arena, const char *bytes, size_t len)
{
	struct uns_span in = uns_span_of(bytes, len);
	const struct uns_value *v;

	assert_int_equal(uns_pickle_parse_records(&in, arena, &v, NULL), 0);
	return v->kind;
}

/* An object that shares its dict, or has arguments or other keys than names, stays an object. */
static void test_records(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_value *v;
	struct uns_span in;

	(void)state;
	assert_int_equal(kind_of_object(&arena, BYTES(P OBJECT A "K\1sb.")), UNS_VALUE_RECORD);
	assert_int_equal(kind_of_object(&arena, BYTES(P OBJECT A "K\1sq\1b.")), UNS_VALUE_RECORD);
	assert_int_equal(kind_of_object(&arena, BYTES(P OBJECT A "K\1sq\1bh\0010.")), UNS_VALUE_OBJECT);
	assert_int_equal(kind_of_object(&arena, BYTES(P OBJECT "K\1K\1sb.")), UNS_VALUE_OBJECT);
	assert_int_equal(kind_of_object(&arena, BYTES(P OBJECT "b.")), UNS_VALUE_OBJECT);
	in = uns_span_of(BYTES(P OBJECT "(" A "K\1" B "K\2" A "K\3ub."));
	assert_int_equal(uns_pickle_parse_records(&in, &arena, &v, NULL), 0);
	assert_int_equal(uns_value_field(v, "a")->i, 3); /* the last counts, as in a dict */
	assert_int_equal(uns_value_field(v, "b")->i, 2);
	assert_null(uns_value_field(v, "c"));
	in = uns_span_of(BYTES(P "cm\nC\n)\x81q\0}" A "h\0sb.")); /* an object that holds itself */
	assert_int_equal(uns_pickle_parse_records(&in, &arena, &v, NULL), 0);
	assert_ptr_equal(uns_value_field(v, "a"), v);
	assert_false(uns_value_fits(v, 1000, 1000));
}

static const struct {
	const char *bytes;
	size_t len;
	int code;
	const char *says;
} bad[] = {
	{ BYTES(""), -EBADMSG, "empty" },
	{ BYTES("(lp0\n."), -ENOTSUP, "protocols 2 to 5" },
	{ BYTES("\x80\1N."), -ENOTSUP, "protocol 1" },
	{ BYTES("\x80\6N."), -ENOTSUP, "protocol 6" },
	{ BYTES("\x80"), -EBADMSG, "ends inside an opcode" },
	{ BYTES(P), -EBADMSG, "at byte 2: it ends without STOP" },
	{ BYTES(P "N"), -EBADMSG, "ends without STOP" },
	{ BYTES(P "."), -EBADMSG, "it stops with no value, or with several" },
	{ BYTES(P "NN."), -EBADMSG, "it stops with no value, or with several" },
	{ BYTES(P "ctorch\nSize\n)\x85R}b."), -EBADMSG, "state is given" }, /* equal ones are one value */
	{ BYTES(P "ctorch\nSize\n)\x85RNa."), -EBADMSG, "items are given" },
	{ BYTES(P "(N."), -EBADMSG, "it stops with no value, or with several" },
	{ BYTES(P "I1\n."), -ENOTSUP, "opcode 0x49 at byte 2" },
	{ BYTES(P "p0\n."), -ENOTSUP, "opcode 0x70" },
	{ BYTES(P "\x82\1."), -ENOTSUP, "opcode 0x82" }, /* EXT1: a registry that we do not have */
	{ BYTES("\x80\5\x97."), -ENOTSUP, "opcode 0x97" }, /* NEXT_BUFFER: bytes outside */
	{ BYTES(P "J\1\2\3"), -EBADMSG, "ends inside" },
	{ BYTES(P "G\1\2\3"), -EBADMSG, "ends inside" },
	{ BYTES(P "X\4\0\0\0abc"), -EBADMSG, "longer than the rest of the file" },
	{ BYTES(P "\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), -EBADMSG, "longer than the rest of the file" },
	{ BYTES(P "\x8b\xff\xff\xff\xff."), -EBADMSG, "longer than the rest of the file" },
	{ BYTES(P "X\1\0\0\0\xff."), -EBADMSG, "not UTF-8" },
	{ BYTES(P "\x95\xff\0\0\0\0\0\0\0N."), -EBADMSG, "frame passes the end" },
	{ BYTES(P "0."), -EBADMSG, "stack is empty" },
	{ BYTES(P "2."), -EBADMSG, "stack is empty" },
	{ BYTES(P "K\1(\x85."), -EBADMSG, "stack is empty" }, /* not below the mark */
	{ BYTES(P "K\1(a."), -EBADMSG, "stack is empty" },
	{ BYTES(P "t."), -EBADMSG, "no mark" },
	{ BYTES(P "1."), -EBADMSG, "no mark" },
	{ BYTES(P "h\0."), -EBADMSG, "never written" },
	{ BYTES(P "Nq\5h\4."), -EBADMSG, "never written" },
	{ BYTES(P "Nr\xff\xff\xff\xff."), -EBADMSG, "too large" },
	{ BYTES(P "q\0N."), -EBADMSG, "stack is empty" },
	{ BYTES(P "K\1K\2a."), -EBADMSG, "cannot hold them" },
	{ BYTES(P "]K\1K\2s."), -EBADMSG, "cannot hold them" },
	{ BYTES(P "K\1K\2K\3s."), -EBADMSG, "cannot hold them" },
	{ BYTES(P ")K\1a."), -EBADMSG, "cannot hold them" },
	{ BYTES(P "cm\nC\nK\1K\2s."), -EBADMSG, "cannot hold them" },
	{ BYTES(P "}(K\1u."), -EBADMSG, "no value" },
	{ BYTES(P "cm\nf\nK\1R."), -EBADMSG, "not a tuple" },
	{ BYTES(P "cm\nf\n)K\1\x92."), -EBADMSG, "not a dict" },
	{ BYTES(P "}}b."), -EBADMSG, "not an object" },
	{ BYTES(P "cm\nC\n}b."), -EBADMSG, "not an object" },
	{ BYTES(P "K\1}b."), -EBADMSG, "not an object" },
	{ BYTES(P "cm\nf"), -EBADMSG, "ends inside" },
	{ BYTES(P "cm\0x\nf\n."), -EBADMSG, "no proper name" },
	{ BYTES("\x80\4K\1K\2\x93."), -EBADMSG, "no proper name" },
	{ BYTES("\x80\4\x8c\3m\0x\x8c\1f\x93."), -EBADMSG, "no proper name" },
};

static void test_bad(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_err err = { 0 };
		const struct uns_value *v;

		assert_int_equal(parse(bad[i].bytes, bad[i].len, &arena, &v, &err), bad[i].code);
		if (!strstr(err.text, bad[i].says))
			fail_msg("case %zu says '%s', not '%s'", i, err.text, bad[i].says);
	}
}

/* Every proper prefix of a good pickle is refused, and none is read past its end. */
static void test_cut(void **state)
{
	size_t i, len;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		for (len = 0; len < good[i].len; len++) {
			UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
			UNS_CLEANUP(uns_free_p) char *exact = malloc(len ? len : 1);
			struct uns_err err = { 0 };
			const struct uns_value *v;

			assert_non_null(exact);
			memcpy(exact, good[i].bytes, len);
			assert_true(parse(exact, len, &arena, &v, &err) < 0);
		}
}

static void test_behind(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_span in = uns_span_of(BYTES(P "K\1." P "K\2.rest"));
	const struct uns_value *v;

	(void)state;
	assert_int_equal(uns_pickle_parse(&in, &arena, &v, NULL), 0);
	assert_int_equal(v->i, 1);
	assert_int_equal(uns_pickle_parse(&in, &arena, &v, NULL), 0);
	assert_int_equal(v->i, 2);
	assert_int_equal(uns_span_left(&in), 4);
}

static void test_shared_and_cyclic(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	const struct uns_value *v;

	(void)state;
	assert_int_equal(parse(BYTES(P "]q\0h\0a."), &arena, &v, &err), 0);
	assert_ptr_equal(v->item[0], v);
	assert_false(uns_value_fits(v, 1000, 1000));
	/* A set made of a list keeps what the list held then. */
	assert_int_equal(parse(BYTES(P "]q\0K\1ac__builtin__\nset\nh\0\x85Rh\0K\2aK\3a\x87."), &arena, &v, &err), 0);
	assert_int_equal(v->item[0]->n, 3);
	assert_int_equal(v->item[1]->kind, UNS_VALUE_SET);
	assert_int_equal(v->item[1]->n, 1);
	assert_int_equal(v->item[2]->n, 3);
}

static void repeat(struct uns_text *t, const char *bytes, size_t len, size_t n)
{
	while (n--)
		uns_text_add(t, bytes, len);
}

/* Nesting costs no recursion. */
static void test_deep(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	const struct uns_value *v;

	(void)state;
	uns_text_add(&text, BYTES(P));
	repeat(&text, BYTES("]"), 300000);
	repeat(&text, BYTES("a"), 299999);
	uns_text_str(&text, ".");
	assert_int_equal(parse(text.p, text.len, &arena, &v, &err), 0);
	assert_false(uns_value_fits(v, 10000000, 1000));
}

/* Memory beyond a multiple of the input is refused, and soon. */
static void test_memory(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	const struct uns_value *v;

	(void)state;
	uns_text_add(&text, BYTES(P "]("));
	repeat(&text, BYTES("NN\x86"), 10000);
	uns_text_add(&text, BYTES("e\x85q\0" ORDERED "q\1("));
	repeat(&text, BYTES("h\1h\0R"), 100000); /* 16 GB, if every call made its own copy */
	uns_text_add(&text, BYTES("t."));
	assert_int_equal(parse(text.p, text.len, &arena, &v, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "bytes of memory"));
	assert_true(arena.used_bytes < uns_parse_budget(text.len));
}

/* A value of a thousand items may be used a hundred times, but not four hundred: whoever walks the tree
 * meets the items each time. */
static void test_shared_items(void **state)
{
	enum { ITEMS = 1000, FEW = 100, MANY = 400 };
	static const struct part {
		const char *bytes;
		size_t len, times;
	} kinds[][6] = {
#define PART(bytes, times) { bytes, sizeof(bytes) - 1, times }
		{ PART(P "(]q\1(", 1), PART("N", ITEMS), PART("e", 1), PART("h\1", 0), PART("t.", 1) },
		{ PART(P "(}q\1(", 1), PART("NN", ITEMS), PART("u", 1), PART("h\1", 0), PART("t.", 1) },
		{ PART(P "((", 1), PART("N", ITEMS), PART("t", 1), PART("2", 0), PART("t.", 1) },
		{ PART(P "(]q\1", 1), PART("h\1", 0), PART("(", 1), PART("N", ITEMS), PART("et.", 1) },
		{ PART(P "(cm\nC\n)\x81q\1}(", 1), PART("NN", ITEMS), PART("ub", 1), PART("h\1", 0), PART("t.", 1) },
		{ PART(P "(cm\nC\n)\x81q\1", 1), PART("h\1", 0), PART("}(", 1), PART("NN", ITEMS), PART("ubt.", 1) },
#undef PART
	};
	size_t k, i;
	int many;

	(void)state;
	for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (many = 0; many < 2; many++) {
			UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
			UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
			struct uns_err err = { 0 };
			const struct uns_value *v;

			for (i = 0; kinds[k][i].bytes; i++)
				repeat(&text, kinds[k][i].bytes, kinds[k][i].len,
				       kinds[k][i].times ? kinds[k][i].times
				       : many            ? MANY
							 : FEW);
			assert_int_equal(parse(text.p, text.len, &arena, &v, &err), many ? -ENOTSUP : 0);
			assert_true(!many || strstr(err.text, "uses the same items"));
		}
}

/* Texts that were made lately are remembered in a few places, and many share each: equal ones in a row are one value,
 * any other is itself. */
static void test_equal_texts(void **state)
{
	enum { TEXTS = 300, ROUNDS = 2, ALL = 2 * TEXTS * ROUNDS };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	const struct uns_value *v;
	char expected[8];
	unsigned i;

	(void)state;
	repeat(&text, BYTES(P "("), 1);
	for (i = 0; i < ALL; i++)
		uns_text_printf(&text, "\x8c\4t%03u", i / 2 % TEXTS);
	repeat(&text, BYTES("t."), 1);
	assert_int_equal(parse(text.p, text.len, &arena, &v, &err), 0);
	assert_int_equal(v->n, ALL);
	for (i = 0; i < ALL; i += 2) {
		snprintf(expected, sizeof(expected), "t%03u", i / 2 % TEXTS);
		assert_string_equal(v->item[i]->bytes, expected);
		assert_ptr_equal(v->item[i], v->item[i + 1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),         cmocka_unit_test(test_records),
		cmocka_unit_test(test_bad),          cmocka_unit_test(test_cut),
		cmocka_unit_test(test_behind),       cmocka_unit_test(test_shared_and_cyclic),
		cmocka_unit_test(test_deep),         cmocka_unit_test(test_memory),
		cmocka_unit_test(test_shared_items), cmocka_unit_test(test_equal_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
