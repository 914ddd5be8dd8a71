/* PEFT's names of tensors. Owns that convention and nothing else. Source: peft 0.21.2, tuners/tuners_utils.py
 * (_remove_adapter_name_from_state_dict_key), utils/other.py (ModulesToSaveWrapper) and utils/save_and_load.py
 * (get_peft_model_state_dict):
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

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alike.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/other_lora.h"

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
/* clang-format off */
static const char *const methods[] = {
	"lora_", "adamss_", "adaption_prompt_", "beft_", "boft_", "bone_", "c3a_", "cartridge_", "cpt_", "deft_",
	"delora_", "fourierft_", "frod_", "glora_", "gralora_", "hada_", "hira_", "hra_", "ia3_", "lily_",
	"ln_tuning_", "lokr_", "miss_", "oft_", "osf_", "peanut_", "poly_", "psoft_", "pvera_", "randlora_", "road_",
	"shadow_", "shira_", "supertuning_", "tinylora_", "trainable_tokens_", "unilora_", "vblora_", "vera_",
	"waveft_", "xlora_", NULL,
};
/* clang-format on */

/* -- one name -- */

/* The first place in the name where a component begins with `what`; NULL = there is none. */
static const char *component_find(const char *name, const char *what)
{
	const char *at = name;
	size_t n = strlen(what);

	while ((at = strstr(at, what)) && at > name && at[-1] != '.')
		at += n;
	return at;
}

const char *uns_adapter_part(const char *name)
{
	const char *dot;
	size_t i;

	if (uns_other_lora_program(name))
		return NULL;
	for (; name; name = dot ? dot + 1 : NULL) {
		dot = strchr(name, '.');
		for (i = 0; methods[i]; i++)
			if (*name == *methods[i] &&
			    uns_str_starts(name, methods[i])) /* of 400,000 names few begin so */
				return name;
	}
	return NULL;
}

/* The frozen original of a trained module, or a copy of a weight of the base model: PEFT writes neither into a file. */
static bool is_left_out(const char *name)
{
	return strstr(name, ORIGINAL) || strcmp(name, EMBEDDINGS) == 0;
}

static bool is_adapters(const char *name)
{
	return uns_adapter_part(name) || component_find(name, SAVED) || uns_str_starts(name, PROMPT) ||
	       strcmp(name, PROMPT_IN_FILE) == 0;
}

const char *uns_adapter_of(const char *name, size_t *len)
{
	const char *method = uns_adapter_part(name), *at = component_find(name, SAVED);

	if (!at && uns_str_starts(name, PROMPT))
		at = name;
	if (!at)
		at = method;
	at = at ? strchr(at, '.') : NULL;
	at = at ? at + 1 : NULL;
	/* The last component may be a parameter of a module instead of the adapter's name. */
	if (at && (strcmp(at, "weight") == 0 || strcmp(at, "bias") == 0))
		at = NULL;
	if (!at && !method) { /* of a method that this file does not know */
		at = component_find(name, DEFAULT);
		if (at && at[strlen(DEFAULT)] && at + strlen(DEFAULT) != strrchr(name, '.'))
			at = NULL;
	}
	*len = at ? strcspn(at, ".") : 0;
	return at;
}

static void name_cut(char *name, size_t at, size_t len)
{
	memmove(name + at, name + at + len, strlen(name + at + len) + 1);
}

/* Removes ".WHAT" from the name, if WHAT is a whole component. */
static bool name_drop(char *name, const char *what)
{
	size_t n = strlen(what);
	char *at = strstr(name, what);

	while (at && at[n] && at[n] != '.')
		at = strstr(at + n, what);
	if (at)
		name_cut(name, (size_t)(at - name), n);
	return at != NULL;
}

