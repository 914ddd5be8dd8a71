/* PEFT's names of tensors. Owns that convention and nothing else.
 * Source: peft 0.21.2, tuners/tuners_utils.py (_remove_adapter_name_from_state_dict_key), utils/other.py
 * (ModulesToSaveWrapper) and utils/save_and_load.py (get_peft_model_state_dict):
 *
 *   in memory                                             in adapter_model.safetensors
 *   base_model.model.X.lora_A.NAME.weight                 base_model.model.X.lora_A.weight
 *   base_model.model.X.lora_embedding_A.NAME              base_model.model.X.lora_embedding_A
 *   base_model.model.X.lora_magnitude_vector.NAME.weight  base_model.model.X.lora_magnitude_vector
 *   base_model.model.X.modules_to_save.NAME.bias          base_model.model.X.bias
 *   prompt_encoder.NAME.embedding.weight                  prompt_embeddings
 *   base_model.model.X.base_layer.weight                  not there: the base model's X.weight
 *   base_model.model.X.original_module.weight             not there: the base model's X.weight */
#include "files/adapter.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"

static const char WRAPPED[] = "base_model.";
static const char PREFIX[] = "base_model.model.";
static const char PROMPT[] = "prompt_encoder.";
static const char PROMPT_IN_FILE[] = "prompt_embeddings";
static const char EMBEDDINGS[] = "word_embeddings.weight"; /* a copy of the base model's, saved with a prompt */
static const char SAVED[] = "modules_to_save";
static const char ORIGINAL[] = ".original_module";
static const char BASE_LAYER[] = ".base_layer";
static const char DEFAULT[] = "default";

/* The beginnings of the components that a method of PEFT adds to a name (PEFT_TYPE_TO_PREFIX_MAPPING; hada_ is LoHa's,
 * bone_ an older name of miss_). Everything below such a component belongs to the adapter. */
static const char *const methods[] = {
	"lora_",    "adamss_",   "adaption_prompt_", "beft_",     "boft_",       "bone_",     "c3a_",      "cartridge_",
	"cpt_",	    "deft_",     "delora_",          "fourierft_", "frod_",      "glora_",    "gralora_",  "hada_",
	"hira_",    "hra_",      "ia3_",             "lily_",      "ln_tuning_", "lokr_",     "miss_",     "oft_",
	"osf_",     "peanut_",   "poly_",            "psoft_",     "pvera_",     "randlora_", "road_",     "shadow_",
	"shira_",   "supertuning_", "tinylora_",     "trainable_tokens_", "unilora_", "vblora_", "vera_",  "waveft_",
	"xlora_",   NULL
};

/* -- one name -- */

static const char *component(const char *name, const char *what)
{
	const char *at = name;
	size_t n = strlen(what);

	while ((at = strstr(at, what)) && at > name && at[-1] != '.')
		at += n;
	return at;
}

static bool is_of_method(const char *component)
{
	size_t i;

	for (i = 0; methods[i]; i++)
		if (uns_str_starts(component, methods[i]))
			return true;
	return false;
}

/* The component that a method added; NULL = none. */
static const char *method_in(const char *name)
{
	for (; name; name = strchr(name, '.') ? strchr(name, '.') + 1 : NULL)
		if (is_of_method(name))
			return name;
	return NULL;
}

static const char *behind(const char *component)
{
	const char *dot = strchr(component, '.');

	return dot ? dot + 1 : NULL;
}

/* The frozen original of a trained module, or a copy of a weight of the base model: PEFT writes neither into a file. */
static bool is_left_out(const char *name)
{
	return strstr(name, ORIGINAL) || strcmp(name, EMBEDDINGS) == 0;
}

static bool is_adapters(const char *name)
{
	return method_in(name) || component(name, SAVED) || uns_str_starts(name, PROMPT) ||
	       strcmp(name, PROMPT_IN_FILE) == 0;
}

/* Does the last component of a name name a parameter of a module, and not the adapter? */
static bool is_parameter(const char *last)
{
	return strcmp(last, "weight") == 0 || strcmp(last, "bias") == 0;
}

