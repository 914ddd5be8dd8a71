/* Compares the layers of a model with each other. Two layers of one kind (layer_kinds.h) have the same tensors. If they
 * do not, the majority is right: of T5's layers the first alone has a position bias, which no other is asked for. */
#include "whole/whole.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "names/template.h"
#include "whole/layer_kinds.h"
#include "whole/model_ends.h"
#include "whole/stacks.h"
#include "wire/json.h"

enum { SHOWN = 4, MAX_CONFIG_DEPTH = 4 };

struct looking {
	const struct uns_whole_input *in;
	struct uns_arena *arena;
	struct uns_findings *out;
	struct uns_stacks stacks;
	struct uns_map names;
	cJSON *config;
	bool quantized; /* tensors of some layers may be others than those of the rest */
};

static void looking_fini(struct looking *l)
{
	uns_stacks_fini(&l->stacks);
	uns_map_fini(&l->names);
	cJSON_Delete(l->config);
}

static int add(struct looking *l, const struct uns_finding *f, struct uns_err *err)
{
	return uns_findings_add(l->out, l->arena, f, err);
}

/* -- a list of names, of which a sentence has the first few -- */

struct listing {
	struct uns_text names, layers;
	size_t n;
	const char *first;
	uint32_t run_begin, run_end; /* layers that were added last; run_end 0 = none */
};

static void listing_fini(struct listing *list)
{
	uns_text_fini(&list->names);
	uns_text_fini(&list->layers);
}

static int listing_add(struct listing *list, const char *name, struct uns_err *err)
{
	UNS_TRY_ALLOC(name, err);
	if (!list->n)
		list->first = name;
	if (list->n++ < SHOWN)
		uns_text_printf(&list->names, "%s%s", list->n > 1 ? ", " : "", name);
	return 0;
}

static void listing_end_run(struct listing *list)
{
	if (list->run_end == list->run_begin + 1)
		uns_text_printf(&list->layers, "%s%u", list->layers.len ? ", " : "", list->run_begin);
	else if (list->run_end)
		uns_text_printf(&list->layers, "%s%u to %u", list->layers.len ? ", " : "", list->run_begin,
				list->run_end - 1);
	list->run_end = 0;
}

/* In ascending order. */
static void listing_add_layer(struct listing *list, uint32_t layer)
{
	if (list->run_end != layer || !layer) {
		if (list->run_end == layer + 1)
			return;
		listing_end_run(list);
		list->run_begin = layer;
	}
	list->run_end = layer + 1;
}

static int listing_check(struct listing *list, struct uns_err *err)
{
	listing_end_run(list);
	return list->names.failed || list->layers.failed ? uns_oom(err) : 0;
}

static uint64_t listing_more(const struct listing *list)
{
	return list->n > SHOWN ? list->n - SHOWN : 0;
}

/* -- what config.json records of a stack -- */

enum { MAX_OBJECTS = 8 };

struct stack_config {
	const cJSON *object[MAX_OBJECTS]; /* that have the number of layers, the outermost first */
	size_t n_objects;
	uint32_t n; /* that number; layers behind it are those of multi-token prediction */
	bool of_text; /* the model has a vocabulary: its layers have equal shapes */
};

static uint32_t number_of(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble <= (double)UNS_MAX_LAYERS
		       ? (uint32_t)item->valuedouble
		       : 0;
}

/* Layers of multi-token prediction, which lie behind the others. */
static uint32_t extra_layers(const cJSON *object)
{
	const uint32_t n = number_of(object, "num_nextn_predict_layers");

	return n ? n : number_of(object, "mtp_num_hidden_layers");
}

