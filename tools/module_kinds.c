/* The table of kinds. The page's script gets the same table. */
#include "module_kinds.h"

#include <string.h>

#include "json.h"

#define MARKS(...)                              \
	(const char *const[])                   \
	{                                       \
		__VA_ARGS__ __VA_OPT__(, ) NULL \
	}

const struct module_kind module_kinds[N_MODULE_KINDS] = {
	{ "embeddings", "#4477aa", MARKS("embed", "wte", "wpe") },
	{ "experts", "#aa3377", MARKS("expert", "router", ".moe.", ".gate.weight", ".gate.bias") },
	{ "attention", "#228833",
	  MARKS("attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "qkv", "linear_proj") },
	{ "MLP", "#ccaa22",
	  MARKS("mlp", "ffn", "feed_forward", "fc1", "fc2", "gate_proj", "up_proj", "down_proj", "dense") },
	{ "norms", "#66ccee", MARKS("norm", "ln_", ".ln.") },
	{ "head", "#ee6677", MARKS("head", "output_layer", "score", "classifier") },
	{ "other", "#8892a0", MARKS() },
};

size_t module_kind_of(const char *tensor_name)
{
	const char *const *mark;
	size_t i;

	for (i = 0; i + 1 < N_MODULE_KINDS; i++)
		for (mark = module_kinds[i].marks; *mark; mark++)
			if (strcasestr(tensor_name, *mark))
				return i;
	return i;
}

size_t module_layer(const char *name)
{
	const char *s;
	size_t n;

	for (s = name; *s; s += n + (s[n] == '.')) {
		n = strcspn(s, ".");
		if (n && strspn(s, "0123456789") == n)
			return (size_t)(s - name) + n;
	}
	return 0;
}

cJSON *module_kinds_json(void)
{
	cJSON *kinds = json_array(), *kind, *marks;
	const char *const *mark;
	size_t i;

	for (i = 0; i < N_MODULE_KINDS; i++) {
		kind = json_array();
		marks = json_array();
		json_append(kind, json_string(module_kinds[i].name));
		json_append(kind, json_string(module_kinds[i].colour));
		for (mark = module_kinds[i].marks; *mark; mark++)
			json_append(marks, json_string(*mark));
		json_append(kind, marks);
		json_append(kinds, kind);
	}
	return kinds;
}
