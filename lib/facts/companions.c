/* Which config, tokenizer, processor and adapter files a view shows beside the weights. Each set comes
 * from one directory and is never mixed: the checkpoint, then the run directory, then -o model=, then
 * the store's fact "model". */
#include "facts/companions.h"

#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "facts/adapted_model.h"
#include "facts/adapter_facts.h"
#include "facts/described_model.h"
#include "facts/hub.h"
#include "facts/named_model.h"
#include "facts/pipelines.h"
#include "facts/siblings.h"
#include "megatron/rank_files.h"
#include "names/base_names.h"
#include "names/prefixes.h"
#include "wire/json.h"

enum { CONFIG_LIMIT_BYTES = 16 << 20 };

struct candidate {
	const struct uns_root *root;
	const char *path;
	struct uns_listing list;
	const char *what; /* how notes name the directory */
	bool own;         /* it is the checkpoint, or a directory in it */
};

struct search {
	const struct companions_input *in;
	struct uns_catalog *cat;
	struct companions *out;
	/* The run's directory, and the root that it is below, which may be above SOURCE; NULL = in no run. */
	const struct uns_root *run_root;
	const char *run;
	struct candidate *candidate;
	size_t n, cap;
	size_t first_named, end_named; /* those that -o model= or the fact "model" names */
	bool has_tokenizer, has_processor;
};

#define CONFIG     "config.json", "generation_config.json"
#define MCA_CONFIG UNS_MEGATRON_MCA_CONFIG
#define TOKENIZER                                                                                              \
	"tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model", \
		"*.tiktoken", "chat_template.*", "tokenization_*.py"
#define PROCESSOR "*processor*.json"
#define ADAPTER   "adapter_config.json"
#define MODULES   "modules.json"
#define PIPELINE  "model_index.json"
#define SENTENCE  MODULES, "config_sentence_transformers.json", "sentence_*_config.json", "wordembedding_config.json"

static const char *const tokenizer_globs[] = { TOKENIZER, NULL };
/* A directory has a tokenizer if it has one of these files; the same below for the other sets. */
static const char *const tokenizer_marks[] = { "tokenizer.json", "tokenizer_config.json",
					       "vocab.*",        "*.model",
					       "*.tiktoken",     NULL };
static const char *const processor_globs[] = { PROCESSOR, NULL };
static const char *const adapter_globs[] = { ADAPTER, NULL };
static const char *const sentence_globs[] = { SENTENCE, NULL };
/* What the directory of one module of sentence-transformers holds: besides weights, and with them. */
#define MODULE "*config.json", TOKENIZER, PROCESSOR
static const char *const all_globs[] = { "*", NULL };
static const char *const module_globs[] = { MODULE, NULL };
static const char *const saved_module_globs[] = { MODULE, "model*.safetensors*", "pytorch_model*.bin*", NULL };
/* All names that are looked for in a directory's listing: others may come and go. */
static const char *const looked_for[] = { CONFIG,  MCA_CONFIG, DESCRIBED_FILES, TOKENIZER, PROCESSOR,
					  ADAPTER, SENTENCE,   PIPELINE,        NULL };

static bool matches(const char *const *globs, const char *name)
{
	for (; *globs; globs++)
		if (uns_str_glob(*globs, name))
			return true;
	return false;
}

static int note(struct search *s, const struct uns_finding *f, struct uns_err *err)
{
	return uns_findings_add(&s->out->notes, &s->out->arena, f, err);
}

static int note_unusable(struct search *s, enum uns_finding_id id, const char *dir, const struct uns_err *why,
			 struct uns_err *err)
{
	return note(s, UNS_FINDING(.id = id, .found = uns_str(dir), .arg = { { "cause", uns_str(why->text) } }), err);
}

/* Adds a directory to those that are searched. If the directory does not exist it is left out, with a note
 * if the user named it. If it cannot be listed at this moment the search fails, because the directory may
 * hold the files. */
static int add_candidate(struct search *s, const struct uns_root *root, const char *path, const char *what, bool own,
			 struct uns_err *err)
{
	struct candidate c = { .root = root, .path = path, .what = what, .own = own };
	struct uns_err why = { 0 };
	int code;

	UNS_TRY_ALLOC(path, err);
	code = uns_list_fitting(root, s->cat->capture, path, looked_for, &s->out->arena, &c.list, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return root == s->in->root || root == s->run_root
			       ? 0
			       : note_unusable(s, UNS_FOUND_MODEL_DIR_UNUSABLE, uns_root_path(root), &why, err);
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(&s->out->arena, s->candidate, s->n, s->cap), err);
	s->candidate[s->n++] = c;
	return 0;
}

/* *value = the text of a fact of the store; NULL = there is no such fact. */
static int text_fact(struct search *s, const char *key, const char **value, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct uns_arena *arena = &s->out->arena;
	struct uns_store_fact *v;
	size_t n, i = 0;

	*value = NULL;
	UNS_TRY(store_facts_known(s->in->store, s->in->path, s->in->has_facts, arena, &v, &n, err));
	while (i < n && strcmp(v[i].key, key) != 0)
		i++;
	if (i == n || uns_json_parse(uns_span_of(v[i].json, strlen(v[i].json)), &json, NULL) < 0)
		return 0;
	if (!cJSON_IsString(json))
		return 0;
	*value = uns_arena_str(arena, json->valuestring);
	return *value ? 0 : uns_oom(err);
}

