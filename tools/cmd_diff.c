/* unshard diff: how two checkpoints differ. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "json.h"
#include "page.h"
#include "progress.h"
#include "table.h"
#include "text.h"

enum { SHOWN_ROWS = 20, N_SECTIONS = 4 };

/* Rows of one table, or objects of one array: tensors, layers, experts, values. */
enum section { TENSORS, LAYERS, EXPERTS, VALUES };

/* What is shown of one tensor, layer or expert. */
struct row {
	char *name, *dtype, *shape, *note; /* note: instead of figures; NULL = figures */
	double order; /* the largest first */
	struct unshard_figures figures;
};

struct side {
	struct arguments a;
	char *path;   /* absolute */
	char *opened; /* the same, cut to the directory that was opened */
	unshard *u;
	const char *inside; /* below it */
};

struct diff {
	struct side a, b;
	struct unshard_diff_options o;
	const char *tolerance, *html;
	bool json, all;
	const char *shared; /* which side has the other's config.json; NULL = none */
	struct progress progress;
	struct unshard_diff_counts counts;

	cJSON *array[N_SECTIONS], *total;
	struct row *row[N_SECTIONS];
	size_t n_rows[N_SECTIONS], cap[N_SECTIONS];
	struct table values;
	struct unshard_figures figures; /* of all tensors */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

static int step(void *ctx, const struct unshard_progress *p)
{
	progress_step(&((struct diff *)ctx)->progress, p);
	return interrupted ? -EINTR : 0;
}

/* -- figures as JSON -- */

static void add_figures(cJSON *o, const struct unshard_figures *f)
{
	json_add_number(o, "elements", (double)f->n_elems);
	json_add_number(o, "changed", (double)f->n_changed);
	json_add_number(o, "beyond", (double)f->n_beyond);
	json_add_number(o, "not_finite_a", (double)f->n_not_finite_a);
	json_add_number(o, "not_finite_b", (double)f->n_not_finite_b);
	json_add_number(o, "not_finite_changed", (double)f->n_not_finite_changed);
	json_add_exact(o, "max_abs", f->max_abs);
	json_add_exact(o, "mean_abs", f->mean_abs);
	json_add_exact(o, "norm_a", f->norm_a);
	json_add_exact(o, "norm_b", f->norm_b);
	json_add_exact(o, "norm_difference", f->norm_difference);
}

static void add_tensor(struct diff *d, const struct unshard_tensor_diff *t)
{
	cJSON *o = json_object();

	json_add(o, "name", t->name);
	json_add(o, "state", t->state);
	json_add(o, "kind", unshard_diff_name(t->kind));
	json_add(o, "dtype_a", t->a ? unshard_dtype_name(t->a->dtype) : NULL);
	json_add(o, "dtype_b", t->b ? unshard_dtype_name(t->b->dtype) : NULL);
	json_add_shape(o, "shape_a", t->a);
	json_add_shape(o, "shape_b", t->b);
	if (t->figures)
		add_figures(o, t->figures);
	json_append(d->array[TENSORS], o);
}

static void add_group(struct diff *d, const struct unshard_group_diff *g)
{
	cJSON *o = json_object();

	if (g->group != UNSHARD_GROUP_ALL)
		json_add(o, "name", g->name);
	json_add_number(o, "tensors", (double)g->n_tensors);
	json_add_number(o, "different", (double)g->n_different);
	add_figures(o, g->figures);
	if (g->group == UNSHARD_GROUP_ALL)
		d->total = o;
	else
		json_append(d->array[g->group == UNSHARD_GROUP_LAYER ? LAYERS : EXPERTS], o);
}

/* -- figures as rows -- */

static char *shape_text(const struct unshard_tensor *t)
{
	char text[256] = "[";
	size_t at = 1;
	uint32_t i;

	for (i = 0; i < t->n_dims; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%llu", i ? "," : "",
				       (unsigned long long)t->shape[i]);
	snprintf(text + at, sizeof(text) - at, "]");
	return strdup(text);
}

/* How much of a is gone: the norm of the difference as a part of the norm of a. */
static double relative(const struct unshard_figures *f)
{
	if (f->n_not_finite_changed || !isfinite(f->norm_difference))
		return (double)INFINITY;
	if (!(f->norm_difference > 0))
		return f->n_changed ? 0 : -1;
	return f->norm_a > 0 ? f->norm_difference / f->norm_a : (double)INFINITY;
}

static struct row *row_add(struct diff *d, enum section section)
{
	size_t cap = d->cap[section] ? 2 * d->cap[section] : 64;
	struct row *grown = d->row[section];

