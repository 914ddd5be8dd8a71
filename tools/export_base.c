/* Asks unshard_check_against, and keeps its problems about the base model. */
#include "export_base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base_model.h"
#include "text.h"

struct problems {
	char *first;
	size_t n;
};

static int visit(void *ctx, const struct unshard_finding *f)
{
	struct problems *p = ctx;

	if (f->severity != UNSHARD_PROBLEM || strcmp(f->check, "base") != 0)
		return 0;
	return p->n++ || (p->first = strdup(f->text)) ? 0 : -ENOMEM;
}

/* The directory of -o model=DIR; NULL = it was not given, or for single runs. */
static const char *model_dir(const struct options *o)
{
	return o->model.n == 1 && !strchr(o->model.v[0], '=') ? o->model.v[0] : NULL;
}

static bool has_weights(unshard *base, const char *inside)
{
	unshard_tensors *list;

	if (unshard_tensors_open(base, inside, "weights", &list, NULL) < 0)
		return false;
	unshard_tensors_close(list);
	return true;
}

static char *reason_of(const struct problems *p)
{
	char *why;

	if (asprintf(&why, "compared with the base model: %s%s; --no-base exports it as it is", p->first,
		     p->n > 1 ? ", and more (`unshard check --base` lists all)" : "") < 0)
		return NULL;
	return why;
}

static int compare(unshard *u, const char *path, unshard *base, const char *inside, char **why)
{
	struct problems problems = { 0 };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &problems, .finding = visit };
	struct unshard_error err = { 0 };
	int code = unshard_check_against(u, path, base, inside, 0, &calls, NULL, &err);

	if (code < 0)
		*why = strdup(err.text);
	else if (problems.n)
		*why = reason_of(&problems);
	free(problems.first);
	return code < 0 ? code : problems.n > 0;
}

int export_base_compare(struct arguments *a, unshard *u, const char *path, const char *named, char **why)
{
	const char *base = named ? named : model_dir(&a->options), *inside;
	struct arguments of_base = *a;
	unshard *opened = NULL;
	char *dir = base ? base_find(base, &inside) : NULL;
	int code = 0;

	*why = NULL;
	if (!dir && !named)
		return 0;
	if (!dir) {
		*why = strdup("no such directory, and no model of this name in the Hugging Face cache");
		return -ENOENT;
	}
	if (arguments_open(&of_base, dir, &opened) >= 0) {
		*why = strdup("the base model cannot be opened");
		code = -EIO;
	} else if (named || has_weights(opened, inside)) {
		code = compare(u, path, opened, inside, why);
	}
	a->log = of_base.log;
	unshard_close(opened);
	free(dir);
	return code;
}
