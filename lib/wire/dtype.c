/* The table of element types. The only place that spells them; knows no container. */
#include "wire/dtype.h"

#include <string.h>

#include "base/path.h"
#include "base/span.h"

static const struct uns_dtype_info table[UNS_N_DTYPES + 1] = {
	[UNS_BOOL] = { "BOOL", "bool", "BoolStorage", 1, false },
	[UNS_U8] = { "U8", "uint8", "ByteStorage", 1, false },
	[UNS_I8] = { "I8", "int8", "CharStorage", 1, false },
	[UNS_F8_E5M2] = { "F8_E5M2", "float8_e5m2", NULL, 1, true },
	[UNS_F8_E4M3] = { "F8_E4M3", "float8_e4m3fn", NULL, 1, true },
	[UNS_F8_E8M0] = { "F8_E8M0", "float8_e8m0fnu", NULL, 1, true },
	[UNS_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", "float8_e4m3fnuz", NULL, 1, true },
	[UNS_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", "float8_e5m2fnuz", NULL, 1, true },
	[UNS_I16] = { "I16", "int16", "ShortStorage", 2, false },
	[UNS_U16] = { "U16", "uint16", NULL, 2, false },
	[UNS_F16] = { "F16", "float16", "HalfStorage", 2, true },
	[UNS_BF16] = { "BF16", "bfloat16", "BFloat16Storage", 2, true },
	[UNS_I32] = { "I32", "int32", "IntStorage", 4, false },
	[UNS_U32] = { "U32", "uint32", NULL, 4, false },
	[UNS_F32] = { "F32", "float32", "FloatStorage", 4, true },
	[UNS_C64] = { "C64", "complex64", "ComplexFloatStorage", 8, false },
	[UNS_F64] = { "F64", "float64", "DoubleStorage", 8, true },
	[UNS_I64] = { "I64", "int64", "LongStorage", 8, false },
	[UNS_U64] = { "U64", "uint64", NULL, 8, false },
	[UNS_C128] = { NULL, "complex128", "ComplexDoubleStorage", 16, false },
	[UNS_DTYPE_NONE] = { NULL, "(unknown)", NULL, 0, false },
};

const struct uns_dtype_info *uns_dtype_info(enum uns_dtype t)
{
	return &table[(unsigned)t < UNS_N_DTYPES ? t : UNS_DTYPE_NONE];
}

bool uns_dtype_counts(enum uns_dtype t)
{
	return t == UNS_F32 || t == UNS_F64 || t == UNS_I32 || t == UNS_I64;
}

bool uns_dtype_number(enum uns_dtype t, const uint8_t *bytes, double *out)
{
	const uint64_t bits = uns_dtype_counts(t) ? uns_le(bytes, uns_dtype_size(t)) : 0;
	const uint32_t low = (uint32_t)bits;
	float single;

	memcpy(&single, &low, sizeof(single));
	memcpy(out, &bits, sizeof(*out));
	if (t == UNS_F32)
		*out = (double)single;
	else if (t != UNS_F64)
		*out = t == UNS_I32 ? (double)(int32_t)low : (double)(int64_t)bits;
	return uns_dtype_counts(t);
}

enum uns_dtype uns_dtype_of_safetensors(const char *name, size_t len)
{
	unsigned t;

	for (t = 0; t < UNS_N_DTYPES; t++)
		if (table[t].safetensors && strlen(table[t].safetensors) == len &&
		    memcmp(table[t].safetensors, name, len) == 0)
			break;
	return (enum uns_dtype)t;
}

static const char *without_module(const char *name)
{
	return uns_str_starts(name, "torch.") ? name + strlen("torch.") : name;
}

enum uns_dtype uns_dtype_of_torch(const char *name)
{
	const char *bare = without_module(name);
	unsigned t;

	for (t = 0; t < UNS_N_DTYPES; t++)
		if (strcmp(table[t].torch, bare) == 0)
			break;
	return (enum uns_dtype)t;
}

enum uns_dtype uns_dtype_of_storage(const char *name)
{
	const char *bare = without_module(name);
	unsigned t;

	for (t = 0; t < UNS_N_DTYPES; t++)
		if (table[t].storage && strcmp(table[t].storage, bare) == 0)
			break;
	return (enum uns_dtype)t;
}