	if (d->n_rows[section] == d->cap[section]) {
		grown = realloc(grown, cap * sizeof(*grown));
		if (!grown) {
			command_no_memory();
			return NULL;
		}
		d->row[section] = grown;
		d->cap[section] = cap;
	}
	grown[d->n_rows[section]] = (struct row){ 0 };
	return &grown[d->n_rows[section]++];
}

static char *owned(char *text)
{
	if (!text)
		command_no_memory();
	return text;
}

static char *joined(const char *a, const char *between, const char *b)
{
	char *text;

	return asprintf(&text, "%s%s%s", a, between, b) < 0 ? NULL : text;
}

static void tensor_row(struct diff *d, const struct unshard_tensor_diff *t)
{
	const struct unshard_tensor *any = t->a ? t->a : t->b;
	struct row *row = row_add(d, TENSORS);
	char *other;

	if (!row)
		return;
	row->name = owned(t->state ? joined(t->name, " ", t->state) : strdup(t->name));
	row->dtype = owned(t->a && t->b && t->a->dtype != t->b->dtype
				   ? joined(unshard_dtype_name(t->a->dtype), " -> ", unshard_dtype_name(t->b->dtype))
				   : strdup(unshard_dtype_name(any->dtype)));
	row->shape = owned(shape_text(any));
	if (t->figures) {
		row->figures = *t->figures;
		row->order = relative(t->figures);
	} else if (t->kind == UNSHARD_DIFF_SHAPE) {
		other = owned(shape_text(t->b));
		row->note = owned(joined("has shape ", other ? other : "", " in B"));
		free(other);
		row->order = (double)INFINITY;
	} else {
		row->note = owned(joined(t->kind == UNSHARD_DIFF_TIED ? "tied, " : "", "only in ", t->a ? "A" : "B"));
		row->order = t->kind == UNSHARD_DIFF_TIED ? -1 : (double)INFINITY;
	}
}

static void group_row(struct diff *d, const struct unshard_group_diff *g)
{
	struct row *row;

	if (g->group == UNSHARD_GROUP_ALL) {
		d->figures = *g->figures;
		return;
	}
	row = row_add(d, g->group == UNSHARD_GROUP_LAYER ? LAYERS : EXPERTS);
	if (!row)
		return;
	row->name = owned(strdup(g->name));
	row->figures = *g->figures;
	row->order = relative(g->figures);
}

static int visit_tensor(void *ctx, const struct unshard_tensor_diff *t)
{
	struct diff *d = ctx;

	if (!d->all && t->kind == UNSHARD_DIFF_EQUAL)
		return 0;
	if (d->json)
		add_tensor(d, t);
	else
		tensor_row(d, t);
	return 0;
}

static int visit_group(void *ctx, const struct unshard_group_diff *g)
{
	struct diff *d = ctx;

	if (!d->all && !g->n_different && g->group != UNSHARD_GROUP_ALL)
		return 0;
	if (d->json)
		add_group(d, g);
	else
		group_row(d, g);
	return 0;
}

static int visit_value(void *ctx, const struct unshard_value_diff *v)
{
	struct diff *d = ctx;
	cJSON *o;

	if (!d->json) {
		table_add(&d->values, v->name);
		table_add(&d->values, v->json_a ? v->json_a : "-");
		table_add(&d->values, v->json_b ? v->json_b : "-");
		table_add(&d->values, v->counts ? "yes" : "no");
		return 0;
	}
	o = json_object();
	json_add(o, "name", v->name);
	json_add_value(o, "a", v->json_a ? cJSON_Parse(v->json_a) : cJSON_CreateNull());
	json_add_value(o, "b", v->json_b ? cJSON_Parse(v->json_b) : cJSON_CreateNull());
	json_add_value(o, "counts", cJSON_CreateBool(v->counts));
	json_append(d->array[VALUES], o);
	return 0;
}

/* -- tables -- */

static int row_cmp(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->order > y->order ? -1 : x->order < y->order ? 1 : strcmp(x->name, y->name);
}

static void add_number(struct table *t, double number)
{
	char text[32];

	snprintf(text, sizeof(text), "%.4g", number);
	table_add(t, text);
}

/* "12 (0.4%)"; "all". */
static void add_changed(struct table *t, const struct unshard_figures *f)
{
	char text[64];

	if (f->n_changed && f->n_changed == f->n_elems)
		snprintf(text, sizeof(text), "all");
	else if (f->n_changed)
		snprintf(text, sizeof(text), "%llu (%.3g%%)", (unsigned long long)f->n_changed,
			 100 * (double)f->n_changed / (double)f->n_elems);
	else
		snprintf(text, sizeof(text), "0");
	table_add(t, text);
}

static void add_row(struct table *t, const struct row *row, bool of_tensors)
{
	size_t i;

	table_add(t, row->name);
	if (of_tensors) {
		table_add(t, row->dtype);
		table_add(t, row->shape);
	}
	if (row->note) {
		table_add(t, row->note);
		for (i = 0; i < 5; i++)
			table_add(t, "");
		return;
	}
	add_changed(t, &row->figures);
	add_number(t, row->figures.max_abs);
	add_number(t, row->figures.mean_abs);
	add_number(t, row->figures.norm_a);
	add_number(t, row->figures.norm_b);
	add_number(t, row->figures.norm_difference);
}

static void print_section(struct diff *d, enum section section, const char *title)
{
	static const char *const head[] = { "CHANGED", "LARGEST", "MEAN", "NORM A", "NORM B", "NORM A-B" };
	const bool of_tensors = section == TENSORS;
	struct table t = { .n_columns = of_tensors ? 9 : 7 };
	size_t i, n = d->n_rows[section], shown = d->all || n <= SHOWN_ROWS ? n : SHOWN_ROWS;

	if (!n || command_lacks_memory())
		return;
	qsort(d->row[section], n, sizeof(struct row), row_cmp);
	table_add(&t, title);
	if (of_tensors) {
		table_add(&t, "DTYPE");
		table_add(&t, "SHAPE");
	}
	for (i = 0; i < sizeof(head) / sizeof(head[0]); i++)
		table_add(&t, head[i]);
	for (i = 0; i < shown; i++)
		add_row(&t, &d->row[section][i], of_tensors);
	table_print(&t, "");
	if (shown < n)
		printf("... and %zu more (--all)\n", n - shown);
	putchar('\n');
	table_fini(&t);
}

/* -- the end -- */

static void print_count(size_t n, const char *what, bool *any)
{
	if (n)
		printf("%s%zu %s", *any ? ", " : "", n, what);
	*any |= n > 0;
}

static void print_summary(const struct diff *d, bool different)
{
	const size_t *n = d->counts.kind;
	size_t i, n_tensors = 0;
	bool any = false;
	char bytes[32];

	for (i = 0; i <= UNSHARD_DIFF_TIED; i++)
		n_tensors += n[i];
	text_bytes(d->counts.read_bytes, bytes);
	printf("%s: %zu %s", different ? "different" : "equal", n_tensors, plural(n_tensors, "tensor", "tensors"));
	if (n[UNSHARD_DIFF_EQUAL] < n_tensors) {
		fputs(", of them ", stdout);
		print_count(n[UNSHARD_DIFF_EQUAL], "equal", &any);
	}
	print_count(n[UNSHARD_DIFF_WITHIN], "within the tolerance", &any);
	print_count(n[UNSHARD_DIFF_DTYPE], "equal but for the dtype", &any);
	print_count(n[UNSHARD_DIFF_VALUES], "with other values", &any);
	print_count(n[UNSHARD_DIFF_SHAPE], "with another shape", &any);
	print_count(n[UNSHARD_DIFF_TIED], "tied to another on the side that has it", &any);
	print_count(n[UNSHARD_DIFF_ONLY_A], "only in A", &any);
	print_count(n[UNSHARD_DIFF_ONLY_B], "only in B", &any);
	if (d->counts.n_values)
		printf("; %zu other %s", d->counts.n_values, plural(d->counts.n_values, "value", "values"));
	printf("; %s read\n", bytes);
	if (d->figures.n_not_finite_a || d->figures.n_not_finite_b)
		printf("NaN and infinity: %llu elements of A, %llu of B, %llu of them changed; no other figure has "
		       "them\n",
		       (unsigned long long)d->figures.n_not_finite_a, (unsigned long long)d->figures.n_not_finite_b,
		       (unsigned long long)d->figures.n_not_finite_changed);
}

static void print_text(struct diff *d, bool different)
{
	print_section(d, TENSORS, "TENSOR");
	print_section(d, LAYERS, "LAYER");
	print_section(d, EXPERTS, "EXPERT");
	if (d->values.n_cells > d->values.n_columns) {
		table_print(&d->values, "");
		putchar('\n');
	}
	if (d->shared)
		puts(d->shared);
	print_summary(d, different);
}

static cJSON *as_json(struct diff *d, bool different)
{
	static const char *const names[N_SECTIONS] = { "tensors", "layers", "experts", "values" };
	cJSON *o = json_object(), *counts = json_object();
	size_t i;

	json_add_value(o, "equal", cJSON_CreateBool(!different));
	json_add(o, "a", d->a.a.argument);
	json_add(o, "b", d->b.a.argument);
	json_add(o, "view", d->o.view ? d->o.view : "weights");
	json_add(o, "note", d->shared);
	json_add_number(o, "read_bytes", (double)d->counts.read_bytes);
	for (i = 0; i <= UNSHARD_DIFF_TIED; i++)
		json_add_number(counts, unshard_diff_name((enum unshard_diff_kind)i), (double)d->counts.kind[i]);
	json_add_value(o, "counts", counts);
	json_add_value(o, "total", d->total);
	d->total = NULL;
	for (i = 0; i < N_SECTIONS; i++) {
		json_add_value(o, names[i], d->array[i]);
		d->array[i] = NULL;
	}
	return o;
}

static int print_json(struct diff *d, bool different)
{
	cJSON *o = as_json(d, different);

	json_print(o);
	cJSON_Delete(o);
	return EXIT_DONE;
}

static int write_page(struct diff *d, bool different)
{
	const char *const sources[] = { d->a.path, d->b.path, NULL };
	cJSON *o = as_json(d, different);
	char *text = o ? cJSON_PrintUnformatted(o) : NULL;
	const struct page_part parts[] = { { .key = "path", .text = "diff" }, { .key = "diff", .json = text }, { 0 } };
	int status = text ? page_write(&(struct page){ parts, sources }, d->html) : command_fail("out of memory");

	cJSON_free(text);
	cJSON_Delete(o);
	return status;
}

static int compare(struct diff *d)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT,        .ctx = d,
					     .progress = step,          .tensor_diff = visit_tensor,
					     .group_diff = visit_group, .value_diff = visit_value };
	struct sigaction action = { .sa_handler = on_signal };
	struct unshard_error err = { 0 };
	int code, status = EXIT_DONE;

	progress_start(&d->progress);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	code = unshard_diff(d->a.u, d->a.inside, d->b.u, d->b.inside, &d->o, &calls, &d->counts, &err);
	progress_end(&d->progress);
	if (code == -EINTR)
		return command_fail("interrupted");
	if (code == -EAGAIN) {
		command_fail("%s", err.text);
		return EXIT_NOT_JUDGED;
	}
	if (code < 0)
		return command_fail("%s", err.text[0] ? err.text : "out of memory");
	if (command_lacks_memory())
		return EXIT_COULD_NOT;
	if (d->html)
		status = write_page(d, code == 1);
	else if (d->json)
		status = print_json(d, code == 1);
	else
		print_text(d, code == 1);
	return status == EXIT_DONE && code ? EXIT_PROBLEM : status;
}

