/* Which config, tokenizer, processor and adapter files a view shows beside the weights. Each set comes
 * from one directory and is never mixed: the checkpoint, then the run directory, then -o model=, then
 * the store's fact "model". */
#include "session/session.h"

#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "wire/json.h"

enum { CONFIG_LIMIT_BYTES = 16 << 20 };

struct candidate {
	const struct uns_root *root;
	const char *path;
	struct uns_listing list;
	const char *what; /* for notes */
	bool own;         /* the checkpoint itself */
};

enum { MAX_CANDIDATES = 8 };

struct search {
	struct unshard *u;
	struct snapshot *snap;
	struct candidate candidate[MAX_CANDIDATES];
	size_t n;
};

static const char *const tokenizer_globs[] = {
	"tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
	"*.model",         "spiece.model",            "*.tiktoken",        "chat_template.*",
	"tokenization_*.py", NULL
};
/* A set is there when one of these is. */
static const char *const tokenizer_marks[] = { "tokenizer.json", "tokenizer_config.json",
					       "vocab.*", "*.model", "*.tiktoken", NULL };
static const char *const processor_globs[] = { "*processor*.json", NULL };
static const char *const adapter_globs[] = { "adapter_config.json", NULL };

static bool matches(const char *const *globs, const char *name)
{
	for (; *globs; globs++)
		if (uns_str_glob(*globs, name))
			return true;
	return false;
}

/* A directory that is not there is none; nor is one that is not the checkpoint's, and kept to others. */
static int add_candidate(struct search *s, const struct uns_root *root, const char *path,
			 const char *what, bool own, struct uns_err *err)
{
	struct candidate *c = &s->candidate[s->n];
	struct uns_err why = { 0 };
	int code;

	if (!path)
		return uns_oom(err);
	if (s->n == MAX_CANDIDATES)
		return 0;
	*c = (struct candidate){ .root = root, .path = path, .what = what, .own = own };
	code = uns_root_list(root, path, &s->snap->arena, &c->list, &why);
	if (code == 0)
		s->n++;
	return code == 0 || uns_code_is_finding(code) || (code == -EACCES && !own)
		       ? 0
		       : uns_fail_as(err, &why);
}

static const char *model_fact(struct search *s, const char *path)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct uns_arena *arena = &s->snap->arena;
	struct uns_store_fact *v;
	size_t n, i = 0;

	if (meta_facts(s->u, path, arena, &v, &n, NULL) < 0)
		return NULL;
	while (i < n && strcmp(v[i].key, "model") != 0)
		i++;
	if (i == n || uns_json_parse(uns_span_of(v[i].json, strlen(v[i].json)), &json, NULL) < 0)
		return NULL;
	return cJSON_IsString(json) ? uns_arena_str(arena, json->valuestring) : NULL;
}

/* The directory that the user once named for this checkpoint or its run: 1, 0 = none that can be used. */
static int open_model_fact(struct search *s, const char *path, struct uns_err *err)
{
	const struct uns_root_options trusted = { .trusted = true };
	const char *dir = model_fact(s, path);
	struct uns_err why = { 0 };

	if (!dir)
		return 0;
	if (uns_root_open(dir, &trusted, &s->snap->model, &why) == 0)
		return 1;
	return snapshot_note(s->snap,
			     UNS_FINDING(.id = UNS_FOUND_MODEL_FACT_UNUSABLE, .found = uns_str(dir),
					 .arg = { { "cause", uns_str(why.text) } }),
			     err);
}

static int find_candidates(struct search *s, const char *path, struct uns_err *err)
{
	struct uns_arena *arena = &s->snap->arena;
	struct unshard *u = s->u;
	size_t i;
	int named;

	UNS_TRY(add_candidate(s, u->root, path, "the checkpoint", true, err));
	UNS_TRY(add_candidate(s, u->root, uns_path_join(arena, path, "huggingface"), "huggingface/",
			      true, err));
	/* EasyR1 */
	UNS_TRY(add_candidate(s, u->root, uns_path_join(arena, path, "lora_adapter"),
			      "lora_adapter/", true, err));
	if (*path)
		UNS_TRY(add_candidate(s, u->root, uns_path_parent(arena, path), "the run directory",
				      false, err));
	for (i = 0; i < u->n_model; i++)
		if (!u->model[i].run || uns_path_within(path, u->model[i].run))
			UNS_TRY(add_candidate(s, u->model[i].root, "", uns_root_path(u->model[i].root),
					      false, err));
	UNS_TRY(named = open_model_fact(s, path, err));
	return named ? add_candidate(s, s->snap->model, "", uns_root_path(s->snap->model), false, err)
		     : 0;
}

static int borrow(struct search *s, const struct candidate *c, const char *name,
		  struct uns_err *err)
{
	struct snapshot *snap = s->snap;
	const char *path = uns_path_join(&snap->arena, c->path, name);
	uint32_t file;
	size_t i;