/* 0 = the object has no number of layers that is equal to the stack's. */
static uint32_t count_of(const cJSON *object, uint32_t n_layers)
{
	static const char *const keys[] = { "num_hidden_layers",
					    "n_layer",
					    "n_layers",
					    "num_layers",
					    "encoder_layers",
					    "decoder_layers",
					    "num_decoder_layers",
					    "num_encoder_layers",
					    "depth" };
	static const char *const lists[] = { "layer_types", "layers_block_type" };
	uint32_t n;
	size_t i;

	for (i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		n = number_of(object, keys[i]);
		if (n && (n == n_layers || n + extra_layers(object) == n_layers))
			return n;
	}
	for (i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		n = (uint32_t)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(object, lists[i]));
		if (n && (n == n_layers || n + extra_layers(object) == n_layers))
			return n;
	}
	return 0;
}

/* All objects that may describe the stack: which of them does is not recorded, so that all of them count. */
static void find_config(const cJSON *object, uint32_t n_layers, int depth, struct stack_config *out)
{
	const uint32_t n = count_of(object, n_layers);
	const cJSON *item;

	if (n && out->n_objects < MAX_OBJECTS) {
		out->n = !out->n_objects || n < out->n ? n : out->n;
		out->object[out->n_objects++] = object;
		out->of_text |= cJSON_HasObjectItem(object, "vocab_size");
	}
	cJSON_ArrayForEach (item, object)
		if (depth < MAX_CONFIG_DEPTH && cJSON_IsObject(item))
			find_config(item, n_layers, depth + 1, out);
}

/* Is it a list of blocks that are repeated, and not a sequence of different modules, in which numbers of modules
 * without tensors are missing, or of convolutions? */
static bool is_list_of_layers(const struct uns_stack *stack)
{
	static const char *const ends[] = { "layers", "h", "blocks", "block", "layer", NULL };
	static const char *const has[] = { "att", "mixer", "lstm", NULL };
	const char *dot = strrchr(stack->name, '.'), *const *end = ends, *const * part;
	size_t i;

	while (*end && strcmp(dot ? dot + 1 : stack->name, *end) != 0)
		end++;
	for (i = 0; *end && i < stack->n_leaves; i++)
		for (part = has; *part; part++)
			if (strstr(stack->leaf[i].name, *part))
				return true;
	return false;
}

/* -- one stack -- */

struct judged {
	const struct uns_stack *stack;
	struct stack_config config;
	uint32_t *group; /* of each layer: layers of one kind have one number */
	uint32_t *total; /* of each group: layers that exist */
	uint32_t *have; /* of each group: layers that have the leaf that was counted last */
	uint32_t n_have; /* all of them */
	bool *is_special; /* of each layer: it has a tensor that no other layer has */
	uint32_t n_groups;
};

static int groups_make(struct judged *j, struct uns_arena *arena, struct uns_err *err)
{
	const uint32_t n = j->stack->n_layers;
	uint64_t *kind = UNS_NEW_N(arena, uint64_t, n);
	uint32_t i, k;
	size_t object;

	j->group = UNS_NEW_N(arena, uint32_t, n);
	j->total = UNS_NEW_N(arena, uint32_t, n);
	j->have = UNS_NEW_N(arena, uint32_t, n);
	j->is_special = UNS_NEW_N(arena, bool, n);
	UNS_TRY_ALLOC(kind && j->group && j->total && j->have && j->is_special, err);
	for (object = 0; object < j->config.n_objects; object++)
		if (!uns_layer_kinds_add(j->config.object[object], kind, n))
			return uns_oom(err);
	for (i = 0; i < n; i++) {
		for (k = 0; k < i && (kind[k] != kind[i] || (k < j->config.n) != (i < j->config.n)); k++)
			;
		j->group[i] = k < i ? j->group[k] : j->n_groups++;
		j->total[j->group[i]] += j->stack->there[i];
	}
	return 0;
}

static void leaf_count(struct judged *j, const struct uns_leaf *leaf)
{
	uint32_t i;

	memset(j->have, 0, j->n_groups * sizeof(*j->have));
	j->n_have = 0;
	for (i = 0; i < j->stack->n_layers; i++) {
		j->have[j->group[i]] += leaf->count[i] > 0;
		j->n_have += leaf->count[i] > 0;
	}
}

