/* Temporary credentials of the role that a container or a machine has, from services that are on it or beside it. Both
 * return 1 with credentials, 0 where there is no such role, or fail with a sentence that has no secret in it. */
#ifndef UNS_OBJECT_ROLES_H
#define UNS_OBJECT_ROLES_H

#include "base/span.h"
#include "object/access_key.h"
#include "object/http.h"

/* AWS_CONTAINER_CREDENTIALS_RELATIVE_URI (ECS), or AWS_CONTAINER_CREDENTIALS_FULL_URI with the token that
 * AWS_CONTAINER_AUTHORIZATION_TOKEN has, or the file that ..._TOKEN_FILE names (EKS Pod Identity). */
int uns_role_of_container(struct uns_http *http, struct uns_credentials *out, struct uns_err *err);

/* The metadata service of EC2, at AWS_EC2_METADATA_SERVICE_ENDPOINT or http://169.254.169.254, by its second version;
 * not where AWS_EC2_METADATA_DISABLED is true. A machine without the service costs a second. */
int uns_role_of_machine(struct uns_http *http, struct uns_credentials *out, struct uns_err *err);

/* The answer of both, {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": "2013-05-24T00:00:00Z"}.
 * -EBADMSG. */
int uns_role_parse(struct uns_span json, struct uns_credentials *out, struct uns_err *err);

#endif
