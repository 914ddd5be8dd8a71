/* One bar for each rank, as long as the rank holds bytes: weights, then optimizer states, in the model's order. Ranks
 * that follow each other and hold as many elements of every tensor share a bar. Owns the arithmetic and the drawing. */
#include "map_svg.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "json.h"
#include "module_kinds.h"
#include "text.h"
#include "whole_file.h"

enum { WIDTH = 960, LEFT = 118, RIGHT = 96, TOP = 62, MOST_ROWS = 600, MOST_MISSING = 5, LETTERS = 110 };
enum { KINDS = N_MODULE_KINDS + 1, MISSING = N_MODULE_KINDS, OPTIMIZER = KINDS, N_COLOURS = 2 * KINDS };

/* How many elements of a tensor one rank holds. */
struct held {
	double n_elems;
	int rank;
	bool missing;
};

struct layout {
	struct held *held; /* by rank */
	size_t n;
};

struct tensor {
	const char *name;
	size_t n_module; /* of the name: what its module is called */
	const struct layout *layout;
	double size_bytes; /* of an element */
	int colour;
	bool optimizer, named; /* named: by a problem */
};

struct bar {
	int first, last; /* ranks */
	uint64_t hash, bytes;
};

struct picture {
	const struct shown_at *at;
	cJSON *info, *map;
	struct layout *layout;
	struct tensor *tensor;
	struct bar *bar;
	bool *file_missing;
	size_t n_files, n_missing;
	size_t n_layouts, n_tensors, n_bars, n_ranks;
	uint64_t longest;
	double pitch;
	bool uses[N_COLOURS];
};

/* -- what the bars are made of -- */

