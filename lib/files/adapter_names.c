/* PEFT's naming of adapter tensors. Owns that convention and nothing else.
 * Source: huggingface/peft 000b584, src/peft/utils/save_and_load.py, get_peft_model_state_dict:
 *
 *   base_model.model.X.lora_A.default.weight        -> base_model.model.X.lora_A.weight
 *   base_model.model.X.lora_embedding_A.default     -> base_model.model.X.lora_embedding_A
 *   base_model.model.X.lora_magnitude_vector.default.weight
 *                                                   -> base_model.model.X.lora_magnitude_vector
 *   base_model.model.X.modules_to_save.default.bias -> base_model.model.X.bias
 *   base_model.model.X.original_module.weight       not saved */
#include "files/adapter_names.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"

static const char PREFIX[] = "base_model.model.";
static const char WRAPPER[] = ".modules_to_save.default";
static const char ADAPTER[] = ".default";
static const char DORA[] = ".lora_magnitude_vector.default.weight";

static bool is_model_tensor(const struct uns_tensor *t)
{
	return t->role == UNS_ROLE_WEIGHT || t->role == UNS_ROLE_BUFFER;
}

/* Does the catalog hold the layer that the LoRA tensor `name` adapts? */
static int base_is_there(const struct uns_map *names, const char *name, struct uns_arena *arena,
			 bool *out)
{
	static const char *const weights[] = { "weight", "base_layer.weight" };
	size_t i, len = (size_t)(strstr(name, ".lora_") - name);
	const char *base;

	for (i = 0; i < 2; i++) {
		base = uns_arena_printf(arena, "%.*s.%s", (int)len, name, weights[i]);
		if (!base)
			return -ENOMEM;
		*out |= uns_map_get(names, base) != NULL;
	}
	return 0;
}

int uns_adapter_is(const struct uns_catalog *cat, bool *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map names = UNS_MAP_INIT;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	bool base = false;
	size_t i, n_lora = 0;

	*out = false;
	for (i = 0; i < cat->n_tensors; i++)
		if (is_model_tensor(&cat->tensors[i]) &&
		    !uns_map_put(&names, cat->tensors[i].name, &cat->tensors[i], NULL))
			return uns_oom(err);
	for (i = 0; i < cat->n_tensors && !base; i++) {
		const char *name = cat->tensors[i].name;

		if (!is_model_tensor(&cat->tensors[i]) || !strstr(name, ".lora_"))
			continue;
		n_lora++;
		if (base_is_there(&names, name, &arena, &base) < 0)
			return uns_oom(err);
	}
	*out = n_lora && !base;
	return 0;
}

static void cut(char *name, size_t at, size_t len)
{
	memmove(name + at, name + at + len, strlen(name + at + len) + 1);
}

/* The adapter's name is the last component of a bare parameter, the second last of a module's. */
static void drop_adapter(char *name)
{
	size_t n = strlen(name), m = sizeof(ADAPTER) - 1;
	char *last;

	/* Once a parameter, now a module: its "weight" never reached the files. */
	if (uns_str_ends(name, DORA)) {
		n -= sizeof(".weight") - 1;
		name[n] = '\0';
	}
	last = strrchr(name, '.');
	if (uns_str_ends(name, ADAPTER))
		name[n - m] = '\0';
	else if (last && (size_t)(last - name) > m && memcmp(last - m, ADAPTER, m) == 0)
		cut(name, (size_t)(last - name) - m, m);
}

const char *uns_adapter_name(struct uns_arena *arena, const char *name)
{
	bool has_prefix = uns_str_starts(name, PREFIX);
	char *out = uns_arena_printf(arena, "%s%s", has_prefix ? "" : PREFIX, name), *wrapper;

	if (!out)
		return NULL;
	wrapper = strstr(out, WRAPPER);
	if (wrapper && wrapper[sizeof(WRAPPER) - 1] == '.')
		cut(out, (size_t)(wrapper - out), sizeof(WRAPPER) - 1);
	else if (strstr(out, ".lora_"))
		drop_adapter(out);
	return out;
}

bool uns_adapter_leaves_out(const char *name)
{
	return strstr(name, ".original_module.") != NULL;
}