static void special_layers_find(struct judged *j)
{
	const struct uns_leaf *leaf = j->stack->leaf, *end = leaf + j->stack->n_leaves;
	uint32_t i;

	for (; leaf < end; leaf++) {
		leaf_count(j, leaf);
		for (i = 0; i < j->stack->n_layers && j->n_have == 1; i++)
			j->is_special[i] |= leaf->count[i] > 0;
	}
}

/* Do most layers of its kind have what `leaf_count` counted? If there are too few of its kind to compare: do all other
 * layers have it, and is this one not built in a way of its own? */
static bool is_expected(const struct judged *j, uint32_t layer)
{
	const uint32_t g = j->group[layer];

	if (j->have[g] > j->total[g] - j->have[g])
		return true;
	return j->total[g] <= 2 && j->stack->n_there > 3 && j->n_have == j->stack->n_there - 1 && !j->is_special[layer];
}

/* The module that a leaf belongs to: "self_attn" of "self_attn.q_proj.weight". */
static size_t module_length(const char *leaf)
{
	return strcspn(leaf, ".");
}

/* Does the layer have no tensor of the leaf's module, and two or more of a module that most layers of its kind lack?
 * Then it is built in another way: a layer of cross attention among layers of self attention. */
static bool is_built_otherwise(struct judged *j, const struct uns_leaf *leaf, uint32_t layer)
{
	const struct uns_leaf *all = j->stack->leaf, *end = all + j->stack->n_leaves, *other;
	const size_t len = module_length(leaf->name);
	size_t n_others = 0;

	for (other = all; other < end; other++)
		if (other->count[layer] && module_length(other->name) == len &&
		    memcmp(other->name, leaf->name, len) == 0)
			return false;
	for (other = all; other < end; other++) {
		if (!other->count[layer])
			continue;
		leaf_count(j, other);
		n_others += !is_expected(j, layer);
	}
	leaf_count(j, leaf);
	return n_others >= 2;
}

/* Tensors that the first layer of some families has no use for (ModernBERT's embedding is normalized before it). */
static bool is_for_later_layers(const struct uns_leaf *leaf, uint32_t layer)
{
	return layer == 0 && strcmp(leaf->name, "attn_norm.weight") == 0;
}

static const char *tensor_name(const struct judged *j, const struct uns_leaf *leaf, uint32_t layer, uint32_t expert,
			       struct uns_arena *arena)
{
	const char *hash = leaf->has_experts ? strchr(leaf->name, '#') : NULL;

	return hash ? uns_arena_printf(arena, "%s.%u.%.*s%u%s", j->stack->name, layer, (int)(hash - leaf->name),
				       leaf->name, expert, hash + 1)
		    : uns_arena_printf(arena, "%s.%u.%s", j->stack->name, layer, leaf->name);
}

/* How many experts a layer has: config.json's number, if it is higher than the highest in a name. */
static uint32_t n_experts_of(const struct judged *j, const struct uns_leaf *leaf)
{
	static const char *const keys[] = { "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts" };
	const size_t n_keys = sizeof(keys) / sizeof(*keys);
	uint32_t n, more = 0;
	size_t i;

	for (i = 0; i < n_keys * j->config.n_objects; i++) {
		n = number_of(j->config.object[i / n_keys], keys[i % n_keys]);
		if (n == leaf->n_experts)
			return n;
		if (n > leaf->n_experts && (!more || n < more))
			more = n;
	}
	return more ? more : leaf->n_experts;
}

static int leaf_list_missing(struct looking *l, struct judged *j, const struct uns_leaf *leaf, uint32_t layer,
			     struct listing *list, struct uns_err *err)
{
	const uint32_t n = leaf->has_experts ? n_experts_of(j, leaf) : 1;
	const char *name;
	uint32_t e;

	if (leaf->count[layer] == n ||
	    (!leaf->count[layer] && (is_for_later_layers(leaf, layer) || is_built_otherwise(j, leaf, layer))))
		return 0;
	for (e = 0; e < n; e++) {
		UNS_TRY_ALLOC(name = tensor_name(j, leaf, layer, e, l->arena), err);
		if (!uns_map_get(&l->names, name))
			UNS_TRY(listing_add(list, name, err));
	}
	return 0;
}

