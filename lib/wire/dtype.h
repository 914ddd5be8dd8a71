/* Element types: one table for every spelling the field uses. */
#ifndef UNS_WIRE_DTYPE_H
#define UNS_WIRE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Dimensions of a tensor that we handle; a tensor with more is refused with -ENOTSUP. */
enum { UNS_MAX_DIMS = 8 };

/* In the order of safetensors' enum: save_pretrained sorts tensors by this, widest first
 * (source: safetensors 0.8 `Dtype`; the order of every type that torch can save was observed on
 * save_file's output). Its F4 and F6 types are left out: their elements are not whole bytes. */
enum uns_dtype {
	UNS_BOOL,
	UNS_U8,
	UNS_I8,
	UNS_F8_E5M2,
	UNS_F8_E4M3,
	UNS_F8_E8M0,
	UNS_F8_E4M3FNUZ,
	UNS_F8_E5M2FNUZ,
	UNS_I16,
	UNS_U16,
	UNS_F16,
	UNS_BF16,
	UNS_I32,
	UNS_U32,
	UNS_F32,
	UNS_C64,
	UNS_F64,
	UNS_I64,
	UNS_U64,
	UNS_C128,
	UNS_N_DTYPES,
	UNS_DTYPE_NONE = UNS_N_DTYPES,
};

struct uns_dtype_info {
	const char *safetensors; /* "BF16"; NULL where safetensors has none */
	const char *torch;       /* "bfloat16", as in torch.bfloat16 */
	const char *storage;     /* "BFloat16Storage"; NULL where torch has no typed storage */
	uint8_t size_bytes;
	bool is_float; /* real floating point: what a dtype cast touches */
};

/* Never NULL: what is out of range is described as "(unknown)" with size 0. */
const struct uns_dtype_info *uns_dtype_info(enum uns_dtype t);
#define uns_dtype_size(t) (uns_dtype_info(t)->size_bytes)

/* The element at `bytes` as a number, if the type is one that optimizers count steps in: F32, F64, I32, I64. False for
 * all others. *out of an I64 is rounded above 2^53. */
bool uns_dtype_counts(enum uns_dtype t);
bool uns_dtype_number(enum uns_dtype t, const uint8_t *bytes, double *out);

/* UNS_DTYPE_NONE when the name is unknown. len = bytes of the name. torch's names may come with their
 * module, as pickles hold them ("torch.bfloat16"). */
enum uns_dtype uns_dtype_of_safetensors(const char *name, size_t len);
enum uns_dtype uns_dtype_of_torch(const char *name);   /* "bfloat16" */
enum uns_dtype uns_dtype_of_storage(const char *name); /* "BFloat16Storage" */

#endif