const char *uns_adapter_of(const char *name, size_t *len)
{
	const char *at = component(name, SAVED), *last;

	if (!at && uns_str_starts(name, PROMPT))
		at = name;
	if (!at)
		at = method_in(name);
	at = at ? behind(at) : NULL;
	if (at && !strchr(at, '.') && is_parameter(at))
		at = NULL;
	if (!at && !method_in(name)) { /* of a method that this file does not know */
		last = strrchr(name, '.');
		at = component(name, DEFAULT);
		if (at && at[sizeof(DEFAULT) - 1] && at + sizeof(DEFAULT) - 1 != last)
			at = NULL;
	}
	*len = at ? strcspn(at, ".") : 0;
	return at;
}

static void cut(char *name, size_t at, size_t len)
{
	memmove(name + at, name + at + len, strlen(name + at + len) + 1);
}

/* Removes ".WHAT" from the name, if WHAT is a whole component. */
static bool drop(char *name, const char *what)
{
	size_t n = strlen(what);
	char *at = strstr(name, what);

	while (at && at[n] && at[n] != '.')
		at = strstr(at + n, what);
	if (at)
		cut(name, (size_t)(at - name), n);
	return at != NULL;
}

const char *uns_adapter_name(struct uns_arena *arena, const char *name)
{
	static const char DORA[] = "lora_magnitude_vector.weight";
	const char *wrapped = component(name, WRAPPED), *adapter;
	size_t len, at;
	char *out;

	if (uns_str_starts(name, PROMPT))
		return PROMPT_IN_FILE;
	if (strcmp(name, PROMPT_IN_FILE) == 0)
		return name;
	out = uns_arena_printf(arena, "%s%s", wrapped ? "" : PREFIX, wrapped ? wrapped : name);
	if (!out)
		return NULL;
	adapter = uns_adapter_of(out, &len);
	at = adapter ? (size_t)(adapter - out) - 1 : 0;
	if (adapter && component(out, SAVED))
		cut(out, at - sizeof(SAVED), sizeof(SAVED) + 1 + len);
	else if (adapter)
		cut(out, at, len + 1);
	/* peft made this parameter a module, but files still have its name without "weight". */
	if (uns_str_ends(out, DORA))
		out[strlen(out) - strlen(".weight")] = '\0';
	return out;
}

bool uns_adapter_is_base(const struct uns_tensor *t)
{
	return uns_role_is_model(t->role) && !t->of_adapter && !is_adapters(t->name) &&
	       strcmp(t->name, EMBEDDINGS) != 0;
}

/* Prompt learning wraps the model itself. Other methods wrap a tuner that holds the model as "model". */
const char *uns_adapter_wrapper(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].of_adapter && uns_str_starts(cat->tensors[i].name, PROMPT))
			return WRAPPED;
	return PREFIX;
}

const char *uns_adapter_base_name(struct uns_arena *arena, const char *wrapper, const char *name)
{
	const char *wrapped = component(name, wrapper);
	size_t before = wrapped ? (size_t)(wrapped - name) : 0, n = wrapped ? strlen(wrapper) : 0;
	char *out = uns_arena_printf(arena, "%.*s%s", (int)before, name, name + before + n);

	while (out && (drop(out, BASE_LAYER) || drop(out, ORIGINAL)))
		;
	return out;
}

/* -- a catalog -- */

struct search {
	struct uns_catalog *cat;
	struct uns_arena scratch;
	struct uns_map weights; /* by name */
	struct uns_map params; /* names in memory of the parameters that have optimizer states */
	struct uns_map by_file_name; /* name in PEFT's files -> name in memory; "" if two parameters have the same */
};

static void search_fini(struct search *s)
{
	uns_map_fini(&s->weights);
	uns_map_fini(&s->params);
	uns_map_fini(&s->by_file_name);
	uns_arena_fini(&s->scratch);
}

static bool is_wrapped(const char *name)
{
	return component(name, PREFIX) || uns_str_starts(name, WRAPPED) || uns_str_starts(name, PROMPT) ||
	       strcmp(name, PROMPT_IN_FILE) == 0;
}

/* What the names of a catalog's weights show. */
struct seen {
	bool wrapped; /* PEFT's model, or one into which transformers put an adapter: its config lies beside */
	bool lora;    /* names that only the layers which an adapter wraps have */
	bool adapter, base;
	bool in_file; /* an adapter's tensor under its name in PEFT's files */
};

static bool is_in_adapter_file(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	return t->n_pieces &&
	       uns_str_starts(uns_path_name(cat->files[cat->pieces[t->first_piece].file].path), "adapter_model.");
}

static struct seen look(const struct search *s)
{
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	struct seen seen = { .wrapped = uns_catalog_companion(s->cat, "adapter_config.json") };
	bool own, trained;
	size_t len;

