/* The tensors of a checkpoint, one by one or folded into modules. */
#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "show.h"
#include "table.h"

enum { N_COLUMNS = 5, FILES_NAMED = 3 };

/* Text that grows to the end of a fixed buffer and then stops. */
struct line {
	char text[512];
	size_t len;
};

__attribute__((format(printf, 2, 3))) static void line_add(struct line *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	if (n > 0)
		l->len += (size_t)n;
	if (l->len >= sizeof(l->text))
		l->len = sizeof(l->text) - 1;
}

static const char *file_of(const cJSON *piece)
{
	const char *path = show_string(piece, "file", "?"), *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* "2: __0_0.distcp, __1_0.distcp" */
static void describe_pieces(const cJSON *tensor, struct line *l)
{
	const cJSON *piece, *pieces = cJSON_GetObjectItemCaseSensitive(tensor, "pieces");
	const char *alias = show_string(tensor, "alias_of", NULL);
	int i = 0;

	if (alias) {
		line_add(l, "same as %s", alias);
		return;
	}
	line_add(l, "%d:", cJSON_GetArraySize(pieces));
	cJSON_ArrayForEach (piece, pieces) {
		if (i == FILES_NAMED) {
			line_add(l, ", ...");
			break;
		}
		line_add(l, "%s %s", i++ ? "," : "", file_of(piece));
	}
}

static void describe_shape(const cJSON *tensor, struct line *l)
{
	const cJSON *dim, *shape = cJSON_GetObjectItemCaseSensitive(tensor, "shape");
	const char *comma = "";

	line_add(l, "[");
	cJSON_ArrayForEach (dim, shape) {
		line_add(l, "%s%.0f", comma, dim->valuedouble);
		comma = ", ";
	}
	line_add(l, "]");
}

static void add_tensor(struct table *t, const cJSON *tensor)
{
	struct line shape = { .len = 0 }, pieces = { .len = 0 }, role = { .len = 0 };
	const char *dtype = show_string(tensor, "dtype", "?");
	const char *state = show_string(tensor, "state", NULL);

	describe_shape(tensor, &shape);
	describe_pieces(tensor, &pieces);
	line_add(&role, "%s", state ? state : show_string(tensor, "role", "?"));
	table_add(t, show_string(tensor, "name", "?"));
	table_add(t, role.text);
	table_add(t, strncmp(dtype, "torch.", 6) ? dtype : dtype + 6);
	table_add(t, shape.text);
	table_add(t, pieces.text);
}

static int print_table(struct table *t)
{
	table_print(t, "  ");
	table_fini(t);
	return command_lacks_memory() ? -ENOMEM : 0;
}

/* Those whose names the pattern fits. */
int show_tensors(const cJSON *tensors, const char *glob)
{
	static const char *const head[N_COLUMNS] = { "NAME", "ROLE", "DTYPE", "SHAPE", "PIECES" };
	struct table t = { .n_columns = N_COLUMNS };
	const cJSON *tensor;
	int i, n = 0;

	for (i = 0; i < N_COLUMNS; i++)
		table_add(&t, head[i]);
	cJSON_ArrayForEach (tensor, tensors)
		if (fnmatch(glob, show_string(tensor, "name", ""), 0) == 0 && ++n)
			add_tensor(&t, tensor);
	printf("\ntensors (%d of %d)\n", n, cJSON_GetArraySize(tensors));
	return print_table(&t);
}

/* Modules: what is alike, folded into one row. "model.layers.0.mlp.weight" -> "model.layers.*", "model.norm.weight" ->
 * "model.norm". */
static void module_of(const char *name, struct line *out)
{
	const char *dot, *from = name;
	size_t n;

	out->len = 0;
	out->text[0] = '\0';
	for (; (dot = strchr(from, '.')); from = dot + 1) {
		n = strspn(from, "0123456789");
		if (n && from[n] == '.') {
			line_add(out, "%.*s*", (int)(from - name), name);
			return;
		}
	}
	from = strrchr(name, '.');
	line_add(out, "%.*s", from ? (int)(from - name) : (int)strlen(name), name);
}

/* Optimizer states of one module, as bits: the names that any tensor has come first. */
enum { MOST_STATES = 16, MODULES_SHOWN = 32 };

struct module {
	char name[160];
	const char *dtype; /* of its weights, or of its states where it has none */
	int n;             /* weights, and other tensors that are no states */
	bool mixed;        /* dtypes */
	unsigned states;
};

struct modules {
	struct module v[MODULES_SHOWN];
	size_t n;
	const char *state[MOST_STATES];
	size_t n_states;
	int unshown;
};

static unsigned state_bit(struct modules *m, const char *state)
{
	size_t i = 0;

	while (i < m->n_states && strcmp(m->state[i], state) != 0)
		i++;
	if (i == MOST_STATES)
		return 0;
	if (i == m->n_states)
		m->state[m->n_states++] = state;
	return 1U << i;
}

static struct module *module_for(struct modules *m, const char *name)
{
	size_t i = 0;

	while (i < m->n && strcmp(m->v[i].name, name) != 0)
		i++;
	if (i == MODULES_SHOWN)
		return NULL;
	if (i == m->n)
		snprintf(m->v[m->n++].name, sizeof(m->v[i].name), "%s", name);
	return &m->v[i];
}

static void fold(struct modules *all, const cJSON *tensor)
{
	const char *state = show_string(tensor, "state", NULL), *dtype = show_string(tensor, "dtype", "?");
	struct line name = { .len = 0 };
	struct module *m;

	module_of(show_string(tensor, "name", "?"), &name);
	m = module_for(all, name.text);
	if (!m) {
		all->unshown++;
	} else if (state) {
		m->states |= state_bit(all, state);
	} else {
		m->mixed |= m->dtype && strcmp(m->dtype, dtype) != 0;
		m->dtype = dtype;
		m->n++;
	}
}

static void add_module(struct table *t, const struct modules *all, const struct module *m)
{
	const char *dtype = m->dtype ? m->dtype : "-";
	struct line states = { .len = 0 };
	char count[16];
	size_t i;

	for (i = 0; i < all->n_states; i++)
		if (m->states >> i & 1)
			line_add(&states, "%s%s", states.len ? ", " : "", all->state[i]);
	snprintf(count, sizeof(count), "%d", m->n);
	table_add(t, m->name);
	table_add(t, count);
	table_add(t, m->mixed ? "several" : strncmp(dtype, "torch.", 6) == 0 ? dtype + 6 : dtype);
	table_add(t, states.len ? states.text : "-");
}

int show_modules(const cJSON *tensors)
{
	static const char *const head[] = { "MODULE", "TENSORS", "DTYPE", "OPTIMIZER" };
	struct table t = { .n_columns = sizeof(head) / sizeof(*head), .right = 1 << 1 };
	struct modules all = { .n = 0 };
	const cJSON *tensor;
	size_t i;
	int code;

	if (!cJSON_GetArraySize(tensors))
		return 0;
	cJSON_ArrayForEach (tensor, tensors)
		fold(&all, tensor);
	for (i = 0; i < t.n_columns; i++)
		table_add(&t, head[i]);
	for (i = 0; i < all.n; i++)
		add_module(&t, &all, &all.v[i]);
	printf("\ntensors (%d; --tensors lists them)\n", cJSON_GetArraySize(tensors));
	code = print_table(&t);
	if (all.unshown)
		printf("  ... and %d more\n", all.unshown);
	return code;
}
