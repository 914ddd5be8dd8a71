/* Owner, mode and time of the files that views make, out of those of their sources. */
#ifndef UNS_SESSION_ATTRIBUTES_H
#define UNS_SESSION_ATTRIBUTES_H

#include "session/snapshot.h"

/* What the checkpoint's metadata demands of whoever reads something that was made of it. Its owner and group
 * are those that all of the checkpoint's files have, else those of its directory. */
int attributes_base(const struct uns_catalog *cat, const struct place *place,
		    struct uns_access *out, struct uns_err *err);

/* Of one file of a view's tree. base: attributes_base. O(pieces of the file). */
struct vattr attributes_of(const struct uns_catalog *cat, const struct uns_vfile *file,
			   const struct place *place, const struct uns_access *base);

#endif
