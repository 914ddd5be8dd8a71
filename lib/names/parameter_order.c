/* Matches names with the rows of parameter_table.c. Owns the order of two names: rows are in the order in which one
 * walks the model's modules, and modules of a list come by their numbers. */
#include "names/parameter_order.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int family_cmp(const void *key, const void *row)
{
	return strcmp(key, ((const struct uns_parameter_family *)row)->model_type);
}

const struct uns_parameter_family *uns_parameter_family_find(const char *model_type)
{
	return model_type ? bsearch(model_type, uns_parameter_table, uns_n_parameter_table,
				    sizeof(*uns_parameter_table), family_cmp)
			  : NULL;
}

/* Is every '*' of the template a number in the name, and all else equal? */
static bool fits(const char *template, const char *name)
{
	while (*template) {
		if (*template == '*') {
			if (!isdigit((unsigned char)*name))
				return false;
			while (isdigit((unsigned char)*name))
				name++;
			template ++;
			if (*name && *name != '.')
				return false;
		} else if (*template ++!= *name++) {
			return false;
		}
	}
	return !*name;
}

const struct uns_parameter_row *uns_parameter_row_find(const struct uns_parameter_family *family, const char *name)
{
	const struct uns_parameter_row *row = family->row;

	while (row->name && !fits(row->name, name))
		row++;
	return row->name ? row : NULL;
}

/* Compares two runs of digits, and moves both behind them. */
static int number_cmp(const char **a, const char **b)
{
	char *end_a, *end_b;
	const unsigned long long x = strtoull(*a, &end_a, 10), y = strtoull(*b, &end_b, 10);

	*a = end_a;
	*b = end_b;
	return x < y ? -1 : x > y;
}

static int in_order(const void *x, const void *y)
{
	const struct uns_ordered_parameter *p = x, *q = y;
	const char *a = p->name, *b = q->name, *s = p->row->name, *t = q->row->name;
	int order;

	for (; *s && *s == *t; s++, t++) {
		if (*s != '*') {
			a++;
			b++;
			continue;
		}
		order = number_cmp(&a, &b);
		if (order)
			return order;
	}
	return p->row < q->row ? -1 : p->row > q->row;
}

void uns_parameters_sort(struct uns_ordered_parameter *v, size_t n)
{
	if (n)
		qsort(v, n, sizeof(*v), in_order);
}
