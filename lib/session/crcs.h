/* CRCs of torch files found out on purpose. */
#ifndef UNS_SESSION_CRCS_H
#define UNS_SESSION_CRCS_H

#include "session/session.h"

/* All CRCs that a layout of this snapshot shows, and into the store with them. -EINTR when asked to
 * stop. */
int crcs_find(struct unshard *u, struct snapshot *snap, const struct uns_layout *layout,
	      const struct uns_stop *stop, struct uns_err *err);

#endif