static int held_cmp(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

static double number_at(const cJSON *array, int i)
{
	const cJSON *value = cJSON_GetArrayItem(array, i);

	return value ? value->valuedouble : 0;
}

/* A piece has the length of each dimension at its end; one of flat elements has their number there. */
static double piece_elements(const cJSON *piece)
{
	int n = (cJSON_GetArraySize(piece) - 2) / 2, i;
	double elements = 1;

	for (i = 0; i < n; i++)
		elements *= number_at(piece, 2 + n + i);
	return elements;
}

static void layout_read(struct layout *to, const cJSON *pieces, const struct picture *p)
{
	const cJSON *piece;
	size_t i, file, n = 0;

	to->held = calloc((size_t)cJSON_GetArraySize(pieces) + 1, sizeof(*to->held));
	if (!to->held) {
		command_no_memory();
		return;
	}
	cJSON_ArrayForEach (piece, pieces) {
		file = (size_t)number_at(piece, 1);
		to->held[n++] = (struct held){ .n_elems = piece_elements(piece),
					       .rank = (int)number_at(piece, 0),
					       .missing = file < p->n_files && p->file_missing[file] };
	}
	qsort(to->held, n, sizeof(*to->held), held_cmp);
	for (i = 0; i < n; i++) {
		if (to->n && to->held[to->n - 1].rank == to->held[i].rank) {
			to->held[to->n - 1].n_elems += to->held[i].n_elems;
			to->held[to->n - 1].missing |= to->held[i].missing;
		} else {
			to->held[to->n++] = to->held[i];
		}
	}
}

static bool is_named(const cJSON *problems, const char *name)
{
	const cJSON *problem;

	cJSON_ArrayForEach (problem, problems)
		if (strcmp(show_string(problem, "tensor", ""), name) == 0)
			return true;
	return false;
}

static void tensor_read(struct picture *p, const cJSON *from, const cJSON *problems)
{
	const cJSON *layout = cJSON_GetObjectItemCaseSensitive(from, "layout");
	const cJSON *size = cJSON_GetObjectItemCaseSensitive(from, "size");
	const char *name = show_string(from, "name", ""), *role = show_string(from, "role", "");

	if (!cJSON_IsNumber(layout) || layout->valuedouble >= (double)p->n_layouts)
		return;
	p->tensor[p->n_tensors++] =
		(struct tensor){ .name = name,
				 .n_module = module_layer(name) ? module_layer(name) : strcspn(name, "."),
				 .layout = &p->layout[(size_t)layout->valuedouble],
				 .size_bytes = size ? size->valuedouble : 0,
				 .colour = (int)module_kind_of(name),
				 .optimizer = strcmp(role, "weight") != 0 && strcmp(role, "buffer") != 0,
				 .named = is_named(problems, name) };
}

static const struct held *held_by(const struct layout *layout, int rank)
{
	const struct held key = { .rank = rank };

	return layout->n ? bsearch(&key, layout->held, layout->n, sizeof(key), held_cmp) : NULL;
}

/* Bars of all ranks, by rank, each with a hash of what the rank holds. */
static void ranks_read(struct picture *p)
{
	int least = 0, most = -1;
	size_t i, k;

	for (i = 0; i < p->n_layouts; i++) {
		if (!p->layout[i].n)
			continue;
		least = p->layout[i].held[0].rank < least ? p->layout[i].held[0].rank : least;
		k = p->layout[i].n - 1;
		most = p->layout[i].held[k].rank > most ? p->layout[i].held[k].rank : most;
	}
	p->bar = calloc((size_t)(most - least) + 2, sizeof(*p->bar));
	if (!p->bar) {
		command_no_memory();
		return;
	}
	p->n_bars = (size_t)(most - least) + 1;
	for (i = 0; i < p->n_bars; i++)
		p->bar[i] = (struct bar){ .first = least + (int)i, .last = least + (int)i };
	for (i = 0; i < p->n_tensors; i++)
		for (k = 0; k < p->tensor[i].layout->n; k++) {
			const struct held *held = &p->tensor[i].layout->held[k];
			struct bar *bar = &p->bar[held->rank - least];

			bar->bytes += (uint64_t)(held->n_elems * p->tensor[i].size_bytes);
			bar->hash = (bar->hash ^ (i + 1)) * 0x100000001b3;
			bar->hash =
				(bar->hash ^ (uint64_t)held->n_elems ^ (uint64_t)held->missing << 63) * 0x100000001b3;
		}
}

/* Leaves out ranks that hold nothing, and joins neighbours that hold the same. */
static void bars_join(struct picture *p)
{
	struct bar *to = p->bar, *bar;

	for (bar = p->bar; bar < p->bar + p->n_bars; bar++) {
		if (!bar->hash)
			continue;
		p->n_ranks += bar->first >= 0;
		p->longest = bar->bytes > p->longest ? bar->bytes : p->longest;
		if (to > p->bar && to[-1].hash == bar->hash && to[-1].last + 1 == bar->first && bar->first > 0)
			to[-1].last = bar->first;
		else
			*to++ = *bar;
	}
	p->n_bars = (size_t)(to - p->bar);
	p->pitch = p->n_bars > 40 ? 900.0 / (double)p->n_bars : 22;
	p->pitch = p->pitch < 3 ? 3 : p->pitch;
}

static void picture_read(struct picture *p)
{
	const cJSON *files = cJSON_GetObjectItemCaseSensitive(p->map, "files"), *at;
	const cJSON *layouts = cJSON_GetObjectItemCaseSensitive(p->map, "layouts");
	const cJSON *tensors = cJSON_GetObjectItemCaseSensitive(p->map, "tensors");
	const cJSON *problems = cJSON_GetObjectItemCaseSensitive(p->info, "problems");

	p->layout = calloc((size_t)cJSON_GetArraySize(layouts) + 1, sizeof(*p->layout));
	p->tensor = calloc((size_t)cJSON_GetArraySize(tensors) + 1, sizeof(*p->tensor));
	p->file_missing = calloc((size_t)cJSON_GetArraySize(files) + 1, sizeof(*p->file_missing));
	if (!p->layout || !p->tensor || !p->file_missing) {
		command_no_memory();
		return;
	}
	cJSON_ArrayForEach (at, files) {
		p->file_missing[p->n_files] = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(at, "missing"));
		p->n_missing += p->file_missing[p->n_files++];
	}
	cJSON_ArrayForEach (at, layouts)
		layout_read(&p->layout[p->n_layouts++], at, p);
	cJSON_ArrayForEach (at, tensors)
		tensor_read(p, at, problems);
	ranks_read(p);
	bars_join(p);
}