/* The directory that the user named for this checkpoint or its run by `unshard meta set`. */
static int add_model_fact(struct search *s, struct uns_err *err)
{
	struct uns_err why = { 0 };
	const char *dir;
	int code;

	UNS_TRY(text_fact(s, "model", &dir, err));
	if (!dir)
		return 0;
	code = hub_root_open(dir, s->cat->capture, &s->out->model, &why);
	if (code == 0)
		return add_candidate(s, s->out->model, "", uns_root_path(s->out->model), false, err);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	return note_unusable(s, UNS_FOUND_MODEL_FACT_UNUSABLE, dir, &why, err);
}

/* Accelerate saves below PROJECT/checkpoints/, Lightning below VERSION/checkpoints/: what the script leaves for the
 * whole run (save_pretrained) is in the directory above. */
static int add_project(struct search *s, const struct uns_root *root, const char *run, struct uns_err *err)
{
	const char *project;

	if (strcmp(uns_root_name(root, run), "checkpoints") != 0)
		return 0;
	UNS_TRY(uns_root_up(root, run, &s->out->arena, &root, &project, err));
	return project ? add_candidate(s, root, project, "the directory above checkpoints/", false, err) : 0;
}

/* torchtune saves a LoRA as RUN/epoch_0/adapter_model.pt, a checkpoint that is one file, and torchtune_config.yaml in
 * RUN. */
static int add_above_epoch(struct search *s, const char *epoch, struct uns_err *err)
{
	const struct uns_root *root = s->run_root;
	const char *run;

	if (s->cat->summary.adapter != UNS_ADAPTER_OTHER || !uns_str_starts(uns_root_name(root, epoch), "epoch_"))
		return 0;
	UNS_TRY(uns_root_up(root, epoch, &s->out->arena, &root, &run, err));
	return run ? add_candidate(s, root, run, "the directory above epoch_N/", false, err) : 0;
}

/* Directories beside Megatron's shards: huggingface/ (veRL), context/ and in it nemo_tokenizer/ (NeMo 2, whose shards
 * are in weights/). LLaMA-Factory's shards are one deeper, in iter_0000001/dist_model/. */
static int add_beside_megatron(struct search *s, const char *run, struct uns_err *err)
{
	static const char *const beside[][2] = {
		{ "huggingface", "the directory huggingface/ beside it" },
		{ "context", "the directory context/ beside it" },
		{ "context/nemo_tokenizer", "the directory context/nemo_tokenizer/ beside it" },
	};
	struct uns_arena *arena = &s->out->arena;
	const struct uns_root *root = s->run_root;
	const char *above;
	size_t i;

	for (i = 0; i < sizeof(beside) / sizeof(beside[0]); i++)
		UNS_TRY(add_candidate(s, root, uns_path_join(arena, run, beside[i][0]), beside[i][1], false, err));
	if (!uns_str_starts(uns_root_name(root, run), "iter_"))
		return 0;
	UNS_TRY(uns_root_up(root, run, arena, &root, &above, err));
	return above ? add_candidate(s, root, above, "the directory above iter_/", false, err) : 0;
}

/* Adds the run's directory. If the checkpoint is SOURCE itself, that is the directory above SOURCE, and
 * notes name it by its path. */
static int add_run(struct search *s, struct uns_err *err)
{
	struct uns_arena *arena = &s->out->arena;
	const char *run, *what = "the run directory";

	UNS_TRY(uns_root_up(s->in->root, s->in->path, arena, &s->run_root, &run, err));
	s->run = run;
	if (!run)
		return 0;
	if (s->run_root != s->in->root)
		what = uns_arena_printf(arena, "%s, the directory above SOURCE", uns_root_path(s->run_root));
	UNS_TRY_ALLOC(what, err);
	UNS_TRY(add_candidate(s, s->run_root, run, what, false, err));
	UNS_TRY(add_project(s, s->run_root, run, err));
	UNS_TRY(add_above_epoch(s, run, err));
	return s->cat->summary.is_megatron ? add_beside_megatron(s, run, err) : 0;
}

/* The file of a directory that has the model's config.json, or is it; NULL = there is none. */
static const char *config_file(const struct search *s, const struct candidate *c)
{
	if (uns_listing_find(&c->list, "config.json"))
		return "config.json";
	return s->cat->summary.is_megatron && uns_listing_find(&c->list, MCA_CONFIG) ? MCA_CONFIG : NULL;
}

/* The model that the training's own files name, if no config.json is nearer. */
static int add_named_model(struct search *s, struct uns_err *err)
{
	const struct named_model_place places[] = { { s->in->root, s->in->path }, { s->run_root, s->run } };
	struct named_model found = { 0 };
	size_t i;
	int code;

	for (i = 0; i < s->n; i++)
		if (config_file(s, &s->candidate[i]))
			return 0;
	code = named_model_find(s->cat, places, s->run ? 2 : 1, &s->out->arena, &found, err);
	s->out->named = found.model.root;
	UNS_TRY(code);
	if (!found.model.name)
		return 0;
	if (found.model.root)
		return add_candidate(s, found.model.root, found.model.path,
				     uns_arena_printf(&s->out->arena, "%s, which %s names", found.model.name, found.by),
				     false, err);
	return note(s,
		    UNS_FINDING(.id = UNS_FOUND_NAMED_MODEL_NOT_FOUND, .file = found.by,
				.found = uns_str(found.model.name), .arg = { { "cause", uns_str(found.model.why) } }),
		    err);
}

