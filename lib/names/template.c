/* Fills and matches templates; keeps lists of named tensors. */
#include "names/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/number.h"
#include "base/path.h"

const char *uns_template_fill(char out[UNS_TEMPLATE_NAME], const char *before, const char *template, int64_t layer,
			      int64_t expert)
{
	size_t n = strnlen(before, UNS_TEMPLATE_NAME - 1);
	int64_t number;

	memcpy(out, before, n);

	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): every row of a table has both names */
	for (; *template; template ++) {
		number = *template == '*' ? layer : expert;
		if (*template != '*' && *template != '#')
			out[n++] = *template;
		else if (number >= 0)
			n += uns_number_digits(out + n, (uint64_t)number);
		else
			template ++; /* the number's dot */
	}
	out[n] = '\0';
	return out;
}

bool uns_name_ends(const char *name, const char *components)
{
	const size_t n = strlen(name), m = strlen(components);

	return uns_str_ends(name, components) && (n == m || name[n - m - 1] == '.');
}

bool uns_template_ends(const char *name, const char *template, size_t *kept, uint64_t *expert)
{
	const size_t before = strcspn(template, "#");
	const bool numbered = template[before] == '#';
	const char *after = template + before + numbered;
	size_t n, digit;

	*expert = 0;
	if (!numbered) {
		*kept = strlen(name) - strlen(template);
		return uns_name_ends(name, template);
	}
	if (!uns_str_ends(name, after))
		return false;
	n = digit = strlen(name) - strlen(after);
	while (digit > 0 && name[digit - 1] >= '0' && name[digit - 1] <= '9')
		digit--;
	if (digit == n || n - digit > 9 || (n - digit > 1 && name[digit] == '0') || digit < before ||
	    memcmp(name + digit - before, template, before) != 0)
		return false;
	*kept = digit - before;
	for (; digit < n; digit++)
		*expert = *expert * 10 + (uint64_t)(name[digit] - '0');
	return *kept == 0 || name[*kept - 1] == '.';
}

const char *uns_strip_name(const char *prefix, const char *name)
{
	size_t n = strlen(prefix);

	return strncmp(name, prefix, n) == 0 && name[n] ? name + n : name;
}

int uns_strip_choose(const char *strip, const char *const *names, size_t n, struct uns_vtree *out, const char **prefix,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	const char *name = NULL;
	void *twice = NULL;
	size_t i;

	*prefix = strip ? strip : "";
	for (i = 0; **prefix && i < n && !twice; i++) {
		name = uns_strip_name(*prefix, names[i]);
		UNS_TRY_ALLOC(uns_map_put(&seen, name, (void *)names[i], &twice), err);
	}
	if (!twice)
		return 0;
	UNS_TRY(uns_vtree_note(out, err, "strip=%s: two tensors would be called %s, so nothing is stripped", *prefix,
			       name));
	*prefix = "";
	return 0;
}

void uns_name_list_fini(struct uns_name_list *list)
{
	free(list->v);
}

int uns_name_list_add(struct uns_name_list *list, const struct uns_named_tensor *t, struct uns_err *err)
{
	UNS_TRY_ALLOC(t->name && UNS_HEAP_ROOM(list->v, list->n, list->cap), err);
	list->v[list->n++] = *t;
	return 0;
}

int uns_name_list_check(const struct uns_name_list *list, const char **twice, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	void *old = NULL;
	size_t i;

	UNS_TRY_ALLOC(uns_map_reserve(&seen, list->n), err);
	for (i = 0; i < list->n && !old; i++)
		UNS_TRY_ALLOC(uns_map_put(&seen, list->v[i].name, (void *)list->v[i].name, &old), err);
	*twice = old;
	return 0;
}

void uns_name_list_take(struct uns_name_list *list, struct uns_named_tensor **v, size_t *n)
{
	free(*v);
	*v = UNS_TAKE(list->v);
	*n = list->n;
}