static void picture_fini(struct picture *p)
{
	size_t i;

	for (i = 0; i < p->n_layouts; i++)
		free(p->layout[i].held);
	free(p->layout);
	free(p->tensor);
	free(p->bar);
	free(p->file_missing);
	cJSON_Delete(p->info);
	cJSON_Delete(p->map);
}

/* -- text in XML -- */

/* At most LETTERS characters of it, its end. XML knows no control characters. */
static void xml_put(FILE *to, const char *text)
{
	cJSON *valid = json_string(text);
	const char *s = valid ? valid->valuestring : "";
	size_t n = 0;

	for (text = s; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	if (n > LETTERS)
		fputs("…", to);
	for (; *s; s++) {
		n -= n && ((unsigned char)*s & 0xc0) != 0x80;
		if (n >= LETTERS)
			continue;
		if (strchr("&<>\"'", *s))
			fprintf(to, "&#%d;", *s);
		else
			fputs((unsigned char)*s < ' ' || *s == 0x7f ? "?" : (char[]){ *s, '\0' }, to);
	}
	cJSON_Delete(valid);
}

static const char *kind_name(int colour)
{
	return colour % KINDS == MISSING ? "missing, or named by a problem" : module_kinds[colour % KINDS].name;
}

static const char *kind_colour(int colour)
{
	return colour % KINDS == MISSING ? MODULE_MISSING_COLOUR : module_kinds[colour % KINDS].colour;
}

/* -- bars -- */

/* What of a bar is drawn next: a stretch of one colour, or of several that are too narrow each. */
struct brush {
	FILE *path[N_COLOURS], *gaps;
	double x, from, most_narrow;
	double owed[N_COLOURS]; /* width that was not drawn yet */
	int colour;
	uint64_t bytes[N_COLOURS];
	double y, height;
};

/* Stretches that are too narrow get the colour that most is owed to, so that each colour has its share of the bar. */
static void stretch_end(struct brush *b)
{
	int i, most = b->colour;

	for (i = 0; i < N_COLOURS; i++)
		most = b->owed[i] > b->owed[most] ? i : most;
	if (b->x > b->from)
		fprintf(b->path[most], "M%.1f %.1fH%.1fv%.1fH%.1fz", b->from, b->y, b->x, b->height, b->from);
	b->owed[most] -= b->x - b->from;
	b->from = b->x;
}

static void stretch_add(struct brush *b, int colour, double bytes, double scale)
{
	if (colour != b->colour && b->x - b->from >= b->most_narrow)
		stretch_end(b);
	b->colour = colour;
	b->owed[colour] += bytes * scale;
	b->bytes[colour] += (uint64_t)bytes;
	b->x += bytes * scale;
}

/* of_optimizer: these tensors alone. */
static void tensors_draw(struct picture *p, struct brush *b, int rank, bool of_optimizer, double scale)
{
	const struct tensor *t, *before = NULL;
	const struct held *held;
	double module_from = b->x, bytes;
	int colour;

	for (t = p->tensor; t < p->tensor + p->n_tensors; t++) {
		held = t->optimizer == of_optimizer ? held_by(t->layout, rank) : NULL;
		bytes = held ? held->n_elems * t->size_bytes : 0;
		if (!(bytes > 0))
			continue;
		if (before && (t->n_module != before->n_module || strncmp(t->name, before->name, t->n_module) != 0)) {
			if (b->x - module_from > 6)
				fprintf(b->gaps, "M%.1f %.1fv%.1f", b->x, b->y, b->height);
			module_from = b->x;
		}
		before = t;
		colour = (held->missing || t->named ? MISSING : t->colour) + (of_optimizer ? OPTIMIZER : 0);
		p->uses[colour] = true;
		stretch_add(b, colour, bytes, scale);
	}
	stretch_end(b);
	memset(b->owed, 0, sizeof(b->owed));
}

static void bar_name(const struct bar *bar, char out[48])
{
	if (bar->first < 0)
		snprintf(out, 48, "no rank known");
	else if (bar->first == bar->last)
		snprintf(out, 48, "rank %d", bar->first);
	else
		snprintf(out, 48, "ranks %d to %d", bar->first, bar->last);
}

static void bar_put(struct picture *p, FILE *to, size_t i)
{
	const struct bar *bar = &p->bar[i];
	const double scale = (WIDTH - LEFT - RIGHT) / (double)(p->longest ? p->longest : 1);
	const size_t every = (size_t)(15 / p->pitch) + 1;
	struct brush b = { .x = LEFT,
			   .from = LEFT,
			   .most_narrow = p->n_bars > 64 ? 3 : 1,
			   .y = TOP + (double)i * p->pitch,
			   .height = p->pitch * 0.82 };
	char *text[N_COLOURS + 1] = { NULL }, name[48], size[32];
	size_t length[N_COLOURS + 1];
	int c;

	for (c = 0; c <= N_COLOURS; c++) {
		FILE **stream = c < N_COLOURS ? &b.path[c] : &b.gaps;

		*stream = open_memstream(&text[c], &length[c]);
		if (!*stream)
			command_no_memory();
	}
	if (!command_lacks_memory()) {
		tensors_draw(p, &b, bar->first, false, scale);
		tensors_draw(p, &b, bar->first, true, scale);
	}
	bar_name(bar, name);
	for (c = 0; c <= N_COLOURS; c++) {
		FILE *stream = c < N_COLOURS ? b.path[c] : b.gaps;

		if (stream && fclose(stream) == EOF)
			command_no_memory();
		if (c == N_COLOURS && text[c] && *text[c])
			fprintf(to, "<path class=\"gap\" d=\"%s\"/>\n", text[c]);
		else if (c < N_COLOURS && b.bytes[c])
			fprintf(to, "<path class=\"k%d%s\" d=\"%s\"><title>%s: %s, %s, %llu bytes</title></path>\n",
				c % KINDS, c < OPTIMIZER ? "" : " o", text[c] ? text[c] : "", name, kind_name(c),
				c < OPTIMIZER ? "weights" : "optimizer", (unsigned long long)b.bytes[c]);
		free(text[c]);
	}
	if (i % every)
		return;
	text_bytes(bar->bytes, size);
	fprintf(to,
		"<text x=\"0\" y=\"%.1f\">%s</text><text class=\"q\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s%s"
		"</text>\n",
		b.y + b.height / 2 + 4, name, WIDTH, b.y + b.height / 2 + 4, size,
		bar->first == bar->last ? "" : " each");
}

/* -- the picture -- */

static void sum_put(FILE *to, const cJSON *info, const char *key, const char *what)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(info, key);
	char text[32];

	if (!cJSON_IsNumber(value) || !(value->valuedouble > 0))
		return;
	text_bytes((uint64_t)value->valuedouble, text);
	fprintf(to, " · %s %s", what, text);
}

