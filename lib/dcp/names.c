/* Reads the keys of a DCP directory. Owns the knowledge of how frameworks write paths. Knows neither where
 * bytes are nor the catalog's lists. */
#include "dcp/names.h"

#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "base/text.h"

enum { MAX_ROOTS = 8, INT_TEXT = 24 };

static bool step_starts(const struct uns_dcp_entry *e, size_t i, const char *prefix)
{
	return i < e->n_path && e->path[i].key && uns_str_starts(e->path[i].key, prefix);
}

/* Without "chained_0.": Megatron puts it in front of the keys of one of several optimizers (0.16.1: optimizer.py,
 * ChainedOptimizer.sharded_state_dict). */
static const char *past_chain(const char *key)
{
	static const char chained[] = "chained_", optimizer[] = ".optimizer.";
	const char *rest = key + strlen(chained);
	size_t digits;

	if (!uns_str_starts(key, chained))
		return key;
	digits = strspn(rest, "0123456789");
	return digits && uns_str_starts(rest + digits, optimizer) ? rest + digits + 1 : key;
}

/* Root keys under which trainers save what is not the model. */
static bool is_beside_model(const char *key)
{
	static const char *const prefix[] = { "optim",        "lr_sched",    "scheduler",   "train_state",
					      "trainer",      "dataloader",  "data_loader", "rng",
					      "random_state", "rerun_state", "loss_scaler", "grad_scaler" };
	size_t i;

	key = past_chain(key);
	for (i = 0; i < sizeof(prefix) / sizeof(*prefix); i++)
		if (uns_str_starts(key, prefix[i]))
			return true;
	return false;
}

/* -- joining what is below a root -- */

/* Joins path elements, from number `from` to the last, with '.'. The result points into `key` if `key`
 * ends with just that text. */
static const char *steps_join(struct uns_dcp_naming *n, const struct uns_dcp_entry *e, size_t from, const char *key)
{
	struct uns_text text = UNS_TEXT_INIT;
	const char *joined = NULL;
	size_t i;

	for (i = from; i < e->n_path; i++) {
		if (i > from)
			uns_text_str(&text, ".");
		if (e->path[i].key)
			uns_text_str(&text, e->path[i].key);
		else
			uns_text_printf(&text, "%lld", (long long)e->path[i].index);
	}
	if (!text.failed && text.len && uns_str_ends(key, text.p))
		joined = key + strlen(key) - text.len;
	else if (!text.failed)
		joined = uns_arena_strn(n->arena, text.p, text.len);
	uns_text_fini(&text);
	return joined;
}

/* -- roots -- */

/* How many path elements `root` consists of ("app.model": two), if the entry is below it; 0 if it is not. */
static size_t below_root(const struct uns_dcp_entry *e, const char *root)
{
	size_t i, len;

	for (i = 0; i + 1 < e->n_path && e->path[i].key; i++) {
		len = strlen(e->path[i].key);
		if (!uns_str_starts(root, e->path[i].key))
			return 0;
		root += len;
		if (!*root)
			return i + 1;
		if (*root++ != '.')
			return 0;
	}
	return 0;
}

/* Reads the flat key "model.x" as x below the root "model", if no path was recorded. */
static const char *flat_below(const struct uns_dcp_naming *n, const struct uns_dcp_entry *e, const char *root)
{
	size_t len = strlen(root);

	if (n->has_paths || e->n_path != 1 || strncmp(e->key, root, len) != 0 || e->key[len] != '.' || !e->key[len + 1])
		return NULL;
	return e->key + len + 1;
}

static bool any_below(const struct uns_dcp_naming *n, const struct uns_dcp_metadata *meta, const char *root)
{
	size_t i;

	for (i = 0; i < meta->n_entries; i++)
		if (below_root(&meta->entry[i], root) || flat_below(n, &meta->entry[i], root))
			return true;
	return false;
}