const char *uns_adapter_name(struct uns_arena *arena, const char *name)
{
	static const char DORA[] = "lora_magnitude_vector.weight";
	const char *wrapped = component_find(name, WRAPPED), *adapter;
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
	if (adapter && component_find(out, SAVED))
		name_cut(out, at - sizeof(SAVED), sizeof(SAVED) + 1 + len);
	else if (adapter)
		name_cut(out, at, len + 1);
	/* peft made this parameter a module, but files still have its name without "weight". */
	if (uns_str_ends(out, DORA))
		out[strlen(out) - strlen(".weight")] = '\0';
	return out;
}

const char *uns_adapter_name_in_memory(struct uns_arena *arena, const char *name, const char *adapter)
{
	const char *part = uns_adapter_part(name), *last = strrchr(name, '.');
	size_t n;

	if (strcmp(name, PROMPT_IN_FILE) == 0)
		return uns_arena_printf(arena, "%s%s.embedding.weight", PROMPT, adapter);
	if (!part && last)
		return uns_arena_printf(arena, "%.*s.%s.%s%s", (int)(last - name), name, SAVED, adapter, last);
	if (!part)
		return uns_arena_str(arena, name);
	n = strcspn(part, ".");
	return uns_arena_printf(arena, "%.*s.%s%s", (int)(part - name + (ptrdiff_t)n), name, adapter,
				strcmp(part, "lora_magnitude_vector") == 0 ? ".weight" : part + n);
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
	const char *wrapped = component_find(name, wrapper);
	size_t before = wrapped ? (size_t)(wrapped - name) : 0, n = wrapped ? strlen(wrapper) : 0;
	char *out = uns_arena_printf(arena, "%.*s%s", (int)before, name, name + before + n);

	while (out && (name_drop(out, BASE_LAYER) || name_drop(out, ORIGINAL)))
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
	return component_find(name, PREFIX) || uns_str_starts(name, WRAPPED) || uns_str_starts(name, PROMPT) ||
	       strcmp(name, PROMPT_IN_FILE) == 0;
}

/* The original of a layer that an adapter wraps. */
static bool is_wrapped_layer(const char *name)
{
	const char *at = strstr(name, BASE_LAYER);

	return at && at[strlen(BASE_LAYER)] == '.';
}

/* An adapter has this name if `add_adapter` of transformers or diffusers was given none. Models whose own layers are of
 * PEFT have others ("speech" of Phi-4-multimodal). */
static bool is_of_default(const char *name)
{
	size_t len;
	const char *adapter = uns_adapter_of(name, &len);

	return adapter && len == strlen(DEFAULT) && strncmp(adapter, DEFAULT, len) == 0;
}

/* What the names of a catalog's weights show. */
struct seen {
	bool wrapped; /* PEFT's model, or one into which transformers put an adapter: its config lies beside */
	bool layers, by_default; /* or the names show it: of wrapped layers, and of an adapter that was given none */
	bool lora; /* names that only the layers which an adapter wraps have */
	bool adapter, base;
	bool in_file; /* an adapter's tensor under its name in PEFT's files */
};

static void name_look(const struct search *s, const char *name, struct seen *seen)
{
	const bool own = is_adapters(name), trained = uns_map_get(&s->params, name);
	size_t len;

	seen->wrapped |= is_wrapped(name);
	seen->layers |= is_wrapped_layer(name);
	seen->by_default |= own && is_of_default(name);
	seen->lora |= strstr(name, ".lora_") != NULL;
	seen->adapter |= own || (trained && is_wrapped(name));
	seen->base |= !own && !trained && !is_left_out(name);
	seen->in_file |= own && !uns_adapter_of(name, &len);
}

static bool is_in_file(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	return t->n_pieces &&
	       uns_str_starts(uns_path_name(cat->files[cat->pieces[t->first_piece].file].path), "adapter_model.");
}

/* The params that are trained are a matter of each name; all else is the same of names that are alike. */
static struct seen names_look(const struct search *s)
{
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	struct seen seen = { .wrapped = uns_catalog_companion(s->cat, "adapter_config.json") };
	struct uns_alike alike = { 0 };
	bool is_new = true;

