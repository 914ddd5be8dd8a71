/* Names: of the version, and of unshard.h's enumerators. */
#include "unshard.h"

#include "wire/dtype.h"

#define NAME_OF(names, i) ((size_t)(i) < sizeof(names) / sizeof((names)[0]) ? (names)[(size_t)(i)] : NULL)

_Static_assert((int)UNSHARD_BOOL == UNS_BOOL && (int)UNSHARD_U8 == UNS_U8 && (int)UNSHARD_I8 == UNS_I8 &&
		       (int)UNSHARD_F8_E5M2 == UNS_F8_E5M2 && (int)UNSHARD_F8_E4M3 == UNS_F8_E4M3 &&
		       (int)UNSHARD_F8_E8M0 == UNS_F8_E8M0 && (int)UNSHARD_F8_E4M3FNUZ == UNS_F8_E4M3FNUZ &&
		       (int)UNSHARD_F8_E5M2FNUZ == UNS_F8_E5M2FNUZ && (int)UNSHARD_I16 == UNS_I16 &&
		       (int)UNSHARD_U16 == UNS_U16 && (int)UNSHARD_F16 == UNS_F16 && (int)UNSHARD_BF16 == UNS_BF16 &&
		       (int)UNSHARD_I32 == UNS_I32 && (int)UNSHARD_U32 == UNS_U32 && (int)UNSHARD_F32 == UNS_F32 &&
		       (int)UNSHARD_C64 == UNS_C64 && (int)UNSHARD_F64 == UNS_F64 && (int)UNSHARD_I64 == UNS_I64 &&
		       (int)UNSHARD_U64 == UNS_U64 && (int)UNSHARD_C128 == UNS_C128 && UNS_C128 + 1 == UNS_N_DTYPES,
	       "unshard.h's types are wire/dtype.h's");

const char *unshard_dtype_name(enum unshard_dtype dtype)
{
	return unshard_dtype_size(dtype) ? uns_dtype_info((enum uns_dtype)dtype)->torch : NULL;
}

size_t unshard_dtype_size(enum unshard_dtype dtype)
{
	return dtype >= 0 && dtype <= UNSHARD_C128 ? uns_dtype_size((enum uns_dtype)dtype) : 0;
}

const char *unshard_role_name(enum unshard_role role)
{
	static const char *const names[] = {
		[UNSHARD_WEIGHT] = "weight",
		[UNSHARD_BUFFER] = "buffer",
		[UNSHARD_MASTER] = "master",
		[UNSHARD_EXP_AVG] = "exp_avg",
		[UNSHARD_EXP_AVG_SQ] = "exp_avg_sq",
		[UNSHARD_STEP] = "step",
		[UNSHARD_OPTIM_OTHER] = "optimizer state",
		[UNSHARD_OTHER] = "other",
	};

	return NAME_OF(names, role);
}

const char *unshard_state_name(enum unshard_state state)
{
	static const char *const names[] = {
		[UNSHARD_OK] = "ok",
		[UNSHARD_SAVING] = "saving",
		[UNSHARD_DAMAGED] = "damaged",
		[UNSHARD_UNSUPPORTED] = "unsupported",
		[UNSHARD_UNREADABLE] = "unreadable",
	};

	return NAME_OF(names, state);
}

const char *unshard_scope_name(enum unshard_scope scope)
{
	static const char *const names[] = {
		[UNSHARD_SCOPE_NOTHING] = "note",        [UNSHARD_SCOPE_WEIGHTS] = "weights",
		[UNSHARD_SCOPE_OPTIMIZER] = "optimizer", [UNSHARD_SCOPE_ALL] = "all",
		[UNSHARD_SCOPE_SHARDED] = "sharded",
	};

	return NAME_OF(names, scope);
}

const char *unshard_change_name(enum unshard_change_kind kind)
{
	static const char *const names[] = {
		[UNSHARD_CHANGE_DTYPE] = "dtype",           [UNSHARD_CHANGE_STALE] = "stale",
		[UNSHARD_CHANGE_TRACKER] = "tracker",       [UNSHARD_CHANGE_LEFT_OUT] = "left_out",
		[UNSHARD_CHANGE_UNREADABLE] = "unreadable", [UNSHARD_CHANGE_TRAINER_STATE] = "trainer_state",
	};

	return NAME_OF(names, kind);
}

const char *unshard_seal_state_name(enum unshard_seal_state state)
{
	static const char *const names[] = {
		[UNSHARD_SEALED] = "sealed",        [UNSHARD_SEALED_BEFORE] = "sealed before",
		[UNSHARD_SEAL_DIFFERS] = "differs", [UNSHARD_SEAL_SAVING] = "saving",
		[UNSHARD_SEAL_REFUSED] = "refused",
	};

	return NAME_OF(names, state);
}

const char *unshard_version(void)
{
	return UNSHARD_VERSION;
}

const char *unshard_diff_name(enum unshard_diff_kind kind)
{
	static const char *const names[] = {
		[UNSHARD_DIFF_EQUAL] = "equal",   [UNSHARD_DIFF_WITHIN] = "within", [UNSHARD_DIFF_DTYPE] = "dtype",
		[UNSHARD_DIFF_VALUES] = "values", [UNSHARD_DIFF_SHAPE] = "shape",   [UNSHARD_DIFF_ONLY_A] = "only_a",
		[UNSHARD_DIFF_ONLY_B] = "only_b", [UNSHARD_DIFF_TIED] = "tied",
	};

	return NAME_OF(names, kind);
}

const char *unshard_group_name(enum unshard_group group)
{
	static const char *const names[] = {
		[UNSHARD_GROUP_ALL] = "all",
		[UNSHARD_GROUP_LAYER] = "layer",
		[UNSHARD_GROUP_EXPERT] = "expert",
	};

	return NAME_OF(names, group);
}
