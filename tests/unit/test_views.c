/* The weights and dcp views over small catalogs: which files there are, what they are made of, and
 * why a view is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "files/adapter.h"
#include "views/view.h"

extern const struct uns_view uns_view_weights, uns_view_dcp;

enum { SHARD, CONFIG, MODEL, GONE, METADATA, N_FILES };

/* A catalog that each test fills: four bytes a tensor at most, all in one file. */
struct bench {
	struct uns_catalog cat;
	struct uns_file files[N_FILES];
	struct uns_tensor tensors[8];
	struct uns_piece pieces[8];
	struct uns_companion companions[4];
	struct uns_finding finding;
	struct uns_view_input in;
	struct uns_vtree tree;
};

static void bench_init(struct bench *b)
{
	static const char *const names[] = { "run/__0_0.distcp", "run/config.json", "run/model.safetensors", "run/gone",
					     "run/.metadata" };
	size_t i;

	memset(b, 0, sizeof(*b));
	for (i = 0; i < N_FILES; i++)
		b->files[i] = (struct uns_file){
			.path = names[i], .missing = i == GONE, .stat.kind = UNS_KIND_FILE, .stat.id.size = 64
		};
	b->cat = (struct uns_catalog){ .path = "run",
				       .summary.family = UNS_FAMILY_DCP,
				       .files = b->files,
				       .n_files = N_FILES,
				       .tensors = b->tensors,
				       .pieces = b->pieces,
				       .companions = b->companions,
				       .findings = &b->finding };
	b->in = (struct uns_view_input){ .catalog = &b->cat, .max_shard_size_bytes = 1000 };
}

static struct uns_tensor *add(struct bench *b, const char *name, enum uns_role role, enum uns_dtype dtype,
			      uint32_t file)
{
	static const struct uns_box two = { .n = 1, .len = { 2 } };
	uint32_t i = (uint32_t)b->cat.n_tensors++;

	b->cat.n_pieces = b->cat.n_tensors;
	b->tensors[i] = (struct uns_tensor){ .name = name,
					     .key = name,
					     .root = "model",
					     .role = role,
					     .dtype = dtype,
					     .shape = { .n = 1, .dim = { 2 } },
					     .first_piece = i,
					     .n_pieces = 1,
					     .alias_of = UNS_NONE };
	b->pieces[i] = (struct uns_piece){
		.kind = UNS_PIECE_BOX, .box = &two, .file = file, .rank = 0, .length_bytes = 2 * uns_dtype_size(dtype)
	};
	return &b->tensors[i];
}

static void add_companion(struct bench *b, const char *name, uint32_t file, bool shard)
{
	b->companions[b->cat.n_companions++] = (struct uns_companion){ .name = name, .file = file, .shard = shard };
}

static uint64_t parameter(const struct uns_view *view, const char *text)
{
	uint64_t p;

	assert_true(view->parse(text, &p));
	return p;
}

static void make(struct bench *b, const struct uns_view *view, const char *text)
{
	struct uns_err err = { 0 };
	uint64_t p = parameter(view, text);

	if (view->supports(&b->cat, p, &err) < 0 || view->tree(&b->in, p, &b->tree, &err) < 0)
		fail_msg("%s", err.text);
	uns_vtree_seal(&b->tree);
}

/* All paths of the tree, joined by spaces. */
static const char *paths(const struct bench *b, char *buf, size_t size)
{
	size_t i, at = 0;

	buf[0] = '\0';
	for (i = 0; i < b->tree.n && at < size; i++)
		at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? " " : "", b->tree.v[i].path);
	return buf;
}

static const char *header(const struct bench *b, const char *path)
{
	const struct uns_vfile *f = uns_vtree_find(&b->tree, path);

	assert_non_null(f);
	assert_int_equal(f->layout.segment[0].from, UNS_FROM_LITERAL);
	return (const char *)f->layout.segment[0].literal + 8;
}

static bool noted(const struct bench *b, const char *words)
{
	size_t i;

	for (i = 0; i < b->tree.n_notes; i++)
		if (strstr(b->tree.note[i], words))
			return true;
	return false;
}

