/* Options of a session: defaults, copies, refusals. */
#include "api/options.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/number.h"
#include "base/path.h"
#include "facts/training_facts.h"
#include "io/direct.h"
#include "seal/place.h"

enum {
	DEFAULT_SETTLE_S = 60,
	RECHECK_MS = 1000, /* with the kernel's 2 s, what is new shows within 5 s */
};
#define DEFAULT_SHARD_BYTES UINT64_C(50000000000)
#define DEFAULT_MEM_BYTES   (UINT64_C(128) << 20)
#define DEFAULT_SPILL_BYTES (UINT64_C(16) << 30)

const struct uns_view *view_find(const char *name, size_t len, uint64_t *parameter)
{
	char text[64];
	size_t i, n;

	if (len >= sizeof(text))
		return NULL;
	memcpy(text, name, len);
	text[len] = '\0';
	for (i = 0; uns_views[i]; i++) {
		n = strlen(uns_views[i]->name);
		if (strncmp(text, uns_views[i]->name, n) != 0)
			continue;
		if (text[n] == '\0' && uns_views[i]->parse("", parameter))
			return uns_views[i];
		if (text[n] == '-' && text[n + 1] && uns_views[i]->parse(text + n + 1, parameter))
			return uns_views[i];
	}
	return NULL;
}

static int copy_string(struct uns_arena *arena, const char *from, const char **out, struct uns_err *err)
{
	if (!from)
		return 0;
	*out = uns_arena_str(arena, from);
	return *out ? 0 : uns_oom(err);
}

static int copy_strings(struct uns_arena *arena, const char *const *from, size_t n, const char *const **out,
			struct uns_err *err)
{
	const char **copy = UNS_NEW_N(arena, const char *, n);
	size_t i;

	UNS_TRY_ALLOC(copy, err);
	for (i = 0; i < n; i++)
		UNS_TRY(copy_string(arena, from[i], &copy[i], err));
	*out = copy;
	return 0;
}

/* Where decoded pieces are spilled: what cannot be written there should be known when it is mounted. */
static int check_cache_dir(const char *dir, struct uns_err *err)
{
	struct stat st;

	if (!dir)
		return 0;
	if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
		errno = ENOTDIR;
	else if (access(dir, W_OK | X_OK) == 0)
		return 0;
	return uns_fail(err, -errno, "cache_dir=%s: %s", dir, strerror(errno));
}

static int open_model_dir(struct model_dirs *models, const char *text, const struct uns_root *source,
			  struct uns_arena *arena, struct uns_err *err)
{
	struct model_dir *m = &models->v[models->n];
	const struct uns_root_options trusted = { .trusted = true };
	const char *equals = strchr(text, '=');
	struct uns_err why = { 0 };
	struct uns_stat st;
	int code;

	/* A directory whose own name holds '=' wins over RUN=DIR. */
	if (equals && access(text, F_OK) != 0) {
		UNS_TRY_ALLOC(m->run = uns_arena_strn(arena, text, (size_t)(equals - text)), err);
		code = uns_root_stat(source, m->run, true, &st, &why);
		if (code == -ENOENT || code == -EXDEV || (code == 0 && st.kind != UNS_KIND_DIR)) /* a typing error */
			return uns_fail(err, -ENOENT, "found no directory %s below %s", m->run, uns_root_path(source));
		if (code < 0)
			return uns_fail_as(err, &why);
		text = equals + 1;
	}
	UNS_TRY(uns_root_open(text, &trusted, &m->root, err));
	models->n++;
	return 0;
}

static int no_such_view(const char *name, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text list = UNS_TEXT_INIT;
	const struct uns_view *const *v;
	const char *const *p;
	size_t k;

	for (v = uns_views; *v; v++) {
		for (k = 0; (*v)->listed[k]; k++)
			uns_text_printf(&list, "%s%s%s%s", list.len ? ", " : "", (*v)->name,
					*(*v)->listed[k] ? "-" : "", (*v)->listed[k]);
		for (p = (*v)->not_listed; p && *p; p++)
			uns_text_printf(&list, ", %s-%s", (*v)->name, *p);
		if ((*v)->placeholder)
			uns_text_printf(&list, "%s%s-%s", list.len ? ", " : "", (*v)->name, (*v)->placeholder);
		else if (!k)
			uns_text_printf(&list, "%s%s", list.len ? ", " : "", (*v)->name);
	}
	return list.failed ? uns_oom(err)
			   : uns_fail(err, -EINVAL, "view=%s: no such view; the views are %s", name, list.p);
}

/* Where the tree is mounted: goes into the lines to write; below SOURCE it is left out, so that the
 * session never looks into its own mount. */
static int find_mountpoint(struct session_options *out, const char *mountpoint, const struct uns_root *root,
			   struct uns_arena *arena, struct uns_err *err)
{
	char real[PATH_MAX];
	const char *source = uns_root_path(root), *below;

