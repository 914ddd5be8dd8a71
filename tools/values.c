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

/* -- the weights that Adam's updates are compared with -- */

struct weight {
	const char *name;
	double norm;
	bool is_master; /* the optimizer's own copy, which it updates: goes before the weight of that name */
};

struct weights {
	struct weight *v; /* by name; of the weights of one name the first counts */
	size_t n;
};

static double number_of(const cJSON *o, const char *key)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(o, key);

	if (cJSON_IsRaw(value)) /* json_add_exact */
		return strtod(value->valuestring, NULL);
	return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static bool is_null(const cJSON *o, const char *key)
{
	return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(o, key));
}

/* The figures of a whole tensor: neither of one expert, nor of a tensor that could not be read. */
static bool is_whole(const cJSON *o)
{
	return is_null(o, "expert") && is_null(o, "why");
}

static int weight_order(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;
	const int order = strcmp(x->name, y->name);

	return order ? order : y->is_master - x->is_master;
}

/* Of `n` measures at most. False = out of memory. */
static bool weights_make(const cJSON *json, size_t n, struct weights *out)
{
	const cJSON *o;

	*out = (struct weights){ .v = calloc(n + 1, sizeof(*out->v)) };
	if (!out->v)
		return false;
	cJSON_ArrayForEach (o, json) {
		const char *role = show_string(o, "role", "");
		const bool is_master = strcmp(role, "master") == 0;

		if (is_whole(o) && (is_master || strcmp(role, "weight") == 0))
			out->v[out->n++] =
				(struct weight){ show_string(o, "name", ""), number_of(o, "norm"), is_master };
	}
	qsort(out->v, out->n, sizeof(*out->v), weight_order);
	return true;
}

/* NULL = there is none. */
static const struct weight *weight_find(const struct weights *w, const char *name)
{
	size_t lo = 0, hi = w->n, middle;

	while (lo < hi) {
		middle = lo + (hi - lo) / 2;
		if (strcmp(w->v[middle].name, name) < 0)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo < w->n && strcmp(w->v[lo].name, name) == 0 ? &w->v[lo] : NULL;
}

/* -- the table -- */

/* What is added up of a layer's tensors of one kind. */
struct group {
	const char *name;
	size_t n_layer; /* of the name */
	const char *kind;
	double n_tensors, n_elems, n_zero, n_not_finite, squares, largest, n_rows, n_small_rows;
	double update_squares, updated_squares; /* of Adam's updates, and of the weights that they change */
};

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

static void group_add(struct group *g, const cJSON *o, const struct weights *weights)
{
	const double update = number_of(o, "update_norm");
	const struct weight *weight =
		is_null(o, "update_norm") ? NULL : weight_find(weights, show_string(o, "name", ""));
	const double norm = number_of(o, "norm"), min = fabs(number_of(o, "min")), max = fabs(number_of(o, "max"));

	g->n_tensors++;
	g->n_elems += number_of(o, "elements");
	g->n_zero += number_of(o, "zeros");
	g->n_not_finite += number_of(o, "nan") + number_of(o, "infinite");
	g->squares += norm * norm;
	g->largest = fmax(g->largest, fmax(min, max));
	g->n_rows += number_of(o, "rows");
	g->n_small_rows += number_of(o, "small_rows");
	if (weight) {
		g->update_squares += update * update;
		g->updated_squares += weight->norm * weight->norm;
	}
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
	if (g->updated_squares > 0)
		cell(t, "%.3g", sqrt(g->update_squares / g->updated_squares));
	else
		table_add(t, "-");
}

static void not_read_print(const cJSON *json)
{
	const cJSON *o;

	cJSON_ArrayForEach (o, json)
		if (is_null(o, "expert") && !is_null(o, "why")) {
			fputs("  not read: ", stdout);
			text_print(show_string(o, "why", ""));
			putchar('\n');
		}
}

void values_print(const cJSON *json)
{
	static const char *const head[] = { "LAYER", "KIND",     "TENSORS",    "NORM",  "LARGEST",
					    "ZEROS", "NAN, INF", "SMALL ROWS", "UPDATE" };
	struct table t = { .n_columns = sizeof(head) / sizeof(head[0]), .right = 0x1fc };
	const size_t most = (size_t)cJSON_GetArraySize(json);
	struct group *v = calloc(most + 1, sizeof(*v));
	struct weights weights = { 0 };
	const cJSON *o;
	size_t n = 0, i;

	if (!v || !weights_make(json, most, &weights)) {
		command_no_memory();
		free(v);
		return;
	}
	for (i = 0; i < t.n_columns; i++)
		table_add(&t, head[i]);
	cJSON_ArrayForEach (o, json)
		if (is_whole(o))
			group_add(group_of(v, &n, show_string(o, "name", ""),
					   show_string(o, "state", show_string(o, "role", ""))),
				  o, &weights);
	for (i = 0; i < n; i++)
		group_print(&t, &v[i]);
	puts("\nvalues");
	table_print(&t, "  ");
	not_read_print(json);
	table_fini(&t);
	free(weights.v);
	free(v);
}