/* -- two checkpoints -- */

/* RUN/latest, if there is no such name in RUN: what it leads to in the view. NULL = it is no such path; or *status is
 * set. */
static char *newest_path(struct side *side, const char *view, int *status)
{
	static const char name[] = "latest";
	const char *slash = strrchr(side->a.argument, '/'), *last = slash ? slash + 1 : side->a.argument;
	char *run, *link, *target = NULL, *path = NULL;
	struct unshard_error err = { 0 };
	unshard *u = NULL;

	if (strcmp(last, name) != 0)
		return NULL;
	run = slash ? strndup(side->a.argument, (size_t)(slash - side->a.argument) + 1) : strdup(".");
	if (!run || asprintf(&link, "%s/%s", view, name) < 0)
		link = NULL;
	if (!link)
		*status = command_fail("out of memory");
	else
		*status = arguments_open(&side->a, run, &u);
	if (*status < 0 && unshard_readlink(u, link, &target, &err) < 0)
		*status = command_fail("%s: %s", side->a.argument, err.text);
	if (*status < 0 && asprintf(&path, "%s%s%s", run, slash ? "" : "/", target) < 0)
		*status = command_fail("out of memory");
	if (*status < 0)
		side->path = path_real(path);
	unshard_free(target);
	unshard_close(u);
	free(path);
	free(link);
	free(run);
	return side->path;
}

