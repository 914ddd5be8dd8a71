/* The format zero on what the real DeepSpeed saves: every tensor against the live engine's, and what is
 * said of damaged copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "views/view.h"
#include "zero_golden.h"
#include "said.h"

extern const struct uns_view uns_view_weights, uns_view_world;
extern const struct uns_format uns_format_zero, uns_format_universal, uns_format_hf;

/* -- whole checkpoints -- */

static const struct {
	const char *golden, *framework;
	unsigned roles;
	size_t n; /* tensors compared */
	int64_t world_size;
	size_t n_groups, n_first_group;
} whole_cases[] = {
	{ "z2_w3", "DeepSpeed ZeRO stage 2", MODEL_ROLES | STATE_ROLES, 29, 3, 2, 3 },
	{ "z3_w2", "DeepSpeed ZeRO stage 3", MODEL_ROLES | STATE_ROLES, 29, 2, 2, 3 },
	{ "z1_bf16_optimizer_w2", "DeepSpeed ZeRO stage 1", MODEL_ROLES | STATE_ROLES, 29, 2, 2, 3 },
	{ "z0_w1", "DeepSpeed ZeRO stage 0", MODEL_ROLES | STATE_ROLES, 29, 1, 2, 3 },
};

static void whole(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(whole_cases) / sizeof(*whole_cases); i++) {
		const struct uns_tensor *head;
		struct fixture f;
		double lr = 0;

		print_message("%s\n", whole_cases[i].golden);
		fixture_init(&f, whole_cases[i].golden);
		fixture_open(&f, &uns_format_zero, "global_step2");
		assert_int_equal(compare_expected(&f, whole_cases[i].roles), whole_cases[i].n);
		assert_string_equal(f.cat->summary.framework, whole_cases[i].framework);
		assert_int_equal(f.cat->summary.world_size, whole_cases[i].world_size);
		assert_int_equal(f.cat->summary.step, 2);
		assert_true(f.cat->summary.finished);
		assert_int_equal(f.cat->n_groups, whole_cases[i].n_groups);
		assert_string_equal(serious(&f), "");
		assert_int_equal(f.cat->groups[0].n_params, whole_cases[i].n_first_group);
		assert_string_equal(f.cat->groups[0].param[0], "emb.weight");
		assert_true(uns_value_float(uns_value_get(f.cat->groups[1].hyper, "lr"), &lr));
		assert_true(lr == 0.02);
		assert_null(uns_value_get(f.cat->groups[1].hyper, "params"));
		head = uns_catalog_find(f.cat, UNS_ROLE_WEIGHT, "head.weight");
		assert_int_not_equal(head->alias_of, UNS_NONE);
		assert_string_equal(f.cat->tensors[head->alias_of].name, "emb.weight");
		fixture_fini(&f);
	}
}

static bool has_value(const struct uns_catalog *cat, const char *root, const char *name)
{
	size_t i;

	for (i = 0; i < cat->n_values; i++)
		if (strcmp(cat->values[i].root, root) == 0 && strcmp(cat->values[i].name, name) == 0)
			return cat->values[i].value != NULL;
	return false;
}

static void keeps_what_else_was_saved(void **state)
{
	static const char *const cases[][2] = {
		{ "client_state", "epoch" },     { "model_states", "lr_scheduler" }, { "model_states", "param_shapes" },
		{ "model_states", "ds_config" }, { "optim_states", "loss_scaler" },  { "optim_states", "ds_version" },
	};
	struct fixture f;
	size_t i;

	(void)state;
	fixture_init(&f, "z2_w3");
	fixture_open(&f, &uns_format_zero, "global_step2");
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!has_value(f.cat, cases[i][0], cases[i][1]))
			fail_msg("%s %s", cases[i][0], cases[i][1]);
	assert_false(has_value(f.cat, "optim_states", "param_slice_mappings"));
	assert_false(has_value(f.cat, "client_state", "module"));
	fixture_fini(&f);
}

/* -- where a checkpoint lies -- */

