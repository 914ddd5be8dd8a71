/* Temporary credentials of a role for which a token in a file vouches, as Kubernetes gives them to a pod (on EKS: IAM
 * roles for service accounts). AWS's token service has them, or one that does the same. */
#ifndef UNS_OBJECT_WEB_IDENTITY_H
#define UNS_OBJECT_WEB_IDENTITY_H

#include "base/span.h"
#include "object/access_key.h"
#include "object/http.h"

/* By AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_SESSION_NAME; asked at AWS_ENDPOINT_URL_STS,
 * AWS_ENDPOINT_URL, or the region's own. Returns 1 with credentials, 0 where the variables are not set, or fails with a
 * sentence that has no secret in it. One request. */
int uns_role_of_web_identity(struct uns_http *http, struct uns_credentials *out, struct uns_err *err);

#endif