static int side_open(struct side *side, const char *view)
{
	int why, status = -1;

	if (!side->path && !(path_is_url(side->a.argument) && newest_path(side, view, &status)))
		side->path = path_real(side->a.argument);
	why = errno;
	if (status >= 0)
		return status;
	if (!side->path && !newest_path(side, view, &status))
		return status < 0 ? command_fail("%s: %s", side->a.argument, strerror(why)) : status;
	side->opened = strdup(side->path);
	return side->opened ? arguments_open_above(&side->a, side->opened, &side->u, &side->inside)
			    : command_fail("out of memory");
}

static void side_close(struct side *side)
{
	unshard_close(side->u);
	side->u = NULL;
	log_close(&side->a.log);
	side->a.log.fd = -1;
	free(side->opened);
	side->opened = NULL;
}

static void side_fini(struct side *side)
{
	side_close(side);
	arguments_fini(&side->a);
	free(side->path);
}

static bool has_config(const struct side *side)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	char *path;
	bool has;

	if (asprintf(&path, "weights/%s%sconfig.json", side->inside, *side->inside ? "/" : "") < 0)
		return false;
	has = unshard_stat(side->u, path, &st, NULL) == 0;
	free(path);
	return has;
}

/* As a value of -o model=, with its commas protected: the checkpoint's directory, or the one above it, with the
 * config.json. NULL = neither has one. */