/* A quantized layer has other tensors beside its weights than one that was left as it was. */
static bool is_compared(const struct looking *l, const struct uns_leaf *leaf)
{
	return !l->quantized || uns_str_ends(leaf->name, "norm.weight");
}

static int stack_find_missing(struct looking *l, struct judged *j, struct uns_err *err)
{
	UNS_CLEANUP(listing_fini) struct listing list = { 0 };
	const struct uns_leaf *leaf = j->stack->leaf, *end = leaf + j->stack->n_leaves;
	UNS_CLEANUP(uns_free_p) bool *lacks = calloc(j->stack->n_layers + 1, sizeof(*lacks));
	uint32_t i;
	size_t before;

	UNS_TRY_ALLOC(lacks, err);
	for (; leaf < end; leaf++) {
		leaf_count(j, leaf);
		for (i = 0; i < j->stack->n_layers; i++) {
			before = list.n;
			if (j->stack->there[i] && is_compared(l, leaf) && is_expected(j, i))
				UNS_TRY(leaf_list_missing(l, j, leaf, i, &list, err));
			lacks[i] |= list.n > before;
		}
	}
	for (i = 0; i < j->stack->n_layers; i++)
		if (lacks[i])
			listing_add_layer(&list, i);
	UNS_TRY(listing_check(&list, err));
	return list.n ? add(l,
			    UNS_FINDING(.id = UNS_FOUND_LAYER_LACKS_TENSORS, .scope = UNS_SCOPE_WEIGHTS,
					.tensor = list.first,
					.arg = { { "n", uns_num(list.n) },
						 { "stack", uns_str(j->stack->name) },
						 { "layers", uns_str(list.layers.p) },
						 { "names", uns_str(list.names.p) },
						 { "more", uns_more(listing_more(&list)) } }),
			    err)
		      : 0;
}

static int stack_find_gaps(struct looking *l, const struct judged *j, struct uns_err *err)
{
	UNS_CLEANUP(listing_fini) struct listing list = { 0 };
	uint32_t i;

	for (i = 0; i < j->stack->n_layers; i++)
		if (!j->stack->there[i])
			listing_add_layer(&list, i);
	UNS_TRY(listing_check(&list, err));
	return list.layers.len
		       ? add(l,
			     UNS_FINDING(.id = UNS_FOUND_LAYERS_MISSING, .scope = UNS_SCOPE_WEIGHTS,
					 .found = uns_num(j->stack->n_there), .expected = uns_num(j->stack->n_layers),
					 .arg = { { "stack", uns_str(j->stack->name) },
						  { "layers", uns_str(list.layers.p) } }),
			     err)
		       : 0;
}

/* -- shapes and dtypes of siblings -- */

/* Of one leaf, for each group of layers: the tensor whose shape and dtype most of them have (majority vote). */
struct usual {
	const struct uns_named_tensor *tensor;
	uint32_t votes;
};

static bool is_alike(const struct uns_named_tensor *a, const struct uns_named_tensor *b)
{
	return a->out == b->out && uns_shape_equal(uns_named_shape(a), uns_named_shape(b));
}

/* usual[leaf * n_groups + group]; without a majority: tensor is NULL. */
static struct usual *find_usual(const struct looking *l, struct judged *j)
{
	struct usual *all = UNS_NEW_N(l->arena, struct usual, j->stack->n_leaves * j->n_groups), *u;
	const struct uns_named_tensor *t;
	size_t k;
	uint32_t i;
	int pass;