/* Finds the key around "model": torch's own tutorial saves {"app": {"model": .., "optim": ..}}. */
static const char *find_wrapper(const struct uns_dcp_metadata *meta, const char *root)
{
	const struct uns_dcp_entry *e = meta->entry, *end = meta->entry + meta->n_entries;

	for (; e < end; e++)
		if (e->n_path > 2 && e->path[0].key && uns_dcp_step_is(e, 1, root))
			return e->path[0].key;
	return NULL;
}

static bool has_bare_optimizer(const struct uns_dcp_metadata *meta)
{
	bool state = false, groups = false;
	size_t i;

	for (i = 0; i < meta->n_entries; i++) {
		state |= uns_dcp_step_is(&meta->entry[i], 0, "state") && meta->entry[i].n_path > 2;
		groups |= uns_dcp_step_is(&meta->entry[i], 0, "param_groups");
	}
	return state && groups;
}

/* -- optimizers by their shape -- */

/* The index of the path element 'param_groups', which must have a key before it; 0 = there is none. */
static size_t groups_at(const struct uns_dcp_entry *e)
{
	size_t i;

	for (i = 1; i < e->n_path && e->path[i - 1].key; i++)
		if (uns_dcp_step_is(e, i, "param_groups") || (i + 1 == e->n_path && step_starts(e, i, "param_groups.")))
			return i;
	return 0;
}

/* The index of the path element that follows the keys of an optimizer in n->shaped, or 0. */
static size_t below_shaped(const struct uns_dcp_naming *n, const struct uns_dcp_entry *e)
{
	size_t i, below;

	for (i = 0; i < n->n_shaped; i++) {
		below = below_root(e, n->shaped[i]);
		if (below)
			return below;
	}
	return 0;
}

/* Does the root have an element 'state' beside its 'param_groups'? */
static bool has_state_below(const struct uns_dcp_metadata *meta, const char *root)
{
	size_t i, at;

	for (i = 0; i < meta->n_entries; i++) {
		at = below_root(&meta->entry[i], root);
		if (at && (uns_dcp_step_is(&meta->entry[i], at, "state") || step_starts(&meta->entry[i], at, "state.")))
			return true;
	}
	return false;
}

static int find_shaped(struct uns_dcp_naming *n, const struct uns_dcp_metadata *meta, struct uns_err *err)
{
	const struct uns_dcp_entry *e = meta->entry, *end = meta->entry + meta->n_entries;
	const char *root, *bare = ""; /* an optimizer without states, so far */
	size_t at, i;

	for (; e < end && n->n_shaped < MAX_ROOTS; e++) {
		at = below_shaped(n, e) || below_root(e, bare) ? 0 : groups_at(e);
		if (!at)
			continue;
		root = uns_arena_str(n->arena, e->path[0].key);
		for (i = 1; i < at; i++)
			root = uns_arena_printf(n->arena, "%s.%s", root, e->path[i].key);
		UNS_TRY(uns_arena_check(n->arena, err));
		if (has_state_below(meta, root))
			n->shaped[n->n_shaped++] = root;
		else
			bare = root;
	}
	return 0;
}

/* Finds the one root key that all tensors are below which may be weights; or two of them, if all are below one. */
static void find_rest(struct uns_dcp_naming *n, const struct uns_dcp_metadata *meta)
{
	const struct uns_dcp_entry *e = meta->entry, *end = meta->entry + meta->n_entries;
	const char *first = NULL, *second = NULL;

	for (; e < end; e++) {
		if (e->kind == UNS_DCP_BYTES || below_shaped(n, e) ||
		    (e->path[0].key && is_beside_model(e->path[0].key)))
			continue;
		if (e->n_path < 2 || !e->path[0].key)
			return;
		if (!first)
			first = e->path[0].key;
		else if (!second && strcmp(first, e->path[0].key) != 0)
			second = e->path[0].key;
	}
	n->only_root = second ? NULL : first;
	n->two_roots[0] = second ? first : NULL;
	n->two_roots[1] = second;
}