static const struct {
	const char *name, *make; /* in a copy of z3_w2 without its universal form */
	const char *path;        /* what is looked at */
	int zero, universal, hf;
} probe_cases[] = {
	{ "a tag", "true", "global_step2", 90, 0, 0 },
	{ "a plain engine's run", "true", "", 0, 0, 0 },
	{ "an optimizer alone", "rm global_step2/*model_states.pt", "global_step2", 90, 0, 0 },
	{ "model files alone", "rm global_step2/*optim_states.pt", "global_step2", 90, 0, 0 },
	{ "a Trainer's", "mkdir checkpoint-2; mv global_step2 latest checkpoint-2", "checkpoint-2", 95, 0, 0 },
	{ "a Trainer's with gathered weights",
	  "mkdir checkpoint-2; mv global_step2 latest checkpoint-2; touch "
	  "checkpoint-2/model.safetensors",
	  "checkpoint-2", 95, 0, 60 },
	{ "a Trainer's run", "mkdir checkpoint-2; mv global_step2 latest checkpoint-2", "", 0, 0, 0 },
	{ "a Trainer's of another name", "touch trainer_state.json", "", 95, 0, 0 },
	{ "Accelerate's", "mv global_step2 pytorch_model", "", 95, 0, 0 },
	{ "Lightning's", "mkdir x.ckpt; mv global_step2 x.ckpt/checkpoint; mv latest x.ckpt", "x.ckpt", 95, 0, 0 },
	{ "a model's directory", "touch model.safetensors; mv global_step2 other; rm latest", "", 0, 0, 60 },
	{ "nothing", "rm -r global_step2", "", 0, 0, 0 },
};

static void probes(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(probe_cases) / sizeof(*probe_cases); i++) {
		struct uns_listing list = { 0 };
		struct uns_directory dir;
		struct fixture f;

		print_message("%s\n", probe_cases[i].name);
		fixture_init(&f, "z3_w2");
		shell(f.dir, "rm -r *_universal");
		shell(f.dir, probe_cases[i].make);
		dir = fixture_dir(&f, probe_cases[i].path, &list);
		assert_int_equal(uns_format_zero.probe(&dir), probe_cases[i].zero);
		assert_int_equal(uns_format_universal.probe(&dir), probe_cases[i].universal);
		assert_int_equal(uns_format_hf.probe(&dir), probe_cases[i].hf);
		fixture_fini(&f);
	}
}

static const struct {
	const char *name, *make, *path;
	const char *framework;
	bool finished;
	int64_t step;
	const char *shard, *beside; /* companions' names */
	const char *note;           /* NULL = none */
} run_cases[] = {
	{ "a Trainer's",
	  "mkdir checkpoint-7; mv global_step2 latest checkpoint-7; cd checkpoint-7; touch "
	  "trainer_state.json scheduler.pt zero_to_fp32.py",
	  "checkpoint-7", "Hugging Face Trainer, DeepSpeed ZeRO stage 2", true, 7,
	  "global_step2/mp_rank_00_model_states.pt", "scheduler.pt", NULL },
	{ "a Trainer's that is being saved", "mkdir checkpoint-7; mv global_step2 latest checkpoint-7", "checkpoint-7",
	  "Hugging Face Trainer, DeepSpeed ZeRO stage 2", false, 7, "latest", NULL, NULL },
	{ "Accelerate's",
	  "mv global_step2 pytorch_model; printf pytorch_model > latest; touch "
	  "random_states_0.pkl scheduler.bin",
	  "", "Hugging Face Accelerate, DeepSpeed ZeRO stage 2", true, 2,
	  "pytorch_model/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt", "scheduler.bin", NULL },
	{ "a plain engine's run", "true", "", "DeepSpeed ZeRO stage 2", true, 2, "latest", NULL, NULL },
	{ "a tag of another name", "mv global_step2 best; printf 'best\\n' > latest", "best", "DeepSpeed ZeRO stage 2",
	  true, 2, "mp_rank_00_model_states.pt", NULL, NULL },
	{ "a tag that `latest` does not name yet", "mkdir global_step1; printf global_step1 > latest", "global_step2",
	  "DeepSpeed ZeRO stage 2", false, 2, NULL, NULL, NULL },
	{ "an older tag", "mkdir global_step10; printf global_step10 > latest", "global_step2",
	  "DeepSpeed ZeRO stage 2", true, 2, NULL, NULL, NULL },
	{ "a tag, and `latest` names what is not there", "printf global_step10 > latest", "global_step2",
	  "DeepSpeed ZeRO stage 2", true, 2, NULL, NULL, "latest names global_step10, and no such tag exists" },
	{ "several tags", "cp -r global_step2 global_step9", "", "DeepSpeed ZeRO stage 2", true, 2,
	  "global_step2/mp_rank_00_model_states.pt", NULL, "holds 2 tags; this is global_step2" },
	{ "`latest` names what is not there", "printf global_step3 > latest", "", "DeepSpeed ZeRO stage 2", false, 2,
	  NULL, NULL,
	  "latest names global_step3, and no such tag exists: DeepSpeed finds no checkpoint to "
	  "resume from; copy that tag back from the training machine, or write global_step2 into "
	  "the file" },
	{ "`latest` climbs", "printf ../x > latest", "", "DeepSpeed ZeRO stage 2", false, 2, NULL, NULL, NULL },
	{ "no `latest`", "rm latest", "", "DeepSpeed ZeRO stage 2", false, 2, NULL, NULL, NULL },
};

