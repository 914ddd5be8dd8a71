/* A library that was built without libcurl's headers, or with -DUNSHARD_S3=OFF. */
#include "object/http.h"

int uns_http_new(struct uns_http **out, struct uns_err *err)
{
	(void)out;
	return uns_fail(err, -ENOTSUP,
			"this unshard was built without access to object stores: build it with libcurl's headers "
			"(-DUNSHARD_S3=ON)");
}

void uns_http_free(struct uns_http *http)
{
	(void)http;
}

int uns_http_do(struct uns_http *http, const struct uns_http_request *request, struct uns_http_answer *answer,
		struct uns_err *err)
{
	(void)http, (void)request, (void)answer;
	return uns_fail(err, -ENOTSUP, "this unshard was built without access to object stores");
}