static void parses(void **state)
{
	static const char *const bad[] = { "f32", "BF16", "bf16 ", "2", NULL };
	uint64_t p;
	size_t i;

	(void)state;
	for (i = 0; uns_view_weights.listed[i]; i++)
		assert_true(uns_view_weights.parse(uns_view_weights.listed[i], &p));
	assert_int_equal(i, 4);
	for (i = 0; bad[i]; i++)
		assert_false(uns_view_weights.parse(bad[i], &p));
	assert_true(uns_view_dcp.parse("", &p));
	assert_false(uns_view_dcp.parse("bf16", &p));
}

static void use_config(struct bench *b, struct uns_span config)
{
	b->in.config = config;
	assert_int_equal(uns_config_parse(config, &b->tree.arena, &b->in.config_info, NULL), 0);
}

static void assembles(void **state)
{
	static const char config[] = "{\"model_type\":\"llama\",\"num_hidden_layers\":3}";
	const struct uns_companion borrowed[] = { { .name = "config.json", .file = CONFIG } };
	const struct uns_finding notes[] = { { .id = UNS_FOUND_FILES_BORROWED,
					       .arg = { { "what", uns_str("config.json") },
							{ "where", uns_str("x") } } } };
	const struct uns_tensor *tied[1];
	struct bench b;
	char buf[256];

	(void)state;
	bench_init(&b);
	add(&b, "w", UNS_ROLE_WEIGHT, UNS_F32, SHARD);
	add(&b, "model.layers.0.w", UNS_ROLE_WEIGHT, UNS_F32, SHARD);
	tied[0] = add(&b, "head", UNS_ROLE_WEIGHT, UNS_F32, SHARD);
	add(&b, "w", UNS_ROLE_EXP_AVG, UNS_F32, GONE); /* not needed here */
	add(&b, "buf", UNS_ROLE_BUFFER, UNS_I64, SHARD);
	add_companion(&b, "scheduler.pt", CONFIG, false);
	add_companion(&b, ".metadata", METADATA, true);
	b.in.borrowed = borrowed;
	b.in.n_borrowed = 1;
	use_config(&b, uns_span_of(config, sizeof(config) - 1));
	b.in.tied = tied;
	b.in.n_tied = 1;
	b.in.notes = notes;
	b.in.n_notes = 1;
	make(&b, &uns_view_weights, "");
	assert_string_equal(paths(&b, buf, sizeof(buf)), "config.json model.safetensors");
	assert_non_null(strstr(header(&b, "model.safetensors"), "\"w\":{\"dtype\":\"F32\""));
	assert_non_null(strstr(header(&b, "model.safetensors"), "\"buf\""));
	assert_null(strstr(header(&b, "model.safetensors"), "head"));
	assert_null(uns_vtree_find(&b.tree, "config.json")->origin);
	assert_true(noted(&b, "borrowed from x"));
	assert_true(noted(&b, "does not fit these weights: num_hidden_layers is 3, but model has 1"));
	uns_vtree_fini(&b.tree);
}

static void casts(void **state)
{
	static const char config[] = "{\"dtype\":\"float32\",\"model_type\":\"videomae\"}";
	static const struct {
		const char *parameter, *header, *config;
	} cases[] = {
		{ "bf16", "\"w\":{\"dtype\":\"BF16\"", "{\"dtype\":\"bfloat16\",\"model_type\":\"videomae\"}" },
		{ "fp16", "\"w\":{\"dtype\":\"F16\"", "{\"dtype\":\"float16\",\"model_type\":\"videomae\"}" },
		{ "fp32", "\"w\":{\"dtype\":\"F32\"", config },
	};
	const struct uns_companion borrowed[] = { { .name = "config.json", .file = CONFIG } };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct uns_vfile *f;
		struct bench b;

		bench_init(&b);
		add(&b, "w", UNS_ROLE_WEIGHT, UNS_F16, SHARD);
		add(&b, "ids", UNS_ROLE_WEIGHT, UNS_I64, SHARD);
		b.in.borrowed = borrowed;
		b.in.n_borrowed = 1;
		use_config(&b, uns_span_of(config, sizeof(config) - 1));
		make(&b, &uns_view_weights, cases[i].parameter);
		assert_non_null(strstr(header(&b, "model.safetensors"), cases[i].header));
		assert_non_null(strstr(header(&b, "model.safetensors"), "\"ids\":{\"dtype\":\"I64\""));
		f = uns_vtree_find(&b.tree, "config.json");
		assert_int_equal(f->layout.size_bytes, strlen(cases[i].config));
		assert_memory_equal(f->layout.segment[0].literal, cases[i].config, strlen(cases[i].config));
		assert_non_null(strstr(f->origin, "dtype set to"));
		assert_true(noted(&b, "models of type videomae under other tensor names"));
		uns_vtree_fini(&b.tree);
	}
}