	if (!mountpoint || !realpath(mountpoint, real))
		return 0;
	UNS_TRY(copy_string(arena, real, &out->mounted_at, err));
	if (!uns_path_within(real, source) || strlen(real) == strlen(source))
		return 0;
	below = real + strlen(source) + (source[strlen(source) - 1] != '/');
	return copy_string(arena, below, &out->hidden, err);
}

static void take_numbers(struct session_options *out, const struct unshard_options *o)
{
	unsigned settle = o->settle_seconds ? o->settle_seconds : DEFAULT_SETTLE_S;

	out->max_shard_size_bytes = o->max_shard_size_bytes ? o->max_shard_size_bytes : DEFAULT_SHARD_BYTES;
	out->mem_bytes = o->mem_bytes ? o->mem_bytes : DEFAULT_MEM_BYTES;
	out->cache_size_bytes = o->cache_size_bytes ? o->cache_size_bytes : DEFAULT_SPILL_BYTES;
	out->settle_ns = o->no_settling ? 0 : (int64_t)settle * 1000000000;
	out->recheck_ns = (int64_t)RECHECK_MS * 1000000;
	out->hide_rng = o->hide_rng;
	out->keep_rng = o->keep_rng;
	out->keep_names = o->keep_names;
	out->crc_exact = o->crc_exact;
	out->format.assume_fsdp_units = o->assume_fsdp_units;
	out->format.n_weight_roots = o->n_weight_root;
	out->n_fact = o->n_fact;
}

static int take_seals(struct session_options *out, const struct unshard_options *o, struct uns_arena *arena,
		      struct uns_err *err)
{
	size_t len = o->seals ? strlen(o->seals) : 0;

	if (!o->seals)
		return 0;
	if (*o->seals != '/')
		return uns_fail(err, -EINVAL, "seals=%s: expected an absolute path", o->seals);
	for (; len > 1 && o->seals[len - 1] == '/'; len--)
		;
	UNS_TRY_ALLOC(out->seals = uns_arena_strn(arena, o->seals, len), err);
	out->seals_directory = out->seals;
	if (!uns_seal_is_file(out->seals))
		return 0;
	for (; len > 1 && o->seals[len - 1] != '/'; len--)
		;
	out->seals_directory = uns_arena_strn(arena, o->seals, len > 1 ? len - 1 : 1);
	return out->seals_directory ? 0 : uns_oom(err);
}

/* "/a:/b" */
static int take_memos(struct memo_dirs *out, const char *text, struct uns_arena *arena, struct uns_err *err)
{
	const char **v;
	size_t len;

	if (!text)
		return 0;
	UNS_TRY_ALLOC(v = UNS_NEW_N(arena, const char *, strlen(text) + 1), err); /* more than there are */
	for (;; text += len + 1) {
		len = strcspn(text, ":");
		if (*text != '/')
			return uns_fail(err, -EINVAL, "memos=%s: expected an absolute path", text);
		UNS_TRY_ALLOC(v[out->n++] = uns_arena_strn(arena, text, len), err);
		if (!text[len])
			break;
	}
	out->v = v;
	return 0;
}

static int take_mean(struct session_options *out, const struct unshard_options *o, struct uns_err *err)
{
	static const char ema[] = "ema:";
	const char *decay;

	if (!o->mean || strcmp(o->mean, "uniform") == 0)
		return 0;
	out->mean.weighting = MEAN_WSM;
	if (strcmp(o->mean, "wsm") == 0)
		return 0;
	out->mean.weighting = MEAN_EMA;
	decay = uns_str_starts(o->mean, ema) ? o->mean + strlen(ema) : "";
	if (uns_number_parse(uns_span_of(decay, strlen(decay)), &out->mean.decay) && out->mean.decay > 0 &&
	    out->mean.decay < 1)
		return 0;
	return uns_fail(err, -EINVAL, "mean=%s: expected uniform, wsm, or ema:D with a decay D between 0 and 1",
			o->mean);
}

static int take_reads(struct session_options *out, const struct unshard_options *o, struct uns_err *err)
{
	out->finds_way = !o->reads || strcmp(o->reads, "auto") == 0;
	out->keeps_pages = o->keeps_pages;
	if (out->finds_way || uns_way_find(o->reads, strlen(o->reads), &out->way))
		return 0;
	return uns_fail(err, -EINVAL, "reads=%s: expected cached, threads, ordered, direct or auto", o->reads);
}

static int take_experts(struct session_options *out, const struct unshard_options *o, struct uns_err *err)
{
	static const char *const forms[] = { "published", "split", "fused" }; /* as enum uns_expert_form has them */
	unsigned i;

	for (i = 0; o->experts && i < sizeof(forms) / sizeof(forms[0]); i++)
		if (strcmp(o->experts, forms[i]) == 0) {
			out->experts = (enum uns_expert_form)i;
			return 0;
		}
	return o->experts ? uns_fail(err, -EINVAL, "experts=%s: expected published, split or fused", o->experts) : 0;
}

/* "NAME:NUMBER" or "NAME", of `len` bytes. */
static int take_adapter(const char *text, size_t len, struct uns_arena *arena, const char **name, double *times,
			struct uns_err *err)
{
	size_t n = len;

