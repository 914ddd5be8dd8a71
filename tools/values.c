/* See values.h. JSON and table are made of the same array. */
#include "values.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "json.h"
#include "module_kinds.h"
#include "progress.h"
#include "show.h"
#include "table.h"
#include "text.h"

/* -- JSON -- */

struct reading {
	cJSON *array;
	struct progress progress;
};

static int step(void *ctx, const struct unshard_progress *p)
{
	progress_step(&((struct reading *)ctx)->progress, p);
	return 0;
}

/* The exponent of the first count, and counts up to the last that is not 0; [] = there are none. */
static cJSON *magnitudes(const struct unshard_measure *m)
{
	cJSON *list = json_array();
	int first = 0, end = UNSHARD_MAGNITUDES;

	while (first < end && !m->magnitude[first])
		first++;
	while (end > first && !m->magnitude[end - 1])
		end--;
	if (first < end)
		json_append(list, cJSON_CreateNumber(first + UNSHARD_LEAST_EXPONENT));
	for (; first < end; first++)
		json_append(list, cJSON_CreateNumber((double)m->magnitude[first]));
	return list;
}

static int measured(void *ctx, const struct unshard_measure *m)
{
	const struct unshard_tensor *t = m->tensor;
	cJSON *o = json_object();

	json_add(o, "name", t->name);
	json_add(o, "state", t->state);
	json_add(o, "role", unshard_role_name(t->role));
	json_add(o, "dtype", unshard_dtype_name(t->dtype));
	json_add_shape(o, "shape", t);
	if (m->expert >= 0)
		json_add_number(o, "expert", (double)m->expert);
	else
		json_add_null(o, "expert");
	json_add(o, "why", m->why);
	if (!m->why) {
		json_add_number(o, "elements", (double)m->n_elems);
		json_add_number(o, "zeros", (double)m->n_zero);
		json_add_number(o, "negative", (double)m->n_negative);
		json_add_number(o, "nan", (double)m->n_nan);
		json_add_number(o, "infinite", (double)m->n_infinite);
		json_add_exact(o, "min", m->min);
		json_add_exact(o, "max", m->max);
		json_add_exact(o, "mean", m->mean);
		json_add_exact(o, "norm", m->norm);
		json_add_value(o, "magnitudes", magnitudes(m));
		json_add_number(o, "rows", (double)m->n_rows);
		json_add_number(o, "small_rows", (double)m->n_small_rows);
		json_add_exact(o, "update_norm", m->norm_update);
		json_add_exact(o, "lr", m->lr);
	}
	json_append(((struct reading *)ctx)->array, o);
	return 0;
}

int values_read(unshard *u, const char *checkpoint, cJSON **json)
{
	struct reading r = { .array = json_array() };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &r, .progress = step, .measure = measured };
	struct unshard_error err = { 0 };
	int code;

	progress_start(&r.progress);
	code = unshard_measure_tensors(u, checkpoint, &calls, &err);
	progress_end(&r.progress);
	*json = r.array;
	if (code < 0)
		return command_fail("%s", err.text[0] ? err.text : "out of memory");
	return EXIT_DONE;
}

/* -- the table -- */

/* What is added up of a layer's tensors of one kind. */
struct group {
	const char *name;
	size_t n_layer; /* of the name */
	const char *kind;
	double n_tensors, n_elems, n_zero, n_not_finite, squares, largest, n_rows, n_small_rows;
};

static double number_of(const cJSON *o, const char *key)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(o, key);

	if (cJSON_IsRaw(value)) /* json_add_exact */
		return strtod(value->valuestring, NULL);
	return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static struct group *group_of(struct group *v, size_t *n, const char *name, const char *kind)
{
	const size_t n_layer = module_layer(name);
	struct group *g;

	for (g = v + *n; g-- > v;) /* tensors of a layer follow each other */
		if (g->n_layer == n_layer && strncmp(g->name, name, n_layer) == 0 && strcmp(g->kind, kind) == 0)
			return g;
	g = &v[(*n)++];
	*g = (struct group){ .name = name, .n_layer = n_layer, .kind = kind };
	return g;
}

static void group_add(struct group *g, const cJSON *o)
{
	const double norm = number_of(o, "norm"), min = fabs(number_of(o, "min")), max = fabs(number_of(o, "max"));

	g->n_tensors++;
	g->n_elems += number_of(o, "elements");
	g->n_zero += number_of(o, "zeros");
	g->n_not_finite += number_of(o, "nan") + number_of(o, "infinite");
	g->squares += norm * norm;
	g->largest = fmax(g->largest, fmax(min, max));
	g->n_rows += number_of(o, "rows");
	g->n_small_rows += number_of(o, "small_rows");
}

__attribute__((format(printf, 2, 3))) static void cell(struct table *t, const char *fmt, ...)
{
	char text[64];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	table_add(t, text);
}

static void group_print(struct table *t, const struct group *g)
{
	char *layer = g->n_layer ? strndup(g->name, g->n_layer) : strdup("(no layer)");

	if (!layer)
		command_no_memory();
	table_add(t, layer ? layer : "");
	free(layer);
	table_add(t, g->kind);
	cell(t, "%.0f", g->n_tensors);
	cell(t, "%.4g", sqrt(g->squares));
	cell(t, "%.4g", g->largest);
	cell(t, "%.0f", g->n_zero);
	cell(t, "%.0f", g->n_not_finite);
	if (g->n_rows > 0)
		cell(t, "%.0f of %.0f", g->n_small_rows, g->n_rows);
	else
		table_add(t, "-");
}

void values_print(const cJSON *json)
{
	static const char *const head[] = { "LAYER",   "KIND",  "TENSORS",  "NORM",
					    "LARGEST", "ZEROS", "NAN, INF", "SMALL ROWS" };
	struct table t = { .n_columns = sizeof(head) / sizeof(head[0]), .right = 0xfc };
	struct group *v = calloc((size_t)cJSON_GetArraySize(json) + 1, sizeof(*v));
	const cJSON *o;
	size_t n = 0, i;

	if (!v) {
		command_no_memory();
		return;
	}
	for (i = 0; i < t.n_columns; i++)
		table_add(&t, head[i]);
	cJSON_ArrayForEach (o, json)
		if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(o, "expert")) &&
		    cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(o, "why")))
			group_add(group_of(v, &n, show_string(o, "name", ""),
					   show_string(o, "state", show_string(o, "role", ""))),
				  o);
	for (i = 0; i < n; i++)
		group_print(&t, &v[i]);
	puts("\nvalues");
	table_print(&t, "  ");
	cJSON_ArrayForEach (o, json)
		if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(o, "expert")) &&
		    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "why"))) {
			fputs("  not read: ", stdout);
			text_print(show_string(o, "why", ""));
			putchar('\n');
		}
	table_fini(&t);
	free(v);
}