/* fp32 comes from the master copy where the weight is rounded, and only there. */
static void takes_masters(void **state)
{
	const struct uns_tensor *master, *exact;
	const struct uns_vfile *f;
	struct bench b;

	(void)state;
	bench_init(&b);
	add(&b, "a", UNS_ROLE_WEIGHT, UNS_BF16, SHARD);
	exact = add(&b, "b", UNS_ROLE_WEIGHT, UNS_F32, SHARD);
	master = add(&b, "a", UNS_ROLE_MASTER, UNS_F32, SHARD);
	add(&b, "b", UNS_ROLE_MASTER, UNS_F32, GONE);
	make(&b, &uns_view_weights, "fp32");
	f = uns_vtree_find(&b.tree, "model.safetensors");
	assert_ptr_equal(f->layout.segment[1].tensor, master);
	assert_ptr_equal(f->layout.segment[2].tensor, exact);
	assert_non_null(strstr(f->origin, "optimizer's fp32 copies"));
	uns_vtree_fini(&b.tree);
}

static void passes_through(void **state)
{
	struct bench b;
	char buf[256];

	(void)state;
	bench_init(&b);
	b.cat.summary.is_published = true;
	add(&b, "w", UNS_ROLE_WEIGHT, UNS_F32, MODEL);
	add_companion(&b, "model.safetensors", MODEL, false);
	add_companion(&b, "model.safetensors.index.json", CONFIG, false); /* stale: not of this */
	add_companion(&b, "optimizer.pt", SHARD, false);
	make(&b, &uns_view_weights, "");
	assert_string_equal(paths(&b, buf, sizeof(buf)), "model.safetensors");
	assert_int_equal(b.tree.v[0].source, MODEL);
	assert_null(b.tree.v[0].origin);
	uns_vtree_fini(&b.tree);

	b.tree = (struct uns_vtree){ 0 };
	make(&b, &uns_view_weights, "bf16"); /* a cast is assembled */
	assert_non_null(strstr(header(&b, "model.safetensors"), "BF16"));
	uns_vtree_fini(&b.tree);

	b.tree = (struct uns_vtree){ 0 };
	b.companions[0] = (struct uns_companion){ .name = "model-00001-of-00001.safetensors", .file = MODEL };
	make(&b, &uns_view_weights, "");
	assert_string_equal(paths(&b, buf, sizeof(buf)),
			    "model-00001-of-00001.safetensors model.safetensors.index.json");
	uns_vtree_fini(&b.tree);

	b.tree = (struct uns_vtree){ 0 };
	b.companions[0].name = "pytorch_model_fsdp.bin"; /* from_pretrained does not look there */
	make(&b, &uns_view_weights, "");
	assert_string_equal(paths(&b, buf, sizeof(buf)), "model.safetensors");
	assert_int_equal(b.tree.v[0].source, UNS_NONE);
	uns_vtree_fini(&b.tree);
}