static int add_root(struct uns_dcp_naming *n, const char *root, struct uns_err *err)
{
	if (n->n_weight_roots == MAX_ROOTS)
		return uns_fail(err, -ENOTSUP,
				"-o weights_key= names more than the %d keys that unshard takes weights from",
				MAX_ROOTS);
	UNS_TRY_ALLOC(root = uns_arena_str(n->arena, root), err);
	n->weight_root[n->n_weight_roots++] = root;
	return 0;
}

static int find_roots(struct uns_dcp_naming *n, const struct uns_dcp_metadata *meta, struct uns_err *err)
{
	static const char *const usual[] = { "model", "state_dict" };
	size_t i;

	for (i = 0; i < 2; i++)
		if (any_below(n, meta, usual[i]))
			return add_root(n, usual[i], err);
	for (i = 0; i < 2; i++) {
		n->wrapper = find_wrapper(meta, usual[i]);
		if (!n->wrapper)
			continue;
		return add_root(n, uns_arena_printf(n->arena, "%s.%s", n->wrapper, usual[i]), err);
	}
	n->rest_is_weights = !n->bare_optimizer;
	if (n->has_paths)
		find_rest(n, meta);
	return 0;
}

int uns_dcp_naming_init(struct uns_dcp_naming *naming, const struct uns_dcp_metadata *meta,
			const struct uns_dcp_roots *roots, struct uns_arena *arena, struct uns_err *err)
{
	size_t i;

	*naming = (struct uns_dcp_naming){ .roots = roots, .arena = arena, .has_paths = meta->has_paths };
	naming->bare_optimizer = has_bare_optimizer(meta);
	UNS_TRY(find_shaped(naming, meta, err));
	if (!roots->weights)
		return find_roots(naming, meta, err);
	for (i = 0; i < roots->n_weights; i++)
		UNS_TRY(add_root(naming, roots->weights[i], err));
	if (!any_below(naming, meta, "model"))
		naming->wrapper = find_wrapper(meta, "model");
	return 0;
}

/* -- the optimizer -- */

static enum uns_role role_of_state(const char *state)
{
	return strcmp(state, "master_param") == 0 || strcmp(state, "fp32_param") == 0 || strcmp(state, "param") == 0
		       ? UNS_ROLE_MASTER
		       : uns_role_of_state(state);
}

/* Splits "FQN.last" at the last dot into name and state, in the arena. Returns false if there is no dot. */
static bool cut_last(struct uns_dcp_naming *n, const char *text, struct uns_dcp_meaning *out)
{
	const char *dot = strrchr(text, '.');

	if (!dot || dot == text || !dot[1])
		return false;
	out->name = uns_arena_strn(n->arena, text, (size_t)(dot - text));
	out->state = uns_arena_str(n->arena, dot + 1);
	return true;
}

/* Megatron writes the state first: "exp_avg.decoder.layers.weight". The fp32 copy is "fp32_param" or "param"; a
 * module of that name has a state behind it. */
static bool cut_first(struct uns_dcp_naming *n, const char *text, struct uns_dcp_meaning *out)
{
	size_t len = strcspn(text, ".");
	const char *last = strrchr(text, '.');
	char state[INT_TEXT];

	if (!text[len] || len >= sizeof(state))
		return false;
	memcpy(state, text, len);
	state[len] = '\0';
	if (role_of_state(state) == UNS_ROLE_OPTIM_OTHER || role_of_state(last + 1) != UNS_ROLE_OPTIM_OTHER)
		return false;
	out->state = uns_arena_str(n->arena, state);
	out->name = uns_arena_str(n->arena, text + len + 1);
	return true;
}

