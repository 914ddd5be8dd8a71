/* Makes adapter_config.json: r, target_modules, bias and modules_to_save as files/lora.h reads them, lora_alpha as it
 * is recorded somewhere. A key that is not written has PEFT's default, as in LoraConfig (peft 0.21.2).
 *
 * Modules are written by their whole names: a last component ("q_proj") might fit modules that were not adapted. */
#include "files/adapter_config.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "files/lora.h"
#include "wire/json_text.h"

static const char NAME[] = "adapter_config.json";

static const struct {
	const char *key;
	const char *assumed; /* PEFT's default, as JSON; NULL = nothing is assumed for it */
} facts[] = {
	[UNS_ADAPTER_ALPHA] = { "lora_alpha", NULL },
	[UNS_ADAPTER_ALPHA_PATTERN] = { "alpha_pattern", "{}" },
	[UNS_ADAPTER_BASE] = { "base_model_name_or_path", "null" },
	[UNS_ADAPTER_RSLORA] = { "use_rslora", "false" },
};

const char *uns_adapter_fact_key(enum uns_adapter_fact fact)
{
	return facts[fact].key;
}

static void keys_write(struct uns_text *t, const char *key, const struct uns_map *map)
{
	const char *name, *comma = "";
	size_t at = 0;
	void *value;

	uns_text_printf(t, ",\"%s\":[", key);
	while (uns_map_next(map, &at, &name, &value)) {
		uns_text_str(t, comma);
		uns_text_json_str(t, name);
		comma = ",";
	}
	uns_text_str(t, "]");
}

/* PEFT matches these keys against the ends of modules' names, as regular expressions: ^ makes them whole names. */
static int ranks_write(struct uns_text *t, const struct uns_lora *lora, struct uns_arena *arena, struct uns_err *err)
{
	const char *name, *pattern, *comma = "";
	size_t at = 0;
	void *value;

	uns_text_str(t, ",\"rank_pattern\":{");
	while (uns_map_next(&lora->modules, &at, &name, &value)) {
		if (uns_map_index(&lora->modules, name) == lora->r)
			continue;
		UNS_TRY_ALLOC(pattern = uns_arena_printf(arena, "^%s", name), err);
		uns_text_str(t, comma);
		uns_text_json_str(t, pattern);
		uns_text_printf(t, ":%u", uns_map_index(&lora->modules, name));
		comma = ",";
	}
	uns_text_str(t, "}");
	return 0;
}

static int config_write(const struct uns_adapter_facts *known, const struct uns_lora *lora, struct uns_arena *arena,
			struct uns_text *t, struct uns_err *err)
{
	size_t i;

	uns_text_printf(t, "{\"peft_type\":\"LORA\",\"inference_mode\":true,\"r\":%u,\"bias\":\"%s\",\"use_dora\":%s",
			lora->r, lora->bias, lora->dora ? "true" : "false");
	if (lora->lora_bias) /* peft before 0.14 does not know the key */
		uns_text_str(t, ",\"lora_bias\":true");
	for (i = 0; i < UNS_N_ADAPTER_FACTS; i++)
		uns_text_printf(t, ",\"%s\":%s", facts[i].key, known->v[i].json ? known->v[i].json : facts[i].assumed);
	keys_write(t, "target_modules", &lora->modules);
	if (lora->saved.n)
		keys_write(t, "modules_to_save", &lora->saved);
	UNS_TRY(ranks_write(t, lora, arena, err));
	uns_text_str(t, "}");
	return t->failed ? uns_oom(err) : 0;
}