	for (; t < end; t++) {
		if (t->role != UNS_ROLE_WEIGHT)
			continue;
		own = is_adapters(t->name);
		trained = uns_map_get(&s->params, t->name);
		seen.wrapped |= is_wrapped(t->name);
		seen.lora |= strstr(t->name, ".lora_") != NULL;
		seen.adapter |= own || (trained && is_wrapped(t->name));
		seen.base |= !own && !trained && !is_left_out(t->name);
		seen.in_file |= is_in_adapter_file(s->cat, t) || (own && !uns_adapter_of(t->name, &len));
	}
	return seen;
}

static int add_param(struct search *s, const char *name, struct uns_err *err)
{
	const char *file_name;
	void *old = NULL;

	if (uns_map_get(&s->params, name))
		return 0;
	file_name = uns_adapter_name(&s->scratch, name);
	if (!file_name || !uns_map_put(&s->params, name, (void *)name, NULL) ||
	    !uns_map_put(&s->by_file_name, file_name, (void *)name, &old))
		return uns_oom(err);
	if (old && !uns_map_put(&s->by_file_name, file_name, (void *)"", NULL))
		return uns_oom(err);
	return 0;
}

static int find_params(struct search *s, struct uns_err *err)
{
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;

	for (; t < end; t++)
		if (uns_role_is_optimizer(t->role))
			UNS_TRY(add_param(s, t->name, err));
	return 0;
}

/* 1 = a weight had its name in PEFT's files: then the catalog has no tensor of another model. */
static int name_as_in_memory(struct search *s, struct uns_err *err)
{
	struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	const char *file_name, *name;
	int renamed = 0;

	for (; t < end; t++) {
		if (!uns_role_is_model(t->role) || uns_map_get(&s->params, t->name))
			continue;
		file_name = uns_adapter_name(&s->scratch, t->name);
		if (!file_name)
			return uns_oom(err);
		name = strcmp(file_name, t->name) == 0 ? uns_map_get(&s->by_file_name, file_name) : NULL;
		if (!name || !*name)
			continue;
		t->name = name;
		t->inferred = true;
		renamed = 1;
	}
	return renamed ? uns_catalog_assign_groups(s->cat, err) < 0 ? -ENOMEM : 1 : 0;
}

/* A layer's name of a tensor that the whole model's adapter has once ("base_model.vera_A.NAME"): PEFT saves only the
 * latter. */
static bool is_shared(const struct search *s, const char *name)
{
	const char *method = method_in(name);
	char whole[128];

	if (!method || !component(name, PREFIX) ||
	    snprintf(whole, sizeof(whole), "%s%s", WRAPPED, method) >= (int)sizeof(whole))
		return false;
	return uns_map_get(&s->weights, whole) != NULL;
}

static bool belongs(const struct search *s, const struct uns_tensor *t, enum uns_adapter adapter)
{
	if (is_shared(s, t->name))
		return false;
	if (is_adapters(t->name) || uns_map_get(&s->params, t->name))
		return true;
	return adapter == UNS_ADAPTER_ALONE && t->role == UNS_ROLE_WEIGHT && !is_left_out(t->name);
}

static int mark(struct search *s, enum uns_adapter adapter, struct uns_err *err)
{
	struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;

	for (; t < end; t++)
		if (uns_role_is_model(t->role) && !uns_map_put(&s->weights, t->name, t, NULL))
			return uns_oom(err);

	s->cat->summary.adapter = adapter;
	s->cat->summary.wants_config &= adapter != UNS_ADAPTER_ALONE; /* the model into which it is loaded has one */
	for (t = s->cat->tensors; t < end; t++)
		t->of_adapter = uns_role_is_model(t->role) && belongs(s, t, adapter);
	return 0;
}

int uns_adapter_find(struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(search_fini) struct search s = { .cat = cat };
	struct seen seen = look(&s);
	int renamed;

	if (!seen.wrapped && !seen.lora)
		return 0;
	UNS_TRY(find_params(&s, err));
	UNS_TRY(renamed = name_as_in_memory(&s, err));
	seen = look(&s);
	if (seen.in_file || renamed || (seen.adapter && !seen.base))
		return mark(&s, UNS_ADAPTER_ALONE, err);
	if (seen.adapter && seen.wrapped)
		return mark(&s, UNS_ADAPTER_AND_BASE, err);
	return 0;
}