/* Reads "state.FQN.exp_avg" or "param_groups.FQN.lr", written as one string. */
static bool flat_optimizer(struct uns_dcp_naming *n, const char *text, struct uns_dcp_meaning *out)
{
	if (uns_str_starts(text, "state.")) {
		out->what = UNS_DCP_IS_STATE;
		text += strlen("state.");
		return (!n->has_paths && cut_first(n, text, out)) || cut_last(n, text, out);
	}
	out->what = UNS_DCP_IS_PARAM_HYPER;
	return uns_str_starts(text, "param_groups.") && cut_last(n, text + strlen("param_groups."), out);
}

/* `at` is the index of the path element 'state' or 'param_groups'. Returns false if the path has another form. */
static bool optimizer_meaning(struct uns_dcp_naming *n, const struct uns_dcp_entry *e, size_t at, const char *key,
			      struct uns_dcp_meaning *out)
{
	const struct uns_dcp_step *next = &e->path[at + 1];

	if (uns_dcp_step_is(e, at, "state") && e->n_path >= at + 3) {
		out->what = UNS_DCP_IS_STATE;
		out->name = next->key ? uns_arena_str(n->arena, next->key)
				      : uns_arena_printf(n->arena, "%lld", (long long)next->index);
		out->state = steps_join(n, e, at + 2, key);
	} else if (uns_dcp_step_is(e, at, "param_groups") && e->n_path == at + 1) {
		out->what = UNS_DCP_IS_GROUPS;
	} else if (uns_dcp_step_is(e, at, "param_groups") && e->n_path >= at + 3 && !next->key && next[1].key) {
		out->what = UNS_DCP_IS_HYPER;
		out->group = next->index;
		out->state = uns_arena_str(n->arena, next[1].key);
		out->deep = e->n_path > at + 3;
	} else if (uns_dcp_step_is(e, at, "param_to_group_meta") && e->n_path == at + 3 && next->key && next[1].key) {
		out->what = UNS_DCP_IS_PARAM_HYPER;
		out->name = uns_arena_str(n->arena, next->key);
		out->state = uns_arena_str(n->arena, next[1].key);
	} else {
		return e->n_path == at + 1 && e->path[at].key && flat_optimizer(n, e->path[at].key, out);
	}
	return true;
}

/* The index of the path element after the optimizer's root; 0 = the entry is not below an optimizer. */
static size_t below_optimizer(const struct uns_dcp_naming *n, const struct uns_dcp_entry *e)
{
	size_t shaped = below_shaped(n, e);

	if (shaped)
		return shaped;
	if (step_starts(e, 0, "optim") && e->n_path > 1)
		return 1;
	if (n->wrapper && uns_dcp_step_is(e, 0, n->wrapper) && step_starts(e, 1, "optim") && e->n_path > 2)
		return 2;
	return 0;
}

/* Reads the flat key "optimizer.state.x", if no path was recorded. */
static bool flat_optimizer_key(struct uns_dcp_naming *n, const struct uns_dcp_entry *e, struct uns_dcp_meaning *out)
{
	const char *key = past_chain(e->key), *rest = NULL;
	size_t len;

	if (n->has_paths || e->n_path != 1 || !uns_str_starts(key, "optim"))
		return false;
	len = strcspn(key, ".");
	rest = key[len] ? key + len + 1 : "";
	if (strcmp(rest, "param_groups") == 0)
		out->what = UNS_DCP_IS_GROUPS;
	else if (!flat_optimizer(n, rest, out))
		return false;
	out->inferred = true;
	out->root = uns_arena_strn(n->arena, key, len);
	return true;
}

static bool try_optimizer(struct uns_dcp_naming *n, const struct uns_dcp_entry *e, const char *key,
			  struct uns_dcp_meaning *out)
{
	size_t at = below_optimizer(n, e);

	if (at) {
		out->root = e->path[at - 1].key;
		return optimizer_meaning(n, e, at, key, out);
	}
	if (n->bare_optimizer && (uns_dcp_step_is(e, 0, "state") || uns_dcp_step_is(e, 0, "param_groups"))) {
		out->root = "optimizer";
		return optimizer_meaning(n, e, 0, key, out);
	}
	return flat_optimizer_key(n, e, out);
}