static int find_candidates(struct search *s, struct uns_err *err)
{
	struct uns_arena *arena = &s->out->arena;
	const struct uns_root *root = s->in->root;
	const struct model_dirs *models = s->in->models;
	const char *path = s->in->path;
	size_t i;

	UNS_TRY(add_candidate(s, root, path, "the checkpoint", true, err));
	UNS_TRY(add_candidate(s, root, uns_path_join(arena, path, "huggingface"), "huggingface/", true, err));
	/* EasyR1 saves the adapter in this directory. */
	UNS_TRY(add_candidate(s, root, uns_path_join(arena, path, "lora_adapter"), "lora_adapter/", true, err));
	if (s->cat->summary.is_megatron) /* Megatron-Bridge's */
		UNS_TRY(add_candidate(s, root, uns_path_join(arena, path, "tokenizer"), "tokenizer/", true, err));
	UNS_TRY(add_run(s, err));
	s->first_named = s->n;
	for (i = 0; i < models->n; i++)
		if (!models->v[i].run || uns_path_within(path, models->v[i].run))
			UNS_TRY(add_candidate(s, models->v[i].root, "", uns_root_path(models->v[i].root), false, err));
	UNS_TRY(add_model_fact(s, err));
	s->end_named = s->n;
	return s->cat->summary.is_megatron ? add_named_model(s, err) : 0;
}

static int borrow(struct search *s, const struct candidate *c, const char *name, struct uns_err *err)
{
	struct companions *out = s->out;
	const char *path = uns_path_join(&out->arena, c->path, name);
	uint32_t file;
	size_t i;

	UNS_TRY_ALLOC(path, err);
	for (i = 0; i < out->n; i++)
		if (strcmp(out->v[i].name, name) == 0)
			return 0;
	UNS_TRY(uns_catalog_add_file(s->cat, c->root, path, &file, err));
	if (s->cat->files[file].missing || s->cat->files[file].stat.kind != UNS_KIND_FILE)
		return 0;
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(&out->arena, out->v, out->n, out->cap), err);
	name = uns_arena_str(&out->arena, name);
	out->v[out->n++] = (struct uns_companion){ .name = name, .file = file };
	return name ? 0 : uns_oom(err);
}

static int borrow_all(struct search *s, const struct candidate *c, const char *const *globs, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < c->list.n; i++)
		if (c->list.v[i].kind != UNS_KIND_DIR && matches(globs, c->list.v[i].name))
			UNS_TRY(borrow(s, c, c->list.v[i].name, err));
	return 0;
}

static bool has_any(const struct candidate *c, const char *const *globs)
{
	size_t i;

	for (i = 0; i < c->list.n; i++)
		if (c->list.v[i].kind != UNS_KIND_DIR && matches(globs, c->list.v[i].name))
			return true;
	return false;
}

static int note_borrowed(struct search *s, const struct candidate *c, const char *what, struct uns_err *err)
{
	return note(s,
		    UNS_FINDING(.id = UNS_FOUND_FILES_BORROWED, .checkpoint = s->cat->path,
				.arg = { { "what", uns_str(what) }, { "where", uns_str(c->what) } }),
		    err);
}

/* Chooses the first directory that has one of `marks`, for a set of files (tokenizer, processor) whose
 * content needs no check. Returns 1 if there is one. */
static int choose_set(struct search *s, const char *const *marks, const char *const *globs, const char *what,
		      struct uns_err *err)
{
	size_t i;

	for (i = 0; i < s->n; i++) {
		if (!has_any(&s->candidate[i], marks))
			continue;
		UNS_TRY(borrow_all(s, &s->candidate[i], globs, err));
		if (!s->candidate[i].own)
			UNS_TRY(note_borrowed(s, &s->candidate[i], what, err));
		return 1;
	}
	return 0;
}

/* The run's other checkpoints: one that was saved in another way may have the adapter's config. */
static int add_neighbours(struct search *s, struct uns_err *err)
{
	struct uns_arena *arena = &s->out->arena;
	struct siblings near;
	const char *dir;
	size_t i;

	UNS_TRY(siblings_find(s->in->root, s->cat->capture, arena, s->in->path, &near, err));
	for (i = 0; i < near.n_near; i++) {
		UNS_TRY_ALLOC(dir = uns_path_parent(arena, near.near[i].state), err);
		UNS_TRY(add_candidate(s, s->in->root, dir, dir, false, err));
	}
	return 0;
}

