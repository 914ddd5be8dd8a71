/* Plain values as a protocol 2 pickle that torch.load reads with weights_only=True.
 * The memo is used where classes are given: for their names, and for objects of those that ask for it
 * (`once`). Nothing else in a checkpoint is large enough for sharing to matter. */
#ifndef UNS_WIRE_PICKLE_EMIT_H
#define UNS_WIRE_PICKLE_EMIT_H

#include "base/error.h"
#include "base/span.h"
#include "base/text.h"
#include "wire/dtype.h"
#include "wire/value.h"

/* What a UNS_VALUE_TENSOR leaf points at: a C-contiguous tensor that fills storage `key`.
 *   torch._utils._rebuild_tensor_v2(('storage', torch.FloatStorage, '0', 'cpu', numel),
 *                                   0, size, stride, False, OrderedDict())
 * or, for dtypes without a typed storage, _rebuild_tensor_v3 over an UntypedStorage, whose numel
 * counts bytes. Source: torch 2.13 torch/_utils.py, torch/_tensor.py. */
struct uns_pickle_tensor {
	enum uns_dtype dtype;
	size_t n_dims;
	const uint64_t *dims;
};

/* A class that is written although weights_only=True may refuse it, because a loader needs an object of it. */
struct uns_pickle_class {
	const char *name; /* "module.name" */
	bool called;      /* written as the call cls(*args), as an enum's member is; else made without a call
		      * and then given its state */
	bool once; /* an object that the value tree holds several times is written once, and loads as one object */
};

/* The whole pickle, PROTO to STOP. Storage keys are the leaves' indices in decimal. A subclass of list or dict, other
 * than OrderedDict, is written as a list or dict. -ENOTSUP for an object (or a name of a class or function) that
 * weights_only=True would refuse, naming it, unless it is one of `classes` (ends with a NULL name; NULL = none); also
 * for such a subclass with attributes, which a list or dict cannot have. */
int uns_pickle_emit(const struct uns_value *root, const struct uns_pickle_tensor *tensors, size_t n_tensors,
		    const struct uns_pickle_class *classes, struct uns_text *out, struct uns_err *err);

/* Appends the items of `root`, a dict, to the dict that `front` pickles. front is a pickle without
 * its STOP, and is not looked into. */
int uns_pickle_emit_behind(struct uns_span front, const struct uns_value *root, const struct uns_pickle_tensor *tensors,
			   size_t n_tensors, struct uns_text *out, struct uns_err *err);

#endif