static void runs(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(run_cases) / sizeof(*run_cases); i++) {
		const struct uns_companion *c;
		struct fixture f;

		print_message("%s\n", run_cases[i].name);
		fixture_init(&f, "z2_w3");
		shell(f.dir, "rm -r *_universal");
		shell(f.dir, run_cases[i].make);
		fixture_open(&f, &uns_format_zero, run_cases[i].path);
		compare_expected(&f, MODEL_ROLES | STATE_ROLES);
		assert_string_equal(f.cat->summary.framework, run_cases[i].framework);
		assert_int_equal(f.cat->summary.finished, run_cases[i].finished);
		assert_int_equal(f.cat->summary.step, run_cases[i].step);
		assert_int_equal(f.cat->n_findings, run_cases[i].note != NULL);
		if (run_cases[i].note && !strstr(said(&f.cat->findings[0]), run_cases[i].note))
			fail_msg("said: %s", said(&f.cat->findings[0]));
		if (run_cases[i].shard) {
			c = uns_catalog_companion(f.cat, run_cases[i].shard);
			assert_non_null(c);
			assert_true(c->shard);
		}
		if (run_cases[i].beside) {
			c = uns_catalog_companion(f.cat, run_cases[i].beside);
			assert_non_null(c);
			assert_false(c->shard);
		}
		fixture_fini(&f);
	}
}

/* -- damage -- */

#define SHARD "bf16_zero_pp_rank_"
#define OPTIM "global_step2/" SHARD

