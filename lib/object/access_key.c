#include "object/access_key.h"

#include <stdlib.h>
#include <string.h>

static void forget(char **text)
{
	if (*text)
		explicit_bzero(*text, strlen(*text));
	free(*text);
	*text = NULL;
}

void uns_credentials_fini(struct uns_credentials *c)
{
	forget(&c->id);
	forget(&c->secret);
	forget(&c->token);
}
