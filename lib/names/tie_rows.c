/* Finds a family's rows in the generated table, which is sorted by model_type. */
#include "names/tie_rows.h"

#include <string.h>

#include "names/template.h"

struct uns_tie_rows uns_tie_rows_of(const char *model_type)
{
	const struct uns_tie_row *row = uns_tie_table, *end = row + uns_tie_table_n, *first;

	if (!model_type)
		return (struct uns_tie_rows){ 0 };
	while (row < end && strcmp(row->model_type, model_type) != 0)
		row++;
	for (first = row; row < end && strcmp(row->model_type, model_type) == 0; row++)
		;
	return (struct uns_tie_rows){ first, (size_t)(row - first) };
}

bool uns_tie_rows_computed(struct uns_tie_rows rows, const char *name)
{
	size_t i;

	for (i = 0; i < rows.n; i++)
		if (!rows.v[i].first && uns_name_ends(name, rows.v[i].second))
			return true;
	return false;
}
