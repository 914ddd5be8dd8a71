/* Which tensors of a DCP directory are plain: their items hold nothing but their elements. `.metadata` does not
 * record subclasses of torch.Tensor, and a subclass's bytes may mean anything (int8 with scales,
 * 8-bit optimizer states, a conjugated tensor). The class is in the item's pickle. Private to dcp/.
 *
 * Few items are read, whatever the size of the model: of tensors that are named alike but for numbers
 * (layers.0.w, layers.1.w), with chunks of one dtype and shape in items of one length, one item is read for all. A
 * class's name makes a longer item: torch.save pads to 64 bytes, and the call that rebuilds a subclass takes more.
 * Complex tensors, whose conjugate bit takes less, and compressed items are read one by one. */
#ifndef UNS_DCP_PLAIN_H
#define UNS_DCP_PLAIN_H

#include "base/alike.h"
#include "base/map.h"
#include "base/text.h"
#include "dcp/item.h"

struct uns_dcp_plain {
	struct uns_catalog *cat;
	struct uns_dcp_reader *reader;
	const char *where; /* the directory, for findings */
	struct uns_arena scratch;
	/* Tensors that look alike -> struct look, which holds what was found in one of them. */
	struct uns_map by_look;
	struct uns_map refused; /* scope and sentence -> struct refused */
	struct uns_text text; /* what the tensor at hand has in common with others */
	/* The same of the tensor that was judged last of each of a few sets of keys, without writing it out. */
	struct uns_alike alike;
	struct uns_dcp_judged {
		const struct look *look; /* NULL = none was judged */
		enum uns_dtype dtype;
		uint64_t length_bytes;
		const struct uns_box *box;
	} judged[UNS_ALIKE_KEPT];
};

/* Begins. `where` must live in the catalog's arena. */
void uns_dcp_plain_init(struct uns_dcp_plain *plain, struct uns_catalog *cat, struct uns_dcp_reader *reader,
			const char *where);
void uns_dcp_plain_fini(struct uns_dcp_plain *plain);

/* Looks at the catalog's last tensor, which must have all its pieces. If it is not plain, it is refused within this
 * scope. Does nothing if the item is missing or cannot be read: that is reported when the tensor is read. */
int uns_dcp_plain_judge(struct uns_dcp_plain *plain, enum uns_scope scope, struct uns_err *err);

/* Adds one finding to the catalog for each class of tensors that was refused, and each scope. */
int uns_dcp_plain_finish(struct uns_dcp_plain *plain, struct uns_err *err);

#endif