static void names_adapters(void **state)
{
	static const struct {
		const char *in, *want;
	} cases[] = {
		{ "base_model.model.x.lora_A.default.weight", "base_model.model.x.lora_A.weight" },
		{ "base_model.model.x.lora_A.weight", "base_model.model.x.lora_A.weight" },
		{ "base_model.model.x.lora_embedding_A.default", "base_model.model.x.lora_embedding_A" },
		{ "base_model.model.x.lora_A.other.weight", "base_model.model.x.lora_A.weight" },
		{ "model.base_model.model.x.lora_A.default.weight", "base_model.model.x.lora_A.weight" },
		{ "base_model.model.x.ia3_l.default", "base_model.model.x.ia3_l" },
		{ "base_model.model.x.lora_magnitude_vector", "base_model.model.x.lora_magnitude_vector" },
		{ "base_model.vera_A.default", "base_model.vera_A" },
		{ "base_model.model.x.of_a_new_method.default.weight", "base_model.model.x.of_a_new_method.weight" },
		{ "base_model.model.defaults.weight", "base_model.model.defaults.weight" },
		{ "prompt_encoder.default.embedding.weight", "prompt_embeddings" },
		{ "prompt_embeddings", "prompt_embeddings" },
		{ "x.lora_magnitude_vector.default.weight", "base_model.model.x.lora_magnitude_vector" },
		{ "x.lora_B.default.weight", "base_model.model.x.lora_B.weight" },
		{ "base_model.model.head.modules_to_save.default.weight", "base_model.model.head.weight" },
		{ "base_model.model.head.modules_to_save.default.default.weight",
		  "base_model.model.head.default.weight" },
	};
	struct uns_arena arena = UNS_ARENA_INIT;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(uns_adapter_name(&arena, cases[i].in), cases[i].want);
	uns_arena_fini(&arena);
}

static void names_bases(void **state)
{
	static const struct {
		const char *wrapper, *in, *want;
	} cases[] = {
		{ "base_model.model.", "base_model.model.model.norm.weight", "model.norm.weight" },
		{ "base_model.model.", "base_model.model.q.base_layer.weight", "q.weight" },
		{ "base_model.model.", "base_model.model.head.original_module.weight", "head.weight" },
		{ "base_model.model.", "model.base_model.model.q.base_layer.bias", "model.q.bias" },
		{ "base_model.model.", "model.q.base_layer.weight", "model.q.weight" },
		{ "base_model.model.", "base_model.model.base_layers.weight", "base_layers.weight" },
		{ "base_model.", "base_model.model.norm.weight", "model.norm.weight" },
	};
	struct uns_arena arena = UNS_ARENA_INIT;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(uns_adapter_base_name(&arena, cases[i].wrapper, cases[i].in), cases[i].want);
	uns_arena_fini(&arena);
}

/* What the names of a checkpoint's weights, and of its optimizer's states, say that it is. */
static void finds_adapters(void **state)
{
	static const struct {
		const char *weight[3], *state;
		enum uns_adapter want;
		const char *renamed; /* the first weight's name then */
	} cases[] = {
		{ { "a.weight", "b.weight" }, "a.weight", UNS_ADAPTER_NONE, NULL },
		{ { "x.lora_A.weight", "x.lora_B.weight" }, NULL, UNS_ADAPTER_ALONE, NULL },
		{ { "x.lora_A.a.weight", "x.base_layer.weight" }, NULL, UNS_ADAPTER_NONE, NULL }, /* a model's own */
		{ { "x.lora_A.default.weight", "x.base_layer.weight" }, NULL, UNS_ADAPTER_AND_BASE, NULL },
		{ { "base_model.model.x.lora_A.weight" },
		  "base_model.model.x.lora_A.some.weight",
		  UNS_ADAPTER_ALONE,
		  "base_model.model.x.lora_A.some.weight" },
		{ { "base_model.model.x.ia3_l" },
		  "base_model.model.x.ia3_l.default",
		  UNS_ADAPTER_ALONE,
		  "base_model.model.x.ia3_l.default" },
		{ { "base_model.model.head.weight", "base_model.model.x.lora_A.weight" },
		  "base_model.model.head.modules_to_save.default.weight",
		  UNS_ADAPTER_ALONE,
		  "base_model.model.head.modules_to_save.default.weight" },
		{ { "base_model.model.x.lora_A.some.weight", "base_model.model.x.base_layer.weight" },
		  "base_model.model.x.lora_A.some.weight",
		  UNS_ADAPTER_AND_BASE,
		  NULL },
		{ { "base_model.model.e.lora_embedding_A", "base_model.model.e.base_layer.weight" },
		  NULL,
		  UNS_ADAPTER_ALONE,
		  NULL },
		{ { "base_model.model.x.new.default.weight" },
		  "base_model.model.x.new.default.weight",
		  UNS_ADAPTER_ALONE,
		  NULL },
		{ { "prompt_encoder.default.embedding.weight", "base_model.e.weight", "word_embeddings.weight" },
		  "prompt_encoder.default.embedding.weight",
		  UNS_ADAPTER_AND_BASE,
		  NULL },
	};
	struct uns_err err = { 0 };
	struct bench b;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bench_init(&b);
		for (k = 0; k < 3 && cases[i].weight[k]; k++)
			add(&b, cases[i].weight[k], UNS_ROLE_WEIGHT, UNS_F32, SHARD);
		if (cases[i].state)
			add(&b, cases[i].state, UNS_ROLE_EXP_AVG, UNS_F32, SHARD);
		assert_int_equal(uns_adapter_find(&b.cat, &err), 0);
		assert_int_equal(b.cat.summary.adapter, cases[i].want);
		assert_string_equal(b.cat.tensors[0].name, cases[i].renamed ? cases[i].renamed : cases[i].weight[0]);
	}
}