	for (k = 0; all && k < j->stack->n_leaves * 2; k++) {
		const struct uns_leaf *leaf = &j->stack->leaf[k / 2];

		pass = k % 2;
		leaf_count(j, leaf);
		for (i = 0; i < j->n_groups && pass == 1; i++)
			all[k / 2 * j->n_groups + i].votes = 0;
		for (i = 0; i < j->stack->n_layers; i++) {
			if (!leaf->count[i])
				continue;
			u = &all[k / 2 * j->n_groups + j->group[i]];
			t = &l->in->v[leaf->first[i]];
			if (pass == 0 && !u->votes)
				u->tensor = t;
			if (is_alike(u->tensor, t))
				u->votes++;
			else if (pass == 0)
				u->votes--;
		}
		for (i = 0; i < j->n_groups && pass == 1; i++)
			if (all[k / 2 * j->n_groups + i].votes * 2 <= j->have[i])
				all[k / 2 * j->n_groups + i].tensor = NULL;
	}
	return all;
}

/* The tensor that this one should be like, or NULL. */
static const struct uns_named_tensor *sibling_of(const struct looking *l, const struct judged *j,
						 const struct usual *usual, size_t i)
{
	const struct uns_place *p = &l->stacks.place[i];

	if (p->stack != (uint32_t)(j->stack - l->stacks.v))
		return NULL;
	return usual[p->leaf * j->n_groups + j->group[p->layer]].tensor;
}

static int stack_find_unlike(struct looking *l, struct judged *j, struct uns_err *err)
{
	UNS_CLEANUP(listing_fini) struct listing shapes = { 0 };
	UNS_CLEANUP(listing_fini) struct listing dtypes = { 0 };
	const struct usual *usual = find_usual(l, j);
	const struct uns_named_tensor *t, *sibling, *shape_of[2] = { 0 }, *dtype_of[2] = { 0 };
	char found[128], expected[128];
	size_t i;

	UNS_TRY_ALLOC(usual, err);
	for (i = 0; i < l->in->n; i++) {
		t = &l->in->v[i];
		sibling = sibling_of(l, j, usual, i);
		if (!sibling || is_alike(sibling, t))
			continue;
		if (!uns_shape_equal(uns_named_shape(sibling), uns_named_shape(t))) {
			if (!shapes.n)
				memcpy(shape_of, (const struct uns_named_tensor *[]){ t, sibling }, sizeof(shape_of));
			UNS_TRY(listing_add(&shapes, t->name, err));
			continue;
		}
		if (!dtypes.n)
			memcpy(dtype_of, (const struct uns_named_tensor *[]){ t, sibling }, sizeof(dtype_of));
		UNS_TRY(listing_add(&dtypes, t->name, err));
	}
	if (shapes.n)
		UNS_TRY(add(l,
			    UNS_FINDING(.id = UNS_FOUND_SHAPE_UNLIKE_SIBLINGS, .scope = UNS_SCOPE_WEIGHTS,
					.tensor = shapes.first,
					.found = uns_str(
						uns_shape_text(uns_named_shape(shape_of[0]), found, sizeof(found))),
					.expected = uns_str(uns_shape_text(uns_named_shape(shape_of[1]), expected,
									   sizeof(expected))),
					.arg = { { "sibling", uns_str(shape_of[1]->name) },
						 { "more", uns_more(shapes.n - 1) } }),
			    err));
	return dtypes.n ? add(l,
			      UNS_FINDING(.id = UNS_FOUND_DTYPE_UNLIKE_SIBLINGS, .scope = UNS_SCOPE_NOTE,
					  .tensor = dtypes.first,
					  .found = uns_str(uns_dtype_info(dtype_of[0]->out)->torch),
					  .expected = uns_str(uns_dtype_info(dtype_of[1]->out)->torch),
					  .arg = { { "sibling", uns_str(dtype_of[1]->name) },
						   { "more", uns_more(dtypes.n - 1) } }),
			      err)
			: 0;
}

/* -- what is before and behind the layers -- */

/* Is it the stack of the language model, and not that of a tower beside it? */
static bool is_text_stack(const char *name)
{
	static const char *const others[] = { "vision", "visual", "audio", "speech", "encoder", "mtp", NULL };
	const char *const *other = others;

	while (*other && !strstr(name, *other))
		other++;
	return !*other;
}