static void head_put(const struct picture *p, FILE *to, double height)
{
	const cJSON *step = cJSON_GetObjectItemCaseSensitive(p->info, "step");
	const char *frame = show_string(p->info, "framework", show_string(p->info, "format", "checkpoint"));
	size_t i;

	fprintf(to,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-16 0 %d %.0f\" role=\"img\" aria-labelledby=\"t d\">\n"
		"<title id=\"t\">",
		WIDTH + 32, height);
	xml_put(to, p->at->typed);
	fputs("</title>\n<desc id=\"d\">Bytes that each rank holds, as bars.</desc>\n<style>\n"
	      ".b{fill:#fff}text{font:13px system-ui,sans-serif;fill:#1b1f24}.q{fill:#5b6470}.h{font-weight:600}.o{opacity:.55}\n"
	      ".gap{fill:none;stroke:#fff;stroke-width:.6}.bad{fill:#b3261e}\n",
	      to);
	for (i = 0; i < KINDS; i++)
		fprintf(to, ".k%zu{fill:%s}", i, kind_colour((int)i));
	fputs("\n@media(prefers-color-scheme:dark){.b{fill:#11151a}text{fill:#e6e9ed}.q{fill:#9aa5b1}.gap{stroke:#11151a}"
	      ".bad{fill:#ff8a80}}\n</style>\n",
	      to);
	fprintf(to, "<rect class=\"b\" x=\"-16\" width=\"%d\" height=\"%.0f\"/>\n<text class=\"h\" x=\"0\" y=\"24\">",
		WIDTH + 32, height);
	xml_put(to, p->at->typed);
	fputs("</text>\n<text class=\"q\" x=\"0\" y=\"44\">", to);
	xml_put(to, frame);
	if (cJSON_IsNumber(step))
		fprintf(to, " · step %.0f", step->valuedouble);
	fprintf(to, " · %zu %s", p->n_ranks, plural(p->n_ranks, "rank", "ranks"));
	sum_put(to, p->info, "weights_bytes", "weights");
	sum_put(to, p->info, "optimizer_bytes", "optimizer");
	fputs("</text>\n", to);
}