static char *model_option(const struct side *side)
{
	char *dir = strdup(side->path), *file = NULL, *option = NULL, *to;
	const char *from;
	int up;

	for (up = 0; dir && *dir && up < 2; up++, *strrchr(dir, '/') = '\0') {
		if (asprintf(&file, "%s/config.json", dir) < 0)
			break;
		if (access(file, R_OK) == 0)
			option = malloc(strlen("model=") + 2 * strlen(dir) + 1);
		free(file);
		if (option)
			break;
	}
	if (option) {
		to = option + sprintf(option, "model=");
		for (from = dir; *from; *to++ = *from++)
			if (*from == ',' || *from == '\\')
				*to++ = '\\';
		*to = '\0';
	}
	free(dir);
	return option;
}

/* A checkpoint without a config.json gets the other's: published names and tied weights follow from it. */
static int config_share(struct diff *d, const struct command *self)
{
	const bool has_a = has_config(&d->a), has_b = has_config(&d->b);
	struct side *to = has_a ? &d->b : &d->a;
	struct unshard_error err = { 0 };
	char *option;
	int status;

	if (has_a == has_b || to->a.options.library.n_model)
		return -1;
	option = model_option(has_a ? &d->a : &d->b);
	if (!option)
		return -1;
	d->shared = has_a ? "B has no config.json: A's is used for the names of its tensors"
			  : "A has no config.json: B's is used for the names of its tensors";
	side_close(to);
	status = options_parse(&to->a.options, self->options, option, &err) < 0
			 ? command_fail("%s", err.text)
			 : side_open(to, d->o.view ? d->o.view : "weights");
	free(option);
	return status;
}

/* Infinity would make every difference none. */
static bool is_tolerance(double value)
{
	return value >= 0 && value < INFINITY;
}

/* "ABSOLUTE" or "ABSOLUTE,RELATIVE". */
static int parse_tolerance(struct diff *d)
{
	char *end;

	if (!d->tolerance)
		return -1;
	d->o.tolerance = strtod(d->tolerance, &end);
	if (end != d->tolerance && *end == ',' && end[1])
		d->o.relative_tolerance = strtod(end + 1, &end);
	if (end == d->tolerance || *end || !is_tolerance(d->o.tolerance) || !is_tolerance(d->o.relative_tolerance))
		return command_fail(
			"--tolerance %s: not a finite number that is not negative, or two with a comma between them",
			d->tolerance);
	return -1;
}

static int parse(struct diff *d, const struct command *self, int argc, char **argv)
{
	struct options *o[] = { &d->a.a.options, &d->b.a.options };
	struct unshard_error err = { 0 };
	int opt, i;

	while ((opt = flags_next(self->flags, argc, argv)) != -1) {
		if (opt == 'h')
			return command_help(self);
		if (opt == '?')
			return command_usage(self);
		d->json |= opt == 'j';
		d->all |= opt == 'a';
		d->o.flags |= opt == 'O' ? UNSHARD_DIFF_OPTIMIZER : opt == 'C' ? UNSHARD_DIFF_TENSORS : 0;
		if (opt == 'v')
			d->o.view = optarg;
		if (opt == 'H')
			d->html = optarg;
		if (opt == 't')
			d->tolerance = optarg;
		for (i = 0; i < 2; i++)
			if ((opt == 'o' && options_parse(o[i], self->options, optarg, &err) < 0) ||
			    (opt == 'S' && options_store(o[i], optarg, &err) < 0))
				return command_fail("%s", err.text);
	}
	if (argc - optind != 2)
		return command_operands(self, argc - optind, argv + optind);
	if (d->html && d->json)
		return command_fail("--html and --json: one of them at a time");
	d->json |= d->html != NULL; /* the page is drawn from the same object, with equal tensors too */
	d->all |= d->html != NULL;
	d->a.a.argument = argv[optind];
	d->b.a.argument = argv[optind + 1];
	return parse_tolerance(d);
}