static void makes_adapters(void **state)
{
	const struct uns_companion borrowed[] = { { .name = "adapter_config.json", .file = CONFIG } };
	struct uns_err err = { 0 };
	struct bench b;
	char buf[256];

	(void)state;
	bench_init(&b);
	add(&b, "base_model.model.q.lora_A.default.weight", UNS_ROLE_WEIGHT, UNS_F32, SHARD);
	add(&b, "base_model.model.head.modules_to_save.default.weight", UNS_ROLE_WEIGHT, UNS_F32, SHARD);
	add(&b, "base_model.model.head.original_module.weight", UNS_ROLE_WEIGHT, UNS_F32, SHARD);
	b.in.max_shard_size_bytes = 1; /* PEFT reads one file only */
	assert_int_equal(uns_adapter_find(&b.cat, &err), 0);
	make(&b, &uns_view_weights, "");
	assert_string_equal(paths(&b, buf, sizeof(buf)), "adapter_model.safetensors");
	assert_non_null(strstr(header(&b, "adapter_model.safetensors"), "\"base_model.model.q.lora_A.weight\""));
	assert_non_null(strstr(header(&b, "adapter_model.safetensors"), "\"base_model.model.head.weight\""));
	assert_null(strstr(header(&b, "adapter_model.safetensors"), "original_module"));
	assert_true(noted(&b, "adapter_config.json was not found"));
	uns_vtree_fini(&b.tree);

	b.tree = (struct uns_vtree){ 0 };
	b.in.borrowed = borrowed;
	b.in.n_borrowed = 1;
	make(&b, &uns_view_weights, "");
	assert_string_equal(paths(&b, buf, sizeof(buf)), "adapter_config.json adapter_model.safetensors");
	assert_false(noted(&b, "adapter_config.json"));
	uns_vtree_fini(&b.tree);

	b.tree = (struct uns_vtree){ 0 };
	b.in.max_shard_size_bytes = 1000;
	/* The adapted layer is there too: a whole model. */
	add(&b, "base_model.model.q.base_layer.weight", UNS_ROLE_WEIGHT, UNS_F32, SHARD);
	assert_int_equal(uns_adapter_find(&b.cat, &err), 0);
	make(&b, &uns_view_weights, "");
	assert_non_null(uns_vtree_find(&b.tree, "model.safetensors"));
	uns_vtree_fini(&b.tree);
}

