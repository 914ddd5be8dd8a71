/* What unshard_tensor_read is made of, for functions that read a tensor in parts. */
#ifndef UNS_TENSORS_TENSORS_H
#define UNS_TENSORS_TENSORS_H

#include "base/error.h"
#include "model/box.h"
#include "model/catalog.h"
#include "unshard.h"

/* unshard_tensors_open of the view "weights", but under published names also where a directory's files have those that
 * the model has in memory: experts that are one tensor there are one tensor each. */
int tensors_open_published(struct unshard *u, const char *checkpoint, unshard_tensors **out, struct uns_err *err);

/* A box of one tensor of a list, as some dtype. */
struct tensor_box {
	const unshard_tensors *list; /* borrowed */
	size_t i;
	struct uns_box box;
	enum unshard_dtype dtype;
	uint64_t size_bytes; /* in that dtype */
};

/* Check what a program asks for, as unshard_tensor_read does. size_bytes: what the program takes for the size of the
 * box. */
int tensor_box_take(const unshard_tensors *list, size_t i, const uint64_t *lo, const uint64_t *len,
		    enum unshard_dtype dtype, uint64_t size_bytes, struct tensor_box *out, struct uns_err *err);

/* Its size_bytes bytes, in C order without gaps. Any thread. */
int tensor_box_read(const struct tensor_box *b, enum unshard_way way, void *buf, struct uns_err *err);

/* Elements of one tensor that follow each other in C order, [first, first + n), in its own dtype, by way of the page
 * cache. Fails as unshard_tensor_read, but for the proof that the tensor is complete, which tensor_check makes once. */
int tensor_check(const unshard_tensors *list, size_t i, struct uns_err *err);
int tensor_stretch_read(const unshard_tensors *list, size_t i, uint64_t first, uint64_t n, void *buf,
			struct uns_err *err);

/* What it is in the catalog, and the catalog; they live as long as the list. */
const struct uns_tensor *tensor_in_catalog(const unshard_tensors *list, size_t i);
const struct uns_catalog *tensors_catalog(const unshard_tensors *list);

#endif