static void diff_fini(struct diff *d)
{
	struct row *row;
	int i;

	side_fini(&d->a);
	side_fini(&d->b);
	for (i = 0; i < N_SECTIONS; i++) {
		cJSON_Delete(d->array[i]);
		for (row = d->row[i]; row < d->row[i] + d->n_rows[i]; row++) {
			free(row->name);
			free(row->dtype);
			free(row->shape);
			free(row->note);
		}
		free(d->row[i]);
	}
	cJSON_Delete(d->total);
	table_fini(&d->values);
}

static int diff_run(const struct command *self, int argc, char **argv)
{
	struct diff d = { .a = { .a = { .quiet = true, .log = { .fd = -1 } } },
			  .b = { .a = { .quiet = true, .log = { .fd = -1 } } },
			  .o = { UNSHARD_DIFF_OPTIONS_INIT },
			  .values = { .n_columns = 4 },
			  .counts = { UNSHARD_DIFF_COUNTS_INIT } };
	static const char *const head[] = { "VALUE", "A", "B", "COUNTS" };
	int i, status = parse(&d, self, argc, argv);

	for (i = 0; i < N_SECTIONS && status < 0 && d.json; i++)
		d.array[i] = json_array();
	for (i = 0; i < 4 && status < 0; i++)
		table_add(&d.values, head[i]);
	if (status < 0)
		status = side_open(&d.a, d.o.view ? d.o.view : "weights");
	if (status < 0)
		status = side_open(&d.b, d.o.view ? d.o.view : "weights");
	if (status < 0)
		status = config_share(&d, self);
	if (status < 0)
		status = compare(&d);
	diff_fini(&d);
	return status;
}

const struct command cmd_diff = {
	.name = "diff",
	.operands = "A B",
	.arguments = "A B [--view VIEW] [--optimizer] [--no-config] [--tolerance ABS[,REL]] [--all] "
		     "[--json | --html FILE] [-o OPTION,...] [--store FILE|none]",
	.summary = "say how two checkpoints differ: tensors, elements, hyper-parameters",
	.help = "A and B are checkpoints of any two formats. Their weights are compared as the view shows "
		"them, under the names that models are published with: a sharded checkpoint with the model "
		"that was exported from it, for example. Of every tensor that differs: how many elements "
		"changed, the largest and the mean difference, the norms of A, B and A-B; the same of each "
		"layer and expert. The most changed come first (norm of A-B by that of A). Every tensor is "
		"read. Nothing is written. Exit status: 0 equal, 1 different, 2 could not run, 3 not judged: "
		"a checkpoint may still be being saved.",
	.example = "unshard diff runs/llama/checkpoint-4 runs/llama/checkpoint-8",
	.flags =
		(const struct flag[]){
			{ 'v', "view", false, "VIEW", "compare the tensors of this view (weights)", NAMES_VIEW },
			{ 'O', "optimizer", false, NULL,
			  "also compare the optimizers' states, by the checkpoints' own names", NAMES_NOTHING },
			{ 'C', "no-config", false, NULL, "compare tensors alone, not hyper-parameters and config.json",
			  NAMES_NOTHING },
			{ 't', "tolerance", false, "ABS[,REL]",
			  "a difference of at most ABS + REL * |B| is none, and another dtype is none either",
			  NAMES_NOTHING },
			{ 'a', "all", false, NULL, "list equal tensors too, and every row", NAMES_NOTHING },
			FLAG_JSON("one object instead"),
			{ 'H', "html", false, "FILE",
			  "write a page for a browser instead: layers against modules, experts, the largest rows; "
			  "- = stdout",
			  NAMES_FILE },
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_CHECKPOINT, NAMES_CHECKPOINT },
	.options = VERB_DIFF,
	.run = diff_run,
};