static void refuses_weights(void **state)
{
	struct bench b;
	struct uns_err err = { 0 };

	(void)state;
	bench_init(&b);
	add(&b, "w", UNS_ROLE_EXP_AVG, UNS_F32, SHARD);
	assert_int_equal(uns_view_weights.supports(&b.cat, UNS_DTYPE_NONE, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "run holds no model weights"));

	err = (struct uns_err){ 0 };
	add(&b, "model.w", UNS_ROLE_WEIGHT, UNS_BF16, GONE);
	assert_int_equal(uns_view_weights.supports(&b.cat, UNS_DTYPE_NONE, &err), -ENODATA);
	assert_non_null(strstr(err.text, "gone is missing"));
	assert_non_null(strstr(err.text, "model.w"));

	err = (struct uns_err){ 0 };
	b.cat.n_findings = 1;
	b.finding = (struct uns_finding){ .id = UNS_FOUND_FILE_UNREADABLE,
					  .scope = UNS_SCOPE_WEIGHTS,
					  .code = -EBADMSG,
					  .file = "rank 1",
					  .arg = { { "cause", uns_str("torn") } } };
	assert_int_equal(uns_view_weights.supports(&b.cat, UNS_DTYPE_NONE, &err), -EBADMSG);
	assert_string_equal(err.text, "rank 1: torn");

	/* Weights that are there and not understood: told of, and not hidden as if there were none. */
	err = (struct uns_err){ 0 };
	b.finding.code = -ENOTSUP;
	assert_int_equal(uns_view_weights.supports(&b.cat, UNS_DTYPE_NONE, &err), -EBADMSG);
	b.finding.code = -EBADMSG;

	/* A broken optimizer does not keep weights from being served; it does for fp32 where its
	 * masters would be, and so does a broken master. */
	err = (struct uns_err){ 0 };
	b.finding.scope = UNS_SCOPE_OPTIMIZER;
	b.pieces[1].file = SHARD;
	add(&b, "model.w", UNS_ROLE_MASTER, UNS_F32, GONE);
	assert_int_equal(uns_view_weights.supports(&b.cat, UNS_DTYPE_NONE, &err), 0);
	assert_int_equal(uns_view_weights.supports(&b.cat, UNS_BF16, &err), 0);
	assert_int_equal(uns_view_weights.supports(&b.cat, UNS_F32, &err), -EBADMSG);
	assert_string_equal(err.text, "rank 1: torn");
	err = (struct uns_err){ 0 };
	b.cat.n_findings = 0;
	assert_int_equal(uns_view_weights.supports(&b.cat, UNS_F32, &err), -ENODATA);
	assert_non_null(strstr(err.text, "gone is missing"));
}

static void serves_dcp(void **state)
{
	struct uns_err err = { 0 };
	struct bench b;
	char buf[256];

	(void)state;
	bench_init(&b);
	add(&b, "w", UNS_ROLE_WEIGHT, UNS_F32, SHARD);
	assert_int_equal(uns_view_dcp.supports(&b.cat, 0, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "not a torch distributed checkpoint"));

	add_companion(&b, "opt_0/.metadata", METADATA, true);
	add_companion(&b, "opt_0/__0_0.distcp", SHARD, true);
	add_companion(&b, "trainer_state.json", CONFIG, false);
	make(&b, &uns_view_dcp, "");
	assert_string_equal(paths(&b, buf, sizeof(buf)), "opt_0/.metadata opt_0/__0_0.distcp trainer_state.json");
	uns_vtree_fini(&b.tree);

	/* What is known of a training replaces the file where a Trainer is to read it only. */
	b.in.training = &(struct uns_training){ 0 };
	add_companion(&b, "random_states_0.pkl", CONFIG, false);
	make(&b, &uns_view_dcp, "");
	assert_non_null(strstr(paths(&b, buf, sizeof(buf)), "trainer_state.json"));
	uns_vtree_fini(&b.tree);
	b.in.training = NULL;

	err = (struct uns_err){ 0 };
	b.cat.n_findings = 1;
	b.finding = (struct uns_finding){ .id = UNS_FOUND_MEGATRON_OPTIMIZER,
					  .scope = UNS_SCOPE_OPTIMIZER,
					  .code = -ENOTSUP };
	assert_int_equal(uns_view_dcp.supports(&b.cat, 0, &err), 0);

	add(&b, "w", UNS_ROLE_EXP_AVG, UNS_F32, GONE); /* here the whole must be there */
	assert_int_equal(uns_view_dcp.supports(&b.cat, 0, &err), -ENODATA);
	assert_non_null(strstr(err.text, "gone is missing"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses),          cmocka_unit_test(assembles),      cmocka_unit_test(casts),
		cmocka_unit_test(takes_masters),   cmocka_unit_test(passes_through), cmocka_unit_test(names_adapters),
		cmocka_unit_test(names_bases),     cmocka_unit_test(finds_adapters), cmocka_unit_test(makes_adapters),
		cmocka_unit_test(refuses_weights), cmocka_unit_test(serves_dcp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