/* If adapter_config.json is nowhere, finds what else records its values. */
static int choose_adapter_config(struct search *s, struct uns_err *err)
{
	const struct adapter_facts_input in = { s->in->root,      s->in->path,     s->in->store,
						s->in->has_facts, s->cat->capture, &s->out->arena };
	const char *run;
	int found;
	size_t i;

	UNS_TRY(found = choose_set(s, adapter_globs, adapter_globs, ADAPTER, err));
	if (found || s->cat->summary.adapter == UNS_ADAPTER_NONE)
		return 0;
	UNS_TRY(add_neighbours(s, err));
	UNS_TRY(found = choose_set(s, adapter_globs, adapter_globs, ADAPTER, err));
	if (found)
		return 0;
	UNS_TRY(adapter_facts_of_store(&in, &s->out->adapter, err));
	for (i = 0; i < s->n; i++) /* not a model's directory, whose README names that model's own base */
		if (s->candidate[i].root == s->in->root || s->candidate[i].root == s->run_root)
			UNS_TRY(adapter_facts_of_dir(&in, s->candidate[i].root, s->candidate[i].path, &s->out->adapter,
						     err));
	run = uns_path_for_shell(in.arena, uns_root_path(s->run ? s->run_root : s->in->root),
				 s->run ? s->run : s->in->path);
	s->out->adapter.run = run ? run : "RUN";
	return uns_arena_check(in.arena, err);
}

static int reject_config(struct search *s, const struct candidate *c, enum uns_finding_id id, const struct uns_err *why,
			 struct uns_err *err)
{
	return note(s,
		    UNS_FINDING(.id = id, .checkpoint = s->cat->path,
				.file = uns_path_join(&s->out->arena, c->path, config_file(s, c)),
				.arg = { { "where", uns_str(c->what) }, { "cause", uns_str(why->text) } }),
		    err);
}

/* *json: the bytes of mcore_adapter's file; becomes the text in it. */
static int config_take_out(struct search *s, struct uns_span *json, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *outer = NULL;
	const cJSON *text;
	const char *kept;

	UNS_TRY(uns_json_parse(*json, &outer, err));
	text = cJSON_GetObjectItemCaseSensitive(outer, "hf_config_json");
	if (!cJSON_IsString(text))
		return uns_fail(err, -ENOTSUP, "it has no text hf_config_json");
	UNS_TRY_ALLOC(kept = uns_arena_str(&s->out->arena, text->valuestring), err);
	*json = uns_span_of(kept, strlen(kept));
	return 0;
}

