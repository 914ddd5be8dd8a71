/* A sealed catalog as bytes and back, so that metadata need not be parsed again. The bytes are those of one build of
 * this program on one machine, and yet are not trusted: everything is checked as if a format had just read it. */
#ifndef UNS_MODEL_CATALOG_PACK_H
#define UNS_MODEL_CATALOG_PACK_H

#include "base/span.h"
#include "base/text.h"
#include "model/catalog.h"

/* To be changed with every change of what is written. */
enum { UNS_CATALOG_PACK_VERSION = 22 };

/* Append the catalog, all of whose files lie below `root`. -ENOTSUP when it holds what cannot be
 * packed (a value that is too large or holds itself, files of another root). */
int uns_catalog_pack(const struct uns_catalog *cat, const struct uns_root *root, struct uns_text *out,
		     struct uns_err *err);

/* Fill and seal a new catalog. Every file is stat'ed, none is read. -EBADMSG not such bytes, -ESTALE a
 * file is not what it was; `cat` is then of no use but to be freed. */
int uns_catalog_unpack(struct uns_span in, const struct uns_root *root, struct uns_catalog *cat, struct uns_err *err);

/* The same for every machine and every place of the checkpoint: paths are as its own directory sees them, and of files
 * size and mtime count alone. -ENOTSUP too when a text of it names the place. */
int uns_catalog_pack_anywhere(const struct uns_catalog *cat, const struct uns_root *root, struct uns_text *out,
			      struct uns_err *err);
/* -EBADMSG too when a piece would end behind its file, or has none. */
int uns_catalog_unpack_anywhere(struct uns_span in, const struct uns_root *root, struct uns_catalog *cat,
				struct uns_err *err);

#endif