	for (; t < end; t++) {
		if (t->role != UNS_ROLE_WEIGHT)
			continue;
		if (!s->params.n)
			uns_alike_find(&alike, t->name, &is_new);
		if (is_new)
			name_look(s, t->name, &seen);
		seen.in_file |= is_in_file(s->cat, t);
	}
	seen.wrapped |= seen.layers && seen.by_default;
	return seen;
}

/* Lists the parameters that have optimizer states. */
static int params_find(struct search *s, struct uns_err *err)
{
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	const char *file_name;
	void *old;

	for (; t < end; t++) {
		if (!uns_role_is_optimizer(t->role) || uns_map_get(&s->params, t->name))
			continue;
		old = NULL;
		UNS_TRY_ALLOC(file_name = uns_adapter_name(&s->scratch, t->name), err);
		UNS_TRY_ALLOC(uns_map_put(&s->params, t->name, (void *)t->name, NULL), err);
		UNS_TRY_ALLOC(uns_map_put(&s->by_file_name, file_name, (void *)t->name, &old), err);
		if (old)
			UNS_TRY_ALLOC(uns_map_put(&s->by_file_name, file_name, (void *)"", NULL), err);
	}
	return 0;
}

/* 1 = a weight had its name in PEFT's files: then the catalog has no tensor of another model. */
static int tensors_rename(struct search *s, struct uns_err *err)
{
	struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	const char *file_name, *name;
	int renamed = 0;

	for (; t < end; t++) {
		if (!uns_role_is_model(t->role) || uns_map_get(&s->params, t->name))
			continue;
		UNS_TRY_ALLOC(file_name = uns_adapter_name(&s->scratch, t->name), err);
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
	const char *method = uns_adapter_part(name);
	char whole[128];

	if (!method || !component_find(name, PREFIX) ||
	    snprintf(whole, sizeof(whole), "%s%s", WRAPPED, method) >= (int)sizeof(whole))
		return false;
	return uns_map_get(&s->weights, whole) != NULL;
}

static int tensors_mark(struct search *s, enum uns_adapter adapter, struct uns_err *err)
{
	struct uns_tensor *t, *end = s->cat->tensors + s->cat->n_tensors;

	for (t = s->cat->tensors; t < end; t++)
		if (uns_role_is_model(t->role))
			UNS_TRY_ALLOC(uns_map_put(&s->weights, t->name, t, NULL), err);
	s->cat->summary.adapter = adapter;
	s->cat->summary.wants_config &= adapter != UNS_ADAPTER_ALONE; /* the model into which it is loaded has one */
	for (t = s->cat->tensors; t < end; t++)
		t->of_adapter = uns_role_is_model(t->role) && !is_shared(s, t->name) &&
				(is_adapters(t->name) || uns_map_get(&s->params, t->name) ||
				 (adapter == UNS_ADAPTER_ALONE && t->role == UNS_ROLE_WEIGHT && !is_left_out(t->name)));
	return 0;
}

int uns_adapter_find(struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(search_fini) struct search s = { .cat = cat };
	struct seen seen = names_look(&s);
	int renamed;

	if (cat->summary.is_megatron && seen.lora) { /* on Megatron's modules, which PEFT puts on no other model */
		cat->summary.adapter = UNS_ADAPTER_OTHER;
		return 0;
	}
	if (!seen.wrapped && !seen.lora) {
		uns_other_lora_find(cat);
		return 0;
	}
	UNS_TRY(params_find(&s, err));
	UNS_TRY(renamed = tensors_rename(&s, err));
	seen = names_look(&s);
	if (seen.in_file || renamed || (seen.adapter && !seen.base))
		return tensors_mark(&s, UNS_ADAPTER_ALONE, err);
	if (seen.adapter && seen.wrapped)
		return tensors_mark(&s, UNS_ADAPTER_AND_BASE, err);
	uns_other_lora_find(cat);
	return 0;
}

int uns_adapter_absence(const struct uns_catalog *cat, struct uns_err *why)
{
	return UNS_CATALOG_FAIL(cat, why, NO_ADAPTER, .scope = UNS_SCOPE_WEIGHTS);
}