static const struct {
	const char *name, *golden, *change;
	unsigned served; /* roles that must still be whole */
	const char *problem; /* SCOPE: sentence */
	const char *also;    /* of another problem; NULL = the first is the only one */
} damage_cases[] = {
	{ "stage 2: a rank is missing", "z2_w3", "rm " OPTIM "1_*", MODEL_ROLES,
	  "2: " SHARD "1_mp_rank_00_optim_states.pt (data-parallel rank 1) is missing: expected the "
	  "optimizer's shards of 3 ranks, found 2; copy it back",
	  NULL },
	{ "stage 2: the first rank is missing", "z2_w3", "rm " OPTIM "0_*", MODEL_ROLES,
	  "2: " SHARD "0_mp_rank_00_optim_states.pt (data-parallel rank 0) is missing", NULL },
	{ "stage 2: the last rank is missing", "z2_w3", "rm " OPTIM "2_*", MODEL_ROLES,
	  "2: " SHARD "2_mp_rank_00_optim_states.pt (data-parallel rank 2) is missing", NULL },
	{ "stage 2: two ranks are missing", "z2_w3", "rm " OPTIM "[12]_*", MODEL_ROLES,
	  "2: " SHARD "1_mp_rank_00_optim_states.pt (data-parallel rank 1) is missing, and others after "
	  "it: expected the optimizer's shards of 3 ranks, found 1",
	  NULL },
	{ "stage 2: no optimizer", "z2_w3", "rm " OPTIM "*", MODEL_ROLES,
	  "2: no optimizer shards (zero_pp_rank_*_mp_rank_00_optim_states.pt) were found", NULL },
	{ "stage 2: a shard is cut", "z2_w3", "truncate -s 3000 " OPTIM "1_*", MODEL_ROLES,
	  "2: " SHARD "1_mp_rank_00_optim_states.pt: ", NULL },
	{ "stage 2: a shard of another world size", "z2_w3",
	  "cp $GOLDEN/z1_bf16_optimizer_w2/" OPTIM "1_* global_step2", MODEL_ROLES,
	  "2: " SHARD "1_mp_rank_00_optim_states.pt: stage 1, 2 param groups, sharded over 2 ranks; "
	  "another rank's file has stage 1, 2 param groups, sharded over 3 ranks",
	  NULL },
	{ "stage 2: another rank's shard", "z2_w3", "cp " OPTIM "1_* " OPTIM "2_*", MODEL_ROLES,
	  "2: " SHARD "2_mp_rank_00_optim_states.pt: the file was saved as "
	  "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt: it was renamed, or is another rank's; copy "
	  "the right one back from the training machine",
	  NULL },
	{ "stage 2: another model's shards", "z2_w3", "cp -r $GOLDEN/other/* .", MODEL_ROLES,
	  "2: group 0: param_shapes of mp_rank_00_model_states.pt add up to", NULL },
	{ "stage 2: no model file", "z2_w3", "rm global_step2/mp_rank*", 0,
	  "3: no model file was found (mp_rank_00_model_states.pt, or one for each rank)", NULL },
	{ "stage 2: the model file is cut", "z2_w3", "truncate -s 3000 global_step2/mp_rank*", 0,
	  "3: mp_rank_00_model_states.pt: ", NULL },
	{ "stage 3: a rank is missing", "z3_w2", "rm " OPTIM "1_*", 0,
	  "3: " SHARD "1_mp_rank_00_optim_states.pt (data-parallel rank 1) is missing", NULL },
	{ "stage 3: a shard is cut", "z3_w2", "truncate -s 3000 " OPTIM "0_*", 0,
	  "3: " SHARD "0_mp_rank_00_optim_states.pt: ", NULL },
	{ "stage 3: a model file is missing", "z3_w2", "rm global_step2/zero_pp_rank_1_mp_rank_00_model_states.pt",
	  STATE_ROLES,
	  "1: zero_pp_rank_1_mp_rank_00_model_states.pt (data-parallel rank 1) is missing: "
	  "expected a model file of each of 2 ranks, which hold slices of the frozen parameters",
	  NULL },
	{ "stage 3: the first model file is missing", "z3_w2",
	  "rm global_step2/zero_pp_rank_0_mp_rank_00_model_states.pt", STATE_ROLES,
	  "1: zero_pp_rank_0_mp_rank_00_model_states.pt (data-parallel rank 0) is missing",
	  "head.weight is in neither the model's state dict, nor the optimizer" },
	{ "stage 3: a model file is cut", "z3_w2",
	  "truncate -s 3000 global_step2/zero_pp_rank_1_mp_rank_00_model_states.pt", STATE_ROLES,
	  "1: zero_pp_rank_1_mp_rank_00_model_states.pt: ", NULL },
};

static bool serves(struct fixture *f, unsigned roles)
{
	size_t i;

	for (i = 0; i < f->cat->n_findings; i++) {
		enum uns_scope scope = f->cat->findings[i].scope;

		if (scope == UNS_SCOPE_ALL || (scope == UNS_SCOPE_WEIGHTS && (roles & MODEL_ROLES)) ||
		    (scope == UNS_SCOPE_OPTIMIZER && (roles & STATE_ROLES)))
			return false;
	}
	return true;
}

static void damage(void **state)
{
	size_t i;

	(void)state;
	assert_int_equal(setenv("GOLDEN", UNSHARD_GOLDEN "/zero", 1), 0);
	for (i = 0; i < sizeof(damage_cases) / sizeof(*damage_cases); i++) {
		const char *said;
		struct fixture f;

		print_message("%s\n", damage_cases[i].name);
		fixture_init(&f, damage_cases[i].golden);
		shell(f.dir, damage_cases[i].change);
		fixture_open(&f, &uns_format_zero, "global_step2");
		said = serious(&f);
		if (!strstr(said, damage_cases[i].problem) ||
		    (damage_cases[i].also && !strstr(said, damage_cases[i].also)))
			fail_msg("said: %s", said);
		assert_int_equal(serves(&f, MODEL_ROLES), damage_cases[i].served == MODEL_ROLES);
		assert_int_equal(serves(&f, STATE_ROLES), damage_cases[i].served == STATE_ROLES);
		if (damage_cases[i].served)
			compare_expected(&f, damage_cases[i].served);
		fixture_fini(&f);
	}
}

