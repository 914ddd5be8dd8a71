/* The access key of requests, found where AWS's own programs look for it, in this order. The first that has one counts.
 *
 *   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, of a session, AWS_SESSION_TOKEN
 *   2. the role that a web identity may have (web_identity.h)
 *   3. the profile (profile.h); one that gets its keys by other programs is refused by name
 *   4. the role of a container: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI
 *   5. the role of the machine: the metadata service of EC2, version 2 (IMDSv2)
 *
 * Without any, requests are not signed, as public buckets allow. No secret is in a message.
 *
 * Threads: any number. */
#ifndef UNS_OBJECT_CREDENTIALS_H
#define UNS_OBJECT_CREDENTIALS_H

#include "object/access_key.h"
#include "object/http.h"

struct uns_credential_source;

/* `http` is borrowed. */
int uns_credential_source_new(struct uns_http *http, struct uns_credential_source **out, struct uns_err *err);
void uns_credential_source_free(struct uns_credential_source *source);

/* A copy of those that are good for some minutes; those of a role are asked for again before. */
int uns_credentials_get(struct uns_credential_source *source, struct uns_credentials *out, struct uns_err *err);
/* A store did not take them: they are looked for again when they are next wanted. */
void uns_credentials_refused(struct uns_credential_source *source);

#endif