static void legend_put(const struct picture *p, FILE *to, double y)
{
	double x = 0;
	bool optimizer = false;
	int i;

	for (i = 0; i < KINDS; i++) {
		optimizer |= p->uses[i + OPTIMIZER];
		if (!p->uses[i] && !p->uses[i + OPTIMIZER])
			continue;
		fprintf(to,
			"<rect class=\"k%d\" x=\"%.0f\" y=\"%.1f\" width=\"12\" height=\"12\" rx=\"3\"/>"
			"<text x=\"%.0f\" y=\"%.1f\">%s</text>\n",
			i, x, y - 11, x + 18, y, kind_name(i));
		x += 44 + 7.2 * (double)strlen(kind_name(i));
	}
	if (optimizer)
		fprintf(to, "<text class=\"q\" x=\"%.0f\" y=\"%.1f\">dimmed: optimizer states</text>\n", x, y);
}

static void missing_put(const struct picture *p, FILE *to, double y)
{
	const cJSON *file;
	size_t n = 0;

	cJSON_ArrayForEach (file, cJSON_GetObjectItemCaseSensitive(p->map, "files")) {
		if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(file, "missing")) || n == MOST_MISSING)
			continue;
		n++;
		fprintf(to, "<text class=\"bad\" x=\"0\" y=\"%.1f\">missing: ", y + 20 * (double)n);
		xml_put(to, show_string(file, "path", ""));
		fputs("</text>\n", to);
	}
	if (p->n_missing > MOST_MISSING)
		fprintf(to, "<text class=\"bad\" x=\"0\" y=\"%.1f\">and %zu more files</text>\n",
			y + 20 * (MOST_MISSING + 1), p->n_missing - MOST_MISSING);
}

static void picture_put(FILE *to, const void *ctx)
{
	struct picture p = *(const struct picture *)ctx;
	const size_t shown = p.n_bars < MOST_ROWS ? p.n_bars : MOST_ROWS;
	const double end = TOP + (double)shown * p.pitch + (shown < p.n_bars ? 20 : 0);
	const size_t lines = p.n_missing > MOST_MISSING ? MOST_MISSING + 1 : p.n_missing;
	size_t i;

	head_put(&p, to, end + 44 + 20 * (double)lines);
	for (i = 0; i < shown; i++)
		bar_put(&p, to, i);
	if (shown < p.n_bars)
		fprintf(to, "<text class=\"q\" x=\"0\" y=\"%.1f\">and %zu more bars</text>\n", end - 6,
			p.n_bars - shown);
	legend_put(&p, to, end + 24);
	missing_put(&p, to, end + 24);
	fputs("</svg>\n", to);
}

int map_svg_write(const struct shown_at *at, const char *info, const char *map, const char *file)
{
	const char *const sources[] = { at->real, NULL };
	struct picture p = { .at = at, .info = cJSON_Parse(info), .map = cJSON_Parse(map) };
	int status;

	if (!p.info || !p.map)
		command_no_memory();
	else
		picture_read(&p);
	status = command_lacks_memory() ? command_fail("out of memory")
					: whole_file_write(&(struct whole_file){ file, sources, picture_put, &p });
	picture_fini(&p);
	return status;
}
