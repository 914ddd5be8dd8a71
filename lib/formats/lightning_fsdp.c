/* lightning_fsdp: what Lightning's FSDPStrategy (sharded) and ModelParallelStrategy save, under a Trainer or under
 * Fabric.
 *
 *   .metadata  __0_0.distcp ...   one DCP directory; roots "model" (FSDP) or "state_dict" (model
 *                                 parallel), "optimizer_0", "optimizer_1", ...; under Fabric the keys that the script
 *                                 gave its models and optimizers
 *   meta.pt                       torch.save of the rest; written last. A Trainer's: epoch, global_step,
 *                                 pytorch-lightning_version, loops, callbacks, lr_schedulers, hyper_parameters;
 *                                 Fabric's: the script's other keys
 *
 * With save_weights_only there are no optimizers, and meta.pt lacks callbacks and lr_schedulers.
 * Owns this layout and how meta.pt is kept (model/meta_file.h). Source: lightning 2.2 - 2.6,
 * {pytorch,fabric}/strategies/{fsdp,model_parallel}.py. */
#include "formats/format.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "model/meta_file.h"
#include "files/beside.h"
#include "model/save_times.h"
#include "files/lightning_file.h"
#include "files/adapter.h"
#include "files/resume_files.h"
#include "dcp/dir.h"
#include "wire/pickle.h"
#include "wire/torchfile.h"

enum { MAX_PICKLE_BYTES = 64 << 20 };

static const char META[] = "meta.pt";

static int probe(const struct uns_directory *dir)
{
	const struct uns_entry *meta = uns_listing_find(dir->list, META);

	if (!meta || meta->kind == UNS_KIND_DIR)
		return 0;
	return uns_dcp_dir_is(dir->list) || uns_beside_distcp_ranks(dir->list) ? 80 : 0;
}

/* -- meta.pt -- */

/* The file while it is open. */
struct meta {
	struct uns_catalog *cat;
	uint32_t file;
	struct uns_torchfile torch;
};

static int add_value(struct meta *m, const char *root, const char *name, const struct uns_value *v, struct uns_err *err)
{
	const struct uns_named_value named = { .name = name, .root = root, .value = v, .file = m->file };

	return uns_catalog_add_value(m->cat, &named, err);
}

/* The pickle as it is, up to STOP: what comes behind that is no part of it. */
static int add_pickle(struct meta *m, const struct uns_reader *r, struct uns_err *err)
{
	const struct uns_zip_record *rec = uns_zip_find(&m->torch.zip, "data.pkl");
	struct uns_value *bytes = UNS_NEW(&m->cat->arena, struct uns_value);
	struct uns_arena *arena = &m->cat->arena;
	const struct uns_value *unused;
	struct uns_span text, rest;

	UNS_TRY_ALLOC(rec && bytes, err);
	UNS_TRY(uns_zip_read(r, rec, MAX_PICKLE_BYTES, arena, &text, err));
	rest = text;
	UNS_TRY(uns_pickle_parse(&rest, arena, &unused, err));
	bytes->kind = UNS_VALUE_BYTES;
	bytes->bytes = (const char *)text.p;
	bytes->n = (uint32_t)(rest.p - text.p) - 1;
	return add_value(m, UNS_META_PICKLE, "", bytes, err);
}

static int add_storage(struct meta *m, const struct uns_reader *r, const struct uns_zip_record *record, const char *key,
		       struct uns_err *err)
{
	struct uns_tensor t = { .name = key,
				.key = key,
				.root = UNS_META_ROOT,
				.role = UNS_ROLE_OTHER,
				.dtype = UNS_U8,
				UNS_TENSOR_ALONE,
				.shape = { .n = 1, .dim = { record->size_bytes } } };
	const struct uns_box whole = { .n = 1, .len = { record->size_bytes } };
	struct uns_piece piece = { .kind = UNS_PIECE_BOX,
				   .file = m->file,
				   .rank = -1,
				   .container = UNS_RAW,
				   .length_bytes = record->size_bytes,
				   .box = &whole };
	uint32_t index;

	UNS_TRY(uns_zip_data(r, record, &piece.offset_bytes, err));
	UNS_TRY(uns_catalog_add_tensor(m->cat, &t, &index, err));
	return record->size_bytes ? uns_catalog_add_piece(m->cat, &piece, err) : 0;
}