/* Reads a directory's config.json and checks it against the weights. Returns 1 if it is the one to use. */
static int try_config(struct search *s, const struct candidate *c, struct uns_err *err)
{
	struct companions *out = s->out;
	struct uns_err why = { 0 };
	struct uns_span json;
	const char *file = config_file(s, c), *path = uns_path_join(&out->arena, c->path, file);
	int code;

	UNS_TRY_ALLOC(path, err);
	code = uns_read_seen(c->root, s->cat->capture, path, CONFIG_LIMIT_BYTES, &out->arena, &json, &why);
	if (code == 0 && strcmp(file, MCA_CONFIG) == 0)
		code = config_take_out(s, &json, &why);
	if (code == 0)
		code = uns_config_parse(json, &out->arena, &out->config_info, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return reject_config(s, c, UNS_FOUND_CONFIG_UNUSABLE, &why, err);
	if (!c->own && uns_config_check(&out->config_info, s->cat, &why) < 0)
		return reject_config(s, c, UNS_FOUND_CONFIG_DOES_NOT_FIT, &why, err);
	out->config = json;
	return 1;
}

/* The view has the text as a file of its own. */
static int borrow_inner_config(struct search *s, const struct candidate *c, struct uns_err *err)
{
	struct companions *out = s->out;
	const size_t before = out->n;

	UNS_TRY(borrow(s, c, MCA_CONFIG, err));
	if (out->n > before) {
		out->v[before].name = "config.json";
		out->v[before].text = out->config;
	}
	return 0;
}

static int borrow_config(struct search *s, const struct candidate *c, const struct uns_config_info *info,
			 struct uns_err *err)
{
	const char *path;
	size_t i;
	int there;

	if (uns_listing_find(&c->list, "config.json"))
		UNS_TRY(borrow(s, c, "config.json", err));
	else
		UNS_TRY(borrow_inner_config(s, c, err));
	if (uns_listing_find(&c->list, "generation_config.json"))
		UNS_TRY(borrow(s, c, "generation_config.json", err));
	for (i = 0; i < info->n_auto_map_files; i++) {
		UNS_TRY_ALLOC(path = uns_path_join(&s->out->arena, c->path, info->auto_map_files[i]), err);
		UNS_TRY(there = uns_is_there(c->root, s->cat->capture, path, err));
		if (there)
			UNS_TRY(borrow(s, c, info->auto_map_files[i], err));
	}
	return 0;
}

/* The files of the modules that have a directory of their own. */
static int borrow_modules(struct search *s, const struct candidate *c, struct uns_err *err)
{
	const struct uns_sentence_module *m = s->out->modules.v, *end = m + s->out->modules.n;
	const char *const *globs = s->out->modules.is_state ? module_globs : saved_module_globs;
	struct uns_arena *arena = &s->out->arena;
	struct uns_err why = { 0 };
	struct uns_listing list;
	const char *name;
	size_t i;
	int code;

	UNS_TRY(borrow_all(s, c, sentence_globs, err));
	for (; m < end; m++) {
		if (!*m->path)
			continue;
		UNS_TRY_ALLOC(name = uns_path_join(arena, c->path, m->path), err);
		code = uns_list_fitting(c->root, s->cat->capture, name, globs, arena, &list, &why);
		UNS_TRY(uns_fail_if_passing(err, code, &why));
		for (i = 0; code == 0 && i < list.n; i++) {
			UNS_TRY_ALLOC(name = uns_path_join(arena, m->path, list.v[i].name), err);
			UNS_TRY(borrow(s, c, name, err));
		}
	}
	return c->own ? 0 : note_borrowed(s, c, MODULES, err);
}

/* Returns 1 if the directory's modules.json is the one to use: each weight belongs to one of its modules, or the
 * checkpoint is what sentence-transformers saved. */
static int try_modules(struct search *s, const struct candidate *c, struct uns_err *err)
{
	struct uns_arena *arena = &s->out->arena;
	struct uns_err why = { 0 };
	struct uns_span json;
	const char *path = uns_path_join(arena, c->path, MODULES);
	int code;

	UNS_TRY_ALLOC(path, err);
	code = uns_read_seen(c->root, s->cat->capture, path, CONFIG_LIMIT_BYTES, arena, &json, &why);
	if (code == 0)
		code = uns_sentence_modules_read(json, s->cat, arena, &s->out->modules, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code == 0 && (s->out->modules.is_state || (c->own && s->cat->summary.is_published)))
		return 1;
	s->out->modules = (struct uns_sentence_modules){ 0 };
	if (code == 0)
		return 0;
	return note(s,
		    UNS_FINDING(.id = UNS_FOUND_SENTENCE_MODULES_UNUSABLE, .checkpoint = s->cat->path, .file = path,
				.arg = { { "where", uns_str(c->what) }, { "cause", uns_str(why.text) } }),
		    err);
}

static int choose_modules(struct search *s, struct uns_err *err)
{
	const char *tensor;
	size_t i;
	int found;

	if (s->in->strip || s->in->keep_names || s->cat->summary.adapter != UNS_ADAPTER_NONE)
		return 0;
	for (i = 0; i < s->n; i++) {
		if (!uns_listing_find(&s->candidate[i].list, MODULES))
			continue;
		UNS_TRY(found = try_modules(s, &s->candidate[i], err));
		if (found)
			return borrow_modules(s, &s->candidate[i], err);
	}
	tensor = uns_sentence_name(s->cat);
	return tensor ? note(s,
			     UNS_FINDING(.id = UNS_FOUND_SENTENCE_MODULES_MISSING, .checkpoint = s->cat->path,
					 .tensor = tensor),
			     err)
		      : 0;
}

/* -- a pipeline of diffusers -- */

/* The files of a component: all of them, or, if it is in the checkpoint, those that are no weights. */
static int borrow_component(struct search *s, const struct candidate *c, const struct uns_component *component,
			    struct uns_err *err)
{
	struct candidate below = *c;
	struct uns_err why = { 0 };
	const char *name;
	size_t i;
	int code;

	UNS_TRY_ALLOC(below.path = uns_path_join(&s->out->arena, c->path, component->name), err);
	code = uns_list_fitting(c->root, s->cat->capture, below.path, all_globs, &s->out->arena, &below.list, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	for (i = 0; code == 0 && i < below.list.n; i++) {
		name = below.list.v[i].name;
		if (component->model != UNS_NO_MODEL && !uns_pipeline_keeps(name))
			continue;
		if (s->out->pipeline.is_component) {
			UNS_TRY(borrow(s, &below, name, err));
			continue;
		}
		UNS_TRY_ALLOC(name = uns_path_join(&s->out->arena, component->name, name), err);
		UNS_TRY(borrow(s, c, name, err));
	}
	return 0;
}

static int borrow_pipeline(struct search *s, const struct candidate *c, struct uns_err *err)
{
	const size_t before = s->out->n;
	size_t i;

	UNS_TRY(borrow(s, c, PIPELINE, err));
	for (i = 0; i < s->out->pipeline.n; i++)
		UNS_TRY(borrow_component(s, c, &s->out->pipeline.v[i], err));
	for (i = before; i < s->out->n; i++)
		s->out->v[i].of_model = true;
	return note_borrowed(s, c, PIPELINE, err);
}

/* DeepSpeed's tags of a state with several models, each of which is a checkpoint: a pipeline with one of them would
 * have the others untrained. The model is shown as its component's directory. */
static int borrow_alone(struct search *s, const struct candidate *c, struct uns_err *err)
{
	struct uns_component *own = UNS_NEW(&s->out->arena, struct uns_component);

	UNS_TRY_ALLOC(own, err);
	*own = *uns_pipeline_of_model(&s->out->pipeline, 0);
	own->stem = uns_path_name(own->stem);
	s->out->pipeline = (struct uns_pipeline){ .v = own, .n = 1, .is_component = true };
	UNS_TRY(borrow_component(s, c, own, err));
	return note_borrowed(s, c, own->name, err);
}

static bool is_one_of_several(const struct search *s)
{
	return uns_family_is_deepspeed(s->cat->summary.family) &&
	       uns_str_starts(uns_root_name(s->in->root, s->in->path), "pytorch_model");
}

/* Returns 1 if one of the directories is a pipeline that the checkpoint's models are components of. */
static int choose_pipeline(struct search *s, struct uns_err *err)
{
	struct pipeline_input in = { .cat = s->cat, .arena = &s->out->arena };
	struct uns_err why = { 0 };
	size_t i;
	int code;

	if (s->in->strip || s->in->keep_names || s->cat->summary.adapter != UNS_ADAPTER_NONE ||
	    s->cat->summary.is_published)
		return 0;
	for (i = 0; i < s->n; i++) {
		if (!uns_listing_find(&s->candidate[i].list, PIPELINE))
			continue;
		UNS_TRY(text_fact(s, "components", &in.given, err));
		in.root = s->candidate[i].root;
		in.path = s->candidate[i].path;
		code = pipeline_find(&in, &s->out->pipeline, &why);
		UNS_TRY(uns_fail_if_passing(err, code, &why));
		if (code == 0) {
			UNS_TRY((is_one_of_several(s) ? borrow_alone : borrow_pipeline)(s, &s->candidate[i], err));
			return 1;
		}
		s->out->pipeline = (struct uns_pipeline){ 0 };
		UNS_TRY(note(s,
			     UNS_FINDING(.id = UNS_FOUND_PIPELINE_UNDECIDED, .checkpoint = s->cat->path,
					 .file = uns_path_join(in.arena, in.path, PIPELINE),
					 .arg = { { "where", uns_str(s->candidate[i].what) },
						  { "cause", uns_str(why.text) } }),
			     err));
		why = (struct uns_err){ 0 };
	}
	return 0;
}

/* Models that a script saved into directories of the checkpoint, as they are. */
static int borrow_saved_models(struct search *s, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < s->cat->n_companions; i++)
		if (s->cat->companions[i].of_model)
			UNS_TRY(borrow(s, &s->candidate[0], s->cat->companions[i].name, err));
	return 0;
}

/* The config's numbers may fit weights that from_pretrained does not find, because they have other names. */
static int compare_names(struct search *s, struct uns_err *err)
{
	const struct uns_config_info *info = &s->out->config_info;
	struct uns_finding f = { .id = UNS_FOUND_CONFIG_HAS_OTHER_NAMES, .checkpoint = s->cat->path };
	struct uns_found_prefix found;
	const struct uns_sentence_module *module = uns_sentence_root(&s->out->modules);
	size_t i = 0;

	UNS_TRY(uns_prefix_find(info, s->cat, module ? module->prefix : s->in->strip, &s->out->arena, &found, err));
	if (!found.missed)
		return 0;
	while (s->cat->tensors[i].role != UNS_ROLE_WEIGHT)
		i++;
	f.tensor = s->cat->tensors[i].name;
	f.expected = uns_str(found.missed);
	f.found = uns_str(found.prefix);
	f.arg[0] = (struct uns_finding_arg){ "what", uns_str(info->model_type) };
	if (found.prefix)
		f.id = UNS_FOUND_CONFIG_HAS_OTHER_PREFIX;
	if (found.is_everywhere && !s->in->strip && !s->in->keep_names) {
		f.id = UNS_FOUND_PREFIX_LEFT_OUT;
		s->out->prefix = found.prefix;
	}
	return note(s, &f, err);
}

/* The view has the text that was made as a file of its own. */
static int borrow_described(struct search *s, const struct candidate *c, const char *file,
			    const struct described_model *made, struct uns_err *err)
{
	struct companions *out = s->out;
	const size_t before = out->n;

	UNS_TRY(borrow(s, c, file, err));
	if (out->n > before) {
		out->v[before].name = "config.json";
		out->v[before].text = made->config;
		out->v[before].made = true;
	}
	out->config = made->config;
	return note(s,
		    UNS_FINDING(.id = UNS_FOUND_CONFIG_MADE, .checkpoint = s->cat->path,
				.file = uns_path_join(&out->arena, c->path, file),
				.arg = { { "what", uns_str(made->model_type) } }),
		    err);
}

/* Makes a config.json from what the training wrote of the model in this directory. Returns 1 if it is the one to use.
 */
static int try_described(struct search *s, const struct candidate *c, const char *file, struct uns_err *err)
{
	struct companions *out = s->out;
	struct described_input in = { c->root, c->path, file, NULL, NULL, s->cat };
	struct described_model made = { 0 };
	struct uns_err why = { 0 };
	size_t i = 0;
	int code;

	while (i < s->n && !has_any(&s->candidate[i], tokenizer_marks))
		i++;
	if (i < s->n) {
		in.tokenizer_root = s->candidate[i].root;
		in.tokenizer_dir = s->candidate[i].path;
	}
	code = described_model_read(&in, &out->arena, &made, &why);
	if (code >= 0)
		code = uns_config_parse(made.config, &out->arena, &out->config_info, &why);
	if (code >= 0)
		code = uns_config_check(&out->config_info, s->cat, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code >= 0) {
		UNS_TRY(borrow_described(s, c, file, &made, err));
		return 1;
	}
	return note(s,
		    UNS_FINDING(.id = UNS_FOUND_CONFIG_NOT_MADE, .checkpoint = s->cat->path,
				.file = uns_path_join(&out->arena, c->path, file),
				.arg = { { "cause", uns_str(why.text) } }),
		    err);
}

/* For want of a config.json anywhere. Returns 1 if one was made. */
static int choose_described(struct search *s, struct uns_err *err)
{
	const char *file;
	size_t i;
	int found = 0;

	for (i = 0; s->cat->summary.is_megatron && i < s->n && !found; i++) {
		file = described_model_file(&s->candidate[i].list);
		if (file)
			UNS_TRY(found = try_described(s, &s->candidate[i], file, err));
	}
	return found;
}

static int choose_config(struct search *s, struct uns_err *err)
{
	size_t i;
	int found;

	for (i = 0; i < s->n; i++) {
		if (!config_file(s, &s->candidate[i]))
			continue;
		found = try_config(s, &s->candidate[i], err);
		if (found < 0)
			return found;
		if (found) {
			UNS_TRY(compare_names(s, err));
			UNS_TRY(borrow_config(s, &s->candidate[i], &s->out->config_info, err));
			return s->candidate[i].own
				       ? 0
				       : note_borrowed(s, &s->candidate[i], config_file(s, &s->candidate[i]), err);
		}
	}
	UNS_TRY(found = choose_described(s, err));
	if (found)
		return 0;
	memset(&s->out->config_info, 0, sizeof(s->out->config_info));
	if (s->cat->summary.adapter == UNS_ADAPTER_ALONE)
		return 0; /* an adapter is loaded into a base model, which has its own config.json */
	return note(s, UNS_FINDING(.id = UNS_FOUND_NO_CONFIG, .checkpoint = s->cat->path), err);
}

/* Finds the base model whose tensor names the weights get, if this family's published names may differ
 * from those in memory. The checkpoint itself is no candidate: its tensors are what is to be named. */
static int choose_base(struct search *s, struct uns_err *err)
{
	struct companions *out = s->out;
	struct uns_err why = { 0 };
	size_t i;
	int code;

	if (!uns_published_knows(out->config_info.model_type))
		return 0;
	for (i = 1; i < s->n && !out->base.n; i++) {
		const struct candidate *c = &s->candidate[i];

		const struct base_files files = { .root = c->root,
						  .capture = s->cat->capture,
						  .dir = c->path,
						  .stem = "model",
						  .model_type = out->config_info.model_type };

		code = base_names_read(&files, &out->arena, &out->base, &why);
		UNS_TRY(uns_fail_if_passing(err, code, &why));
		if (code < 0) {
			out->base = (struct uns_base_names){ 0 };
			UNS_TRY(note_unusable(s, UNS_FOUND_MODEL_DIR_UNUSABLE, c->what, &why, err));
		}
		out->base.where = c->what;
	}
	return 0;
}

/* NULL = nothing was borrowed under this name. */
static const struct uns_file *borrowed_file(const struct search *s, const char *name)
{
	size_t i = 0;

	while (i < s->out->n && strcmp(s->out->v[i].name, name) != 0)
		i++;
	return i < s->out->n ? &s->cat->files[s->out->v[i].file] : NULL;
}

/* *out stays empty if nothing was borrowed under this name. */
static int read_borrowed(struct search *s, const char *name, struct uns_span *out, struct uns_err *err)
{
	const struct uns_file *file = borrowed_file(s, name);
	struct uns_err why = { 0 };
	int code;

	if (!file)
		return 0;
	code = uns_read_seen(file->root, s->cat->capture, file->path, CONFIG_LIMIT_BYTES, &s->out->arena, out, &why);
	return uns_fail_if_passing(err, code, &why);
}

/* Sets out->adapter_config: for views that compute with it. */
static int read_adapter_config(struct search *s, struct uns_err *err)
{
	return s->cat->summary.adapter == UNS_ADAPTER_NONE ? 0
							   : read_borrowed(s, ADAPTER, &s->out->adapter_config, err);
}

/* NULL = out of memory. */
static const char *config_of_adapter(const struct search *s, const char *adapter)
{
	return uns_path_join(&s->out->arena, adapter, ADAPTER);
}

/* The config of an adapter that is not called "default" lies in a directory of its name, where PEFT saves it. */
static int choose_named_configs(struct search *s, struct uns_err *err)
{
	const struct uns_adapter_choice *of = s->in->adapters;
	const char *name, *path;
	size_t i, k;
	int there;

	if (s->cat->summary.adapter == UNS_ADAPTER_NONE)
		return 0;
	UNS_TRY_ALLOC(s->out->adapter_configs = UNS_NEW_N(&s->out->arena, struct uns_span, of->n + 1), err);
	for (i = 0; i < of->n; i++) {
		UNS_TRY_ALLOC(name = config_of_adapter(s, of->name[i]), err);
		for (k = 0, there = 0; k < s->n && !there; k++) {
			UNS_TRY_ALLOC(path = uns_path_join(&s->out->arena, s->candidate[k].path, name), err);
			UNS_TRY(there = uns_is_there(s->candidate[k].root, s->cat->capture, path, err));
			if (there)
				UNS_TRY(borrow(s, &s->candidate[k], name, err));
			if (there && !s->candidate[k].own)
				UNS_TRY(note_borrowed(s, &s->candidate[k], name, err));
		}
		UNS_TRY(read_borrowed(s, name, &s->out->adapter_configs[i], err));
	}
	return 0;
}

/* The adapter_config.json that names the base model; *file = NULL if none was found. */
static int find_naming_config(struct search *s, struct uns_span *text, const struct uns_file **file,
			      struct uns_err *err)
{
	const struct uns_adapter_choice *of = s->in->adapters;
	const char *name = ADAPTER;
	size_t i = 0;

	*text = s->out->adapter_config;
	for (; !uns_span_left(text) && s->out->adapter_configs && i < of->n; i++) {
		*text = s->out->adapter_configs[i];
		UNS_TRY_ALLOC(name = config_of_adapter(s, of->name[i]), err);
	}
	*file = uns_span_left(text) ? borrowed_file(s, name) : NULL;
	return 0;
}

/* What the model's own directory has, and the checkpoint, its run and the user's directories have not. */
static int borrow_of_base(struct search *s, const struct candidate *c, struct uns_err *err)
{
	struct companions *out = s->out;
	struct uns_config_info info = { 0 };
	const size_t before = out->n;
	const char *path;
	size_t i;

	if (!uns_span_left(&out->config) && uns_listing_find(&c->list, "config.json")) {
		UNS_TRY_ALLOC(path = uns_path_join(&out->arena, c->path, "config.json"), err);
		UNS_TRY(uns_read_seen(c->root, s->cat->capture, path, CONFIG_LIMIT_BYTES, &out->arena,
				      &out->base_model.config, err));
		UNS_TRY(uns_config_parse(out->base_model.config, &out->arena, &info, err));
		out->base_model.info = info;
		UNS_TRY(borrow_config(s, c, &info, err));
	}
	if (!s->has_tokenizer && has_any(c, tokenizer_marks))
		UNS_TRY(borrow_all(s, c, tokenizer_globs, err));
	if (!s->has_processor)
		UNS_TRY(borrow_all(s, c, processor_globs, err));
	for (i = before; i < out->n; i++)
		out->v[i].of_base = true;
	return 0;
}

static int base_unusable(struct search *s, const char *name, const char *why, struct uns_err *err)
{
	struct uns_base_model *base = &s->out->base_model;

	*base = (struct uns_base_model){ .where = name };
	UNS_TRY_ALLOC(base->why = uns_arena_str(&s->out->arena, why), err);
	return 0;
}

static int base_adopt(struct search *s, const struct adapted_model *adapted, struct uns_err *err)
{
	struct companions *out = s->out;
	struct candidate c = { .root = adapted->root, .path = adapted->path, .what = adapted->name };
	struct uns_err why = { 0 };
	int code;

	UNS_TRY(uns_base_model_read(s->cat, c.root, c.path, &out->arena, &out->base_model, err));
	if (!out->base_model.where)
		return base_unusable(s, c.what, "its directory has no model.safetensors", err);
	out->base_model.where = c.what;
	if (out->base_model.why)
		return 0;
	code = uns_list_fitting(c.root, s->cat->capture, c.path, looked_for, &out->arena, &c.list, &why);
	if (code == 0)
		code = borrow_of_base(s, &c, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	return code < 0 ? base_unusable(s, c.what, why.text, err) : 0;
}

/* The base model that adapter_config.json names. */
static int find_base_model(struct search *s, struct uns_err *err)
{
	struct adapted_model adapted = { 0 };
	const struct uns_file *file;
	struct uns_span config;
	int code;

	UNS_TRY(find_naming_config(s, &config, &file, err));
	if (!file)
		return 0;
	code = adapted_model_find(config, file->stat.uid, s->cat->capture, &s->out->arena, &adapted, err);
	s->out->adapted = adapted.root;
	UNS_TRY(code);
	if (!adapted.name)
		return 0;
	return adapted.root ? base_adopt(s, &adapted, err) : base_unusable(s, adapted.name, adapted.why, err);
}

/* The model that an adapter alone is put on: the one that the user names, or else the one that the adapter names. A
 * run's directory may have the result of another merge. */
static int choose_base_model(struct search *s, struct uns_err *err)
{
	struct companions *out = s->out;
	size_t i;

	if (s->cat->summary.adapter != UNS_ADAPTER_ALONE && s->cat->summary.adapter != UNS_ADAPTER_OTHER)
		return 0;
	for (i = s->first_named; i < s->end_named && !out->base_model.where; i++)
		UNS_TRY(uns_base_model_read(s->cat, s->candidate[i].root, s->candidate[i].path, &out->arena,
					    &out->base_model, err));
	return out->base_model.where ? 0 : find_base_model(s, err);
}

int companions_choose(const struct companions_input *in, struct uns_catalog *cat, struct companions *out,
		      struct uns_err *err)
{
	struct search s = { .in = in, .cat = cat, .out = out };

	int found;

	UNS_TRY(find_candidates(&s, err));
	UNS_TRY(borrow_saved_models(&s, err));
	UNS_TRY(found = choose_pipeline(&s, err));
	if (found)
		return 0;
	UNS_TRY(choose_modules(&s, err));
	UNS_TRY(choose_config(&s, err));
	UNS_TRY(choose_base(&s, err));
	UNS_TRY(found = choose_set(&s, tokenizer_marks, tokenizer_globs, "tokenizer", err));
	s.has_tokenizer = found;
	UNS_TRY(found = choose_set(&s, processor_globs, processor_globs, "processor", err));
	s.has_processor = found;
	UNS_TRY(choose_named_configs(&s, err));
	UNS_TRY(choose_adapter_config(&s, err));
	UNS_TRY(read_adapter_config(&s, err));
	return choose_base_model(&s, err);
}

void companions_fini(struct companions *companions)
{
	uns_root_close(companions->model);
	uns_root_close(companions->named);
	uns_root_close(companions->adapted);
	uns_arena_fini(&companions->arena);
}