/* -- weights -- */

static bool try_weight_roots(struct uns_dcp_naming *n, const struct uns_dcp_entry *e, const char *key,
			     struct uns_dcp_meaning *out)
{
	const char *flat;
	size_t i, below;

	for (i = 0; i < n->n_weight_roots; i++) {
		out->root = n->weight_root[i];
		below = below_root(e, out->root);
		if (below) {
			out->name = steps_join(n, e, below, key);
			return true;
		}
		flat = flat_below(n, e, out->root);
		if (flat) {
			out->name = key + (flat - e->key);
			out->inferred = true;
			return true;
		}
	}
	return false;
}

static bool try_rest(struct uns_dcp_naming *n, const struct uns_dcp_entry *e, const char *key,
		     struct uns_dcp_meaning *out)
{
	if (!n->rest_is_weights || (e->path[0].key && is_beside_model(e->path[0].key)))
		return false;
	if (n->only_root && !(e->n_path > 1 && uns_dcp_step_is(e, 0, n->only_root)))
		return false; /* an object that was saved beside the tensors */
	out->root = n->only_root ? n->only_root : n->roots->keys_are_objects && e->n_path > 1 ? e->path[0].key : "";
	if (!out->root) /* the element is a number */
		return false;
	out->name = steps_join(n, e, n->only_root ? 1 : 0, key);
	return true;
}

static void other_meaning(struct uns_dcp_naming *n, const struct uns_dcp_entry *e, const char *key,
			  struct uns_dcp_meaning *out)
{
	bool rooted = e->n_path > 1 && e->path[0].key;
	size_t i, len;

	*out = (struct uns_dcp_meaning){ .what = UNS_DCP_IS_OTHER, .role = UNS_ROLE_OTHER };
	out->root = rooted ? e->path[0].key : "";
	out->name = steps_join(n, e, rooted ? 1 : 0, key);
	/* Other weights have paths, and this key looks like a weight's whose path was lost from planner_data. */
	for (i = 0; i < n->n_weight_roots && n->has_paths && e->n_path == 1; i++) {
		len = strlen(n->weight_root[i]);
		out->stray |= strncmp(e->key, n->weight_root[i], len) == 0 && e->key[len] == '.';
	}
}

int uns_dcp_meaning_of(struct uns_dcp_naming *naming, const struct uns_dcp_entry *entry, const char *key,
		       struct uns_dcp_meaning *out, struct uns_err *err)
{
	struct uns_dcp_meaning meaning = { .what = UNS_DCP_IS_WEIGHT, .role = UNS_ROLE_WEIGHT };

	if (try_weight_roots(naming, entry, key, &meaning)) {
		/* a weight */
	} else if (try_optimizer(naming, entry, key, &meaning)) {
		if (meaning.what == UNS_DCP_IS_GROUPS || meaning.what == UNS_DCP_IS_HYPER)
			meaning.name = key;
		if (meaning.what != UNS_DCP_IS_GROUPS && !meaning.state)
			return uns_oom(err);
		meaning.role = meaning.what == UNS_DCP_IS_STATE ? role_of_state(meaning.state) : UNS_ROLE_OTHER;
	} else {
		meaning = (struct uns_dcp_meaning){ .what = UNS_DCP_IS_WEIGHT, .role = UNS_ROLE_WEIGHT };
		if (!try_rest(naming, entry, key, &meaning))
			other_meaning(naming, entry, key, &meaning);
	}
	if (naming->roots->as_root)
		meaning.root = naming->roots->as_root;
	if (!naming->last_root || strcmp(naming->last_root, meaning.root) != 0)
		naming->last_root = uns_arena_str(naming->arena, meaning.root);
	meaning.root = naming->last_root;
	UNS_TRY_ALLOC(meaning.root && meaning.name, err);
	*out = meaning;
	return 0;
}