	*times = 1;
	while (n && text[n - 1] != ':')
		n--;
	if (n && !uns_number_parse(uns_span_of(text + n, len - n), times))
		return uns_fail(err, -EINVAL, "%.*s is no number", (int)(len - n), text + n);
	n = n ? n - 1 : len;
	if (!n || memchr(text, '/', n) || *text == '.')
		return uns_fail(err, -EINVAL, "%.*s is no name of an adapter", (int)n, text);
	*name = uns_arena_strn(arena, text, n);
	return *name ? 0 : uns_oom(err);
}

/* "a:1+b:0.5" */
static int take_adapters(struct uns_adapter_choice *out, const char *text, struct uns_arena *arena, struct uns_err *err)
{
	const size_t most = strlen(text) + 2; /* more than there are names, and NULL */
	const char **name = UNS_NEW_N(arena, const char *, most);
	double *times = UNS_NEW_N(arena, double, most);
	size_t len, i;

	UNS_TRY_ALLOC(name && times, err);
	for (;; text += len + 1) {
		len = strcspn(text, "+");
		UNS_TRY(take_adapter(text, len, arena, &name[out->n], &times[out->n], err));
		for (i = 0; i < out->n; i++)
			if (strcmp(name[i], name[out->n]) == 0)
				return uns_fail(err, -EINVAL, "%s is named twice", name[i]);
		out->n++;
		if (!text[len])
			break;
	}
	out->name = name;
	out->times = times;
	return 0;
}

static uint64_t hash_texts(uint64_t h, const char *const *v, size_t n)
{
	size_t i;

	h = uns_hash_u64(h, n);
	for (i = 0; i < n; i++)
		h = uns_hash_str(h, v[i]);
	return h;
}

/* Directories of -o model= are not in it: those that are used are inputs of the checkpoint. */
static uint64_t shown_hash(const struct session_options *out, const struct unshard_options *o)
{
	const char *const text[] = { o->strip ? o->strip : "", o->mean ? o->mean : "", o->adapters ? o->adapters : "" };
	uint64_t h = hash_texts(UNS_HASH_INIT, text, sizeof(text) / sizeof(*text));

	h = hash_texts(h, o->weight_root, o->n_weight_root);
	h = hash_texts(h, o->follow, o->n_follow);
	h = hash_texts(h, o->fact, o->n_fact);
	h = uns_hash_u64(uns_hash_u64(h, out->experts), out->max_shard_size_bytes);
	h = uns_hash_u64(uns_hash_u64(h, o->hide_rng), o->keep_rng);
	return uns_hash_end(uns_hash_u64(uns_hash_u64(h, o->keep_names), o->assume_fsdp_units));
}

int session_options_take(struct session_options *out, const struct unshard_options *o, const struct uns_root *root,
			 struct uns_arena *arena, struct uns_err *err)
{
	const char *parameter;
	size_t i;

	take_numbers(out, o);
	UNS_TRY(take_mean(out, o, err));
	UNS_TRY(take_experts(out, o, err));
	UNS_TRY(take_reads(out, o, err));
	if (o->adapters && take_adapters(&out->adapters, o->adapters, arena, err) < 0)
		return uns_fail_in(err, "adapters=%s", o->adapters);
	out->shown = shown_hash(out, o);
	out->only = o->view ? view_find(o->view, strlen(o->view), &out->only_parameter) : NULL;
	if (o->view && !out->only)
		return no_such_view(o->view, err);
	if (out->only) {
		parameter = o->view + strlen(out->only->name);
		UNS_TRY(copy_string(arena, parameter + (*parameter == '-'), &out->only_text, err));
	}
	UNS_TRY(check_cache_dir(o->cache_dir, err));
	UNS_TRY_ALLOC(out->models.v = UNS_NEW_N(arena, struct model_dir, o->n_model), err);
	for (i = 0; i < o->n_model; i++)
		if (open_model_dir(&out->models, o->model[i], root, arena, err) < 0)
			return uns_fail_in(err, "model=%s", o->model[i]);
	for (i = 0; i < o->n_fact; i++)
		UNS_TRY(training_check_option(o->fact[i], err));
	UNS_TRY(copy_strings(arena, o->fact, o->n_fact, &out->fact, err));
	UNS_TRY(find_mountpoint(out, o->mountpoint, root, arena, err));
	UNS_TRY(copy_strings(arena, o->weight_root, o->n_weight_root, &out->format.weight_roots, err));
	UNS_TRY(copy_string(arena, o->strip, &out->strip, err));
	UNS_TRY(take_seals(out, o, arena, err));
	UNS_TRY(take_memos(&out->memos, o->memos, arena, err));
	return copy_string(arena, o->cache_dir, &out->cache_dir, err);
}

void session_options_fini(struct session_options *options)
{
	size_t i;

	for (i = 0; i < options->models.n; i++)
		uns_root_close(options->models.v[i].root);
}