static int find_one(struct looking *l, const struct uns_stack *stack, const char *tensor, bool is_embedding,
		    struct uns_err *err)
{
	const char *dot = strrchr(stack->name, '.');
	const size_t parent = dot ? (size_t)(dot + 1 - stack->name) : 0;
	const char *name = uns_arena_printf(l->arena, "%.*s%s", (int)parent, stack->name, tensor);
	const char *head = uns_arena_printf(l->arena, "%.*slm_head.weight", (int)parent, stack->name);

	UNS_TRY_ALLOC(name && head, err);
	if (uns_map_get(&l->names, name))
		return 0;
	/* A file of tied weights may hold either of the two. */
	if (is_embedding && l->in->info->ties_embeddings &&
	    (uns_map_get(&l->names, "lm_head.weight") || uns_map_get(&l->names, head)))
		return 0;
	return add(l,
		   UNS_FINDING(.id = UNS_FOUND_MODEL_PART_MISSING, .scope = UNS_SCOPE_WEIGHTS, .tensor = name,
			       .found = uns_str(l->in->info->text_type ? l->in->info->text_type
								       : l->in->info->model_type)),
		   err);
}

static bool is_causal(const struct looking *l)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(l->config, "architectures");
	const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(list, 0));

	return name && uns_str_ends(name, "ForCausalLM");
}

static int stack_find_ends(struct looking *l, const struct uns_stack *stack, struct uns_err *err)
{
	const struct uns_config_info *info = l->in->info;
	const struct uns_model_ends *ends = uns_model_ends_of(info->text_type ? info->text_type : info->model_type);
	const char *dot = strrchr(stack->name, '.');

	if (!ends || l->in->other_names || strcmp(dot ? dot + 1 : stack->name, ends->stack) != 0 ||
	    !is_text_stack(stack->name))
		return 0;
	UNS_TRY(find_one(l, stack, ends->embedding, true, err));
	UNS_TRY(find_one(l, stack, ends->norm, false, err));
	if (info->ties_embeddings || info->text_type || !is_causal(l) || uns_map_get(&l->names, "lm_head.weight"))
		return 0;
	return add(l,
		   UNS_FINDING(.id = UNS_FOUND_MODEL_PART_MISSING, .scope = UNS_SCOPE_WEIGHTS,
			       .tensor = "lm_head.weight", .found = uns_str(info->model_type)),
		   err);
}

static int stack_judge(struct looking *l, const struct uns_stack *stack, struct uns_err *err)
{
	struct judged j = { .stack = stack };

	if (!is_list_of_layers(stack))
		return 0;
	find_config(l->config, stack->n_layers, 0, &j.config);
	if (!j.config.n_objects)
		return 0;
	UNS_TRY(groups_make(&j, l->arena, err));
	special_layers_find(&j);
	UNS_TRY(stack_find_gaps(l, &j, err));
	UNS_TRY(stack_find_missing(l, &j, err));
	UNS_TRY(stack_find_ends(l, stack, err));
	return j.config.of_text && !l->quantized ? stack_find_unlike(l, &j, err) : 0;
}

int uns_whole_find(const struct uns_whole_input *in, struct uns_arena *arena, struct uns_findings *out,
		   struct uns_err *err)
{
	UNS_CLEANUP(looking_fini) struct looking l = { .in = in, .arena = arena, .out = out };
	struct uns_err why = { 0 };
	size_t i;

	if (!uns_span_left(&in->config))
		return 0;
	if (uns_json_parse(in->config, &l.config, &why) < 0)
		return why.code == -ENOMEM ? uns_fail_copy(err, &why) : 0; /* the config has its own finding */
	l.quantized = cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(l.config, "quantization_config"));
	for (i = 0; i < in->n; i++)
		UNS_TRY_ALLOC(uns_map_put(&l.names, in->v[i].name, (void *)&in->v[i], NULL), err);
	UNS_TRY(uns_stacks_find(in->v, in->n, arena, &l.stacks, err));
	for (i = 0; i < l.stacks.n; i++)
		UNS_TRY(stack_judge(&l, &l.stacks.v[i], err));
	return 0;
}
