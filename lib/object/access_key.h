/* An access key and, of a session, its token. */
#ifndef UNS_OBJECT_ACCESS_KEY_H
#define UNS_OBJECT_ACCESS_KEY_H

#include <stdint.h>

struct uns_credentials {
	char *id, *secret; /* NULL = none were found */
	char *token;       /* of a session; NULL = none */
	int64_t expires_s; /* Unix time; 0 = never */
};

/* Overwrites them, too. */
void uns_credentials_fini(struct uns_credentials *c);

#endif