/* Where a shard is missing, what lies in the others is still mapped to where it belongs, and what is
 * lost is named. */
static void names_what_a_missing_rank_held(void **state)
{
	const struct uns_tensor *t;
	struct uns_err err = { 0 };
	struct fixture f;
	size_t size, n = 0;
	uint32_t i;

	(void)state;
	fixture_init(&f, "z2_w3");
	shell(f.dir, "rm " OPTIM "0_*");
	fixture_open(&f, &uns_format_zero, "global_step2");
	t = uns_catalog_find(f.cat, UNS_ROLE_MASTER, "emb.weight");
	assert_int_equal(uns_cover_check(f.cat, t, &err), -ENODATA);
	assert_non_null(strstr(err.text, SHARD "0_mp_rank_00_optim_states.pt"));
	for (i = 0; i < f.cat->n_tensors; i++) {
		t = &f.cat->tensors[i];
		if (t->role != UNS_ROLE_MASTER || uns_cover_check(f.cat, t, NULL) < 0)
			continue;
		free(read_tensor(&f, t, &size));
		n++;
	}
	assert_true(n > 0);
	fixture_fini(&f);
}

/* Stage 3 has no weights of its own: the view says so, and gives the fp32 copies out unrounded where
 * fp32 is asked for. */
static void weights_view_tells_where_weights_are_from(void **state)
{
	static const struct {
		const char *golden, *parameter, *origin;
	} cases[] = {
		{ "z3_w2", "",
		  "assembled from the checkpoint's tensors; 6 of them were saved "
		  "as the optimizer's fp32 copies only and are converted to the model's dtype" },
		{ "z3_w2", "fp32",
		  "assembled from the checkpoint's tensors, floating dtypes converted to "
		  "float32; 6 of them are made from the optimizer's fp32 copies; "
		  "widened, because the optimizer has no fp32 copy: "
		  "frozen.weight" },
		{ "z2_w3", "", "assembled from the checkpoint's tensors" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_view_input in = { .max_shard_size_bytes = UINT64_MAX };
		struct uns_vtree tree = { 0 };
		struct uns_err err = { 0 };
		struct fixture f;
		uint64_t parameter;

		fixture_init(&f, cases[i].golden);
		fixture_open(&f, &uns_format_zero, "global_step2");
		in.catalog = f.cat;
		assert_true(uns_view_weights.parse(cases[i].parameter, &parameter));
		if (uns_view_weights.supports(f.cat, parameter, &err) < 0 ||
		    uns_view_weights.tree(&in, parameter, &tree, &err) < 0)
			fail_msg("%s", err.text);
		uns_vtree_seal(&tree);
		assert_string_equal(uns_vtree_find(&tree, "model.safetensors")->origin, cases[i].origin);
		uns_vtree_fini(&tree);
		fixture_fini(&f);
	}
}

/* Of every stage, and of files that record all or only some of what may be recorded: N optimizer's shards, each with
 * bytes. */
static void world_view_has_a_shard_of_each_rank(void **state)
{
	static const char *const golden[] = { "z1_bf16_optimizer_w2", "z2_w3", "z3_w2" };
	size_t i, k, n;
	uint64_t world;

	(void)state;
	for (i = 0; i < sizeof(golden) / sizeof(*golden); i++) {
		struct uns_view_input in = { .max_shard_size_bytes = UINT64_MAX };
		struct fixture f;

		print_message("%s\n", golden[i]);
		fixture_init(&f, golden[i]);
		fixture_open(&f, &uns_format_zero, "global_step2");
		in.catalog = f.cat;
		for (world = 1; world < 4; world++) {
			struct uns_vtree tree = { 0 };
			struct uns_err err = { 0 };

			if (uns_view_world.supports(f.cat, world, &err) < 0 ||
			    uns_view_world.tree(&in, world, &tree, &err) < 0)
				fail_msg("%s", err.text);
			uns_vtree_seal(&tree);
			for (k = n = 0; k < tree.n; k++)
				n += strstr(tree.v[k].path, "_optim_states.pt") && tree.v[k].layout.size_bytes > 0;
			assert_int_equal(n, world);
			uns_vtree_fini(&tree);
		}
		fixture_fini(&f);
	}
}

/* What the weights view shows as model.safetensors, into a file. */
static void write_gathered(struct fixture *f, const char *path)
{
	struct uns_view_input in = { .catalog = f->cat, .max_shard_size_bytes = UINT64_MAX };
	struct uns_vtree tree = { 0 };
	struct uns_err err = { 0 };
	const struct uns_vfile *file;
	uint8_t *bytes;
	FILE *out;

	if (uns_view_weights.tree(&in, UNS_DTYPE_NONE, &tree, &err) < 0)
		fail_msg("%s", err.text);
	uns_vtree_seal(&tree);
	file = uns_vtree_find(&tree, "model.safetensors");
	bytes = malloc(file->layout.size_bytes);
	assert_non_null(bytes);
	assert_int_equal(uns_read(f->backing, &file->layout, bytes, file->layout.size_bytes, 0, NULL),
			 file->layout.size_bytes);
	out = fopen(path, "w");
	assert_non_null(out);
	assert_int_equal(fwrite(bytes, 1, file->layout.size_bytes, out), file->layout.size_bytes);
	fclose(out);
	free(bytes);
	uns_vtree_fini(&tree);
}

/* stage3_gather_16bit_weights_on_model_save: the weights beside the shards are used when they are whole,
 * and then do not need the optimizer's. */
static void uses_gathered_weights(void **state)
{
	static const struct {
		const char *name, *change; /* in checkpoint-2 */
		bool used, served;
		const char *problem;
	} cases[] = {
		{ "whole", "true", true, true, NULL },
		{ "an optimizer's shard is missing", "rm " OPTIM "1_*", true, true,
		  "(data-parallel rank 1) is missing" },
		{ "of another model", "cp other.safetensors model.safetensors", false, true,
		  "model.safetensors is not used: it does not hold frozen.weight in its "
		  "full shape" },
		{ "cut", "truncate -s 100 model.safetensors", false, true, "model.safetensors is not used" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct uns_tensor *t;
		struct fixture f, again;
		char path[96];

		print_message("%s\n", cases[i].name);
		fixture_init(&f, "z3_w2");
		fixture_open(&f, &uns_format_zero, "global_step2");
		fixture_init(&again, "z3_w2");
		shell(again.dir, "mkdir checkpoint-2; mv global_step2 latest checkpoint-2; printf "
				 "'\\2\\0\\0\\0\\0\\0\\0\\0{}' > checkpoint-2/other.safetensors");
		snprintf(path, sizeof(path), "%s/checkpoint-2/model.safetensors", again.dir);
		write_gathered(&f, path);
		fixture_fini(&f);
		shell(again.dir, "cd checkpoint-2");
		snprintf(path, sizeof(path), "%s/checkpoint-2", again.dir);
		shell(path, cases[i].change);
		fixture_open(&again, &uns_format_zero, "checkpoint-2");
		t = uns_catalog_find(again.cat, UNS_ROLE_WEIGHT, "up.weight");
		assert_non_null(t);
		assert_int_equal(t->alias_of == UNS_NONE, cases[i].used);
		assert_int_equal(t->group, 0);
		assert_int_equal(serves(&again, MODEL_ROLES), cases[i].served);
		compare_expected(&again, 1U << UNS_ROLE_WEIGHT);
		if (cases[i].problem && !strstr(said(&again.cat->findings[0]), cases[i].problem))
			fail_msg("said: %s", said(&again.cat->findings[0]));
		fixture_fini(&again);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole),
		cmocka_unit_test(keeps_what_else_was_saved),
		cmocka_unit_test(probes),
		cmocka_unit_test(runs),
		cmocka_unit_test(damage),
		cmocka_unit_test(names_what_a_missing_rank_held),
		cmocka_unit_test(weights_view_tells_where_weights_are_from),
		cmocka_unit_test(world_view_has_a_shard_of_each_rank),
		cmocka_unit_test(uses_gathered_weights),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