	if (!path)
		return uns_oom(err);
	for (i = 0; i < snap->n_borrowed; i++)
		if (strcmp(snap->borrowed[i].name, name) == 0)
			return 0;
	UNS_TRY(uns_catalog_add_file(snap->cat, c->root, path, &file, err));
	if (snap->cat->files[file].missing || snap->cat->files[file].stat.kind != UNS_KIND_FILE)
		return 0;
	if (!UNS_ARENA_ROOM(&snap->arena, snap->borrowed, snap->n_borrowed, snap->cap_borrowed))
		return uns_oom(err);
	name = uns_arena_str(&snap->arena, name);
	snap->borrowed[snap->n_borrowed++] = (struct uns_companion){ .name = name, .file = file };
	return name ? 0 : uns_oom(err);
}

static int borrow_all(struct search *s, const struct candidate *c, const char *const *globs,
		      struct uns_err *err)
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

static int note_borrowed(struct search *s, const struct candidate *c, const char *what,
			 struct uns_err *err)
{
	return snapshot_note(s->snap,
			     UNS_FINDING(.id = UNS_FOUND_FILES_BORROWED, .checkpoint = s->snap->cat->path,
					 .arg = { { "what", uns_str(what) },
						  { "where", uns_str(c->what) } }),
			     err);
}

/* A set without content of its own to check: the first directory that has it. */
static int choose_set(struct search *s, const char *const *marks, const char *const *globs,
		      const char *what, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < s->n; i++) {
		if (!has_any(&s->candidate[i], marks))
			continue;
		UNS_TRY(borrow_all(s, &s->candidate[i], globs, err));
		if (!s->candidate[i].own)
			return note_borrowed(s, &s->candidate[i], what, err);
		return 0;
	}
	return 0;
}

static int reject_config(struct search *s, const struct candidate *c, enum uns_finding_id id,
			 const struct uns_err *why, struct uns_err *err)
{
	return snapshot_note(s->snap,
			     UNS_FINDING(.id = id, .checkpoint = s->snap->cat->path,
					 .file = uns_path_join(&s->snap->arena, c->path, "config.json"),
					 .arg = { { "where", uns_str(c->what) },
						  { "cause", uns_str(why->text) } }),
			     err);
}

/* Read and check a directory's config.json. 1 = it is the one. */
static int try_config(struct search *s, const struct candidate *c, struct uns_err *err)
{
	struct snapshot *snap = s->snap;
	struct uns_err why = { 0 };
	struct uns_span json;
	const char *path = uns_path_join(&snap->arena, c->path, "config.json");

	if (!path)
		return uns_oom(err);
	if (uns_root_read_file(c->root, path, CONFIG_LIMIT_BYTES, &snap->arena, &json, NULL,
			       &why) < 0 ||
	    uns_config_parse(json, &snap->arena, &snap->config_facts, &why) < 0)
		return uns_code_is_finding(why.code)
			       ? reject_config(s, c, UNS_FOUND_CONFIG_UNUSABLE, &why, err)
			       : uns_fail_as(err, &why);
	if (!c->own && uns_config_check(&snap->config_facts, snap->cat, &why) < 0)
		return reject_config(s, c, UNS_FOUND_CONFIG_DOES_NOT_FIT, &why, err);
	snap->config = json;
	return 1;
}

static int borrow_config(struct search *s, const struct candidate *c, struct uns_err *err)
{
	const struct uns_config_facts *facts = &s->snap->config_facts;
	size_t i;

	UNS_TRY(borrow(s, c, "config.json", err));
	if (uns_listing_find(&c->list, "generation_config.json"))
		UNS_TRY(borrow(s, c, "generation_config.json", err));
	for (i = 0; i < facts->n_auto_map_files; i++)
		if (uns_listing_find(&c->list, facts->auto_map_files[i]))
			UNS_TRY(borrow(s, c, facts->auto_map_files[i], err));
	return c->own ? 0 : note_borrowed(s, c, "config.json", err);
}

static int choose_config(struct search *s, struct uns_err *err)
{
	size_t i;
	int found;

	for (i = 0; i < s->n; i++) {
		if (!uns_listing_find(&s->candidate[i].list, "config.json"))
			continue;
		found = try_config(s, &s->candidate[i], err);
		if (found < 0)
			return found;
		if (found)
			return borrow_config(s, &s->candidate[i], err);
	}
	memset(&s->snap->config_facts, 0, sizeof(s->snap->config_facts));
	return snapshot_note(s->snap,
			     UNS_FINDING(.id = UNS_FOUND_NO_CONFIG, .checkpoint = s->snap->cat->path),
			     err);
}

int companions_choose(struct unshard *u, struct snapshot *snap, const char *path,
		      struct uns_err *err)
{
	struct search s = { .u = u, .snap = snap };

	UNS_TRY(find_candidates(&s, path, err));
	UNS_TRY(choose_config(&s, err));
	UNS_TRY(choose_set(&s, tokenizer_marks, tokenizer_globs, "tokenizer", err));
	UNS_TRY(choose_set(&s, processor_globs, processor_globs, "processor", err));
	return choose_set(&s, adapter_globs, adapter_globs, "adapter_config.json", err);
}