/* "lora_alpha = 16 (the store), .. Assumed, as no file records them: .." */
static int origin_write(const struct uns_adapter_facts *known, struct uns_text *t, struct uns_err *err)
{
	const char *comma = "";
	size_t i;

	uns_text_str(t, "made: r, target_modules, bias and modules_to_save follow from the tensors' names and shapes");
	for (i = 0; i < UNS_N_ADAPTER_FACTS; i++)
		if (known->v[i].json)
			uns_text_printf(t, "; %s = %s is from %s", facts[i].key, known->v[i].json, known->v[i].origin);
	uns_text_str(t, "; assumed, because no file records it: ");
	for (i = 0; i < UNS_N_ADAPTER_FACTS; i++)
		if (!known->v[i].json) {
			uns_text_printf(t, "%s%s = %s", comma, facts[i].key, facts[i].assumed);
			comma = ", ";
		}
	uns_text_printf(t, "%sthe base model as it was published (no PiSSA, OLoRA, CorDA, LoftQ or EVA)", comma);
	return t->failed ? uns_oom(err) : 0;
}

static int make(const struct uns_adapter_facts *known, const struct uns_lora *lora, struct uns_vtree *out,
		struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text json = UNS_TEXT_INIT, text = UNS_TEXT_INIT, origin = UNS_TEXT_INIT;

	UNS_TRY(config_write(known, lora, &out->arena, &json, err));
	UNS_TRY(origin_write(known, &origin, err));
	uns_json_text_indent(&text, uns_span_of(json.p, json.len), 0);
	uns_text_str(&text, "\n");
	if (text.failed)
		return uns_oom(err);
	UNS_TRY(uns_vtree_add_text(out, NAME, text.p, text.len, uns_arena_str(&out->arena, origin.p), err));
	return uns_vtree_note(out, err, "%s was not found and is %s", NAME, origin.p);
}

static int note_needed(const struct uns_adapter_facts *known, bool is_lora, struct uns_vtree *out, struct uns_err *err)
{
	if (is_lora && known->run)
		return uns_vtree_note(
			out, err,
			"PeftModel.from_pretrained needs an adapter_config.json, which was not found. All "
			"of it but lora_alpha follows from the tensors: `unshard meta set %s "
			"lora_alpha=N`, with the N of the training, has it made. Or put the file into the "
			"run directory, or mount with -o model=DIR where DIR holds it",
			known->run);
	return uns_vtree_note(out, err,
			      "these weights are a PEFT adapter, and its adapter_config.json was "
			      "not found, which PeftModel.from_pretrained needs: put it into the "
			      "run directory, or mount with -o model=DIR where DIR holds it");
}

int uns_adapter_config_add(const struct uns_adapter_config *in, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_adapter_list_fini) struct uns_adapter_list all = { 0 };
	UNS_CLEANUP(uns_lora_fini) struct uns_lora lora = { 0 };
	size_t i;

	for (i = 0; i < in->n_borrowed; i++)
		if (strcmp(in->borrowed[i].name, NAME) == 0)
			return 0;
	UNS_TRY(uns_adapter_list(in->catalog, in->other, &all, err));
	UNS_TRY(uns_lora_read(in->catalog, &all.v[all.chosen], &out->arena, &lora, err));
	if (lora.unlike || !in->facts->v[UNS_ADAPTER_ALPHA].json)
		return note_needed(in->facts, !lora.unlike, out, err);
	return make(in->facts, &lora, out, err);
}

int uns_adapter_config_text(const struct uns_adapter_config *in, struct uns_arena *arena, struct uns_span *out,
			    struct uns_err *err)
{
	UNS_CLEANUP(uns_adapter_list_fini) struct uns_adapter_list all = { 0 };
	UNS_CLEANUP(uns_lora_fini) struct uns_lora lora = { 0 };
	UNS_CLEANUP(uns_text_fini) struct uns_text json = UNS_TEXT_INIT;
	const char *text;

	*out = uns_span_of("", 0);
	UNS_TRY(uns_adapter_list(in->catalog, in->other, &all, err));
	UNS_TRY(uns_lora_read(in->catalog, &all.v[all.chosen], arena, &lora, err));
	if (lora.unlike || !in->facts->v[UNS_ADAPTER_ALPHA].json)
		return 0;
	UNS_TRY(config_write(in->facts, &lora, arena, &json, err));
	UNS_TRY_ALLOC(text = uns_arena_strn(arena, json.p, json.len), err);
	*out = uns_span_of(text, json.len);
	return 0;
}