static int add_storages(struct meta *m, const struct uns_reader *r, struct uns_err *err)
{
	const struct uns_zip *zip = &m->torch.zip;
	size_t i, prefix = strlen(zip->prefix);
	const char *name;

	if (m->torch.big_endian)
		return uns_fail(err, -ENOTSUP, "it was written on a big-endian machine");
	for (i = 0; i < zip->n; i++) {
		name = zip->v[i].name + prefix;
		if (uns_str_starts(name, "data/"))
			UNS_TRY(add_storage(m, r, &zip->v[i], name + strlen("data/"), err));
	}
	return 0;
}

static int read_meta(struct meta *m, const struct uns_directory *dir, const char *path, struct uns_err *err)
{
	const struct uns_identity *id = &m->cat->files[m->file].stat.id;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open_file = { .name = path };
	const struct uns_value *root;
	struct uns_reader r;
	struct uns_stat now;
	const char *key;
	size_t i;

	UNS_TRY(uns_root_open_file(dir->root, path, &fd, &now, err));
	if (!uns_identity_equal(&now.id, id))
		return uns_fail(err, -ESTALE, "the file changed while it was being read");
	open_file.fd = fd;
	r = uns_reader_of_file(&open_file, id->size);
	UNS_TRY(uns_torchfile_open(&r, &m->cat->arena, &m->torch, err));
	root = m->torch.root;
	if (root->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "it does not hold a dict");
	for (i = 0; i < root->n; i++) {
		key = uns_value_str(root->pair[i].key);
		if (!key)
			return uns_fail(err, -ENOTSUP, "it holds a key that is not a name");
		UNS_TRY(add_value(m, UNS_META_ROOT, key, root->pair[i].value, err));
	}
	UNS_TRY(add_storages(m, &r, err));
	return add_pickle(m, &r, err);
}

/* Without it the weights are there, and nothing to resume from. */
static int add_meta(struct uns_catalog *cat, const struct uns_directory *dir, struct uns_err *err)
{
	struct meta m = { .cat = cat };
	struct uns_err why = { .keep = &cat->arena };
	const char *path;

	UNS_TRY(uns_beside_add_shard(cat, dir->root, dir->path, "", META, &m.file, err));
	path = cat->files[m.file].path;
	if (read_meta(&m, dir, path, &why) < 0) {
		uns_fail_in_file(&why, path);
		return uns_catalog_problem_or_fail(cat, UNS_SCOPE_OPTIMIZER, &why, err);
	}
	if (!uns_value_get(m.torch.root, "pytorch-lightning_version")) {
		cat->summary.framework = "Lightning Fabric";
		cat->summary.resumed_by = UNS_BY_FABRIC;
		return 0;
	}
	if (!uns_value_int(uns_value_get(m.torch.root, "global_step"), &cat->summary.step) || cat->summary.step < 0)
		cat->summary.step = UNS_UNKNOWN;
	return 0;
}

/* -- open -- */

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		    struct uns_err *err)
{
	const struct uns_dcp_roots roots = {
		.weights = options && options->n_weight_roots ? options->weight_roots : NULL,
		.n_weights = options ? options->n_weight_roots : 0,
		.keys_are_objects = true,
	};
	struct uns_save_end end = { .root = dir->root, .below = dir->path, .is_state = true };
	struct uns_err why = { .keep = &cat->arena };
	int64_t ranks = uns_beside_distcp_ranks(dir->list);

	cat->summary.format = "lightning_fsdp";
	cat->summary.framework = "Lightning, FSDP";
	cat->summary.family = UNS_FAMILY_DCP;
	cat->summary.resumed_by = UNS_BY_LIGHTNING;
	cat->summary.is_one_file = true;
	cat->summary.step = UNS_UNKNOWN;
	cat->summary.world_size = ranks ? ranks : UNS_UNKNOWN;
	cat->summary.finished = uns_dcp_dir_is(dir->list); /* meta.pt is there, and it comes last */
	if (uns_dcp_dir_add(cat, dir->root, dir->path, "", &roots, &why) < 0)
		UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_ALL, &why, err));
	UNS_TRY(add_meta(cat, dir, err));
	end.path = uns_path_join(&cat->arena, dir->path, META);
	UNS_TRY(uns_save_times_check(cat, &end, err));
	UNS_TRY(uns_beside_add(cat, dir->root, dir->path, "", dir->list, err));
	cat->summary.is_weights_only = !uns_lightning_has_optimizer(cat);
	if (cat->summary.resumed_by & UNS_BY_LIGHTNING)
		uns_resume_find(cat);
	UNS_TRY(uns_adapter_find(cat, err));
	return uns_catalog_seal(cat, err);
}

const struct uns_format uns_format_lightning_fsdp = {
	.name = "lightning_fsdp",
	.family = UNS_FAMILY_DCP,
	.is_one_file = true,
	.probe = probe,
	.open = open_dir,
};
