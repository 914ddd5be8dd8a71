/* See megatron/common_pickle.h. Copies pickles; does not know what is in them. */
#include "megatron/common_pickle.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "wire/value_new.h"

enum { MAX_PICKLE_BYTES = 16 << 20, MAX_STORAGES_BYTES = 1 << 20 }; /* of catalogs in memory and in the store */
enum { PROTO_BYTES = 2, STOP_BYTES = 1 };

static const char PROTO_2[] = "\x80\x02";

/* -- values of the catalog -- */

static int text_add(struct uns_catalog *cat, uint32_t file, const char *why, struct uns_err *err)
{
	const struct uns_named_value named = {
		.name = "", .root = UNS_MEGATRON_PICKLE, .file = file, .value = uns_value_new_str(&cat->arena, why)
	};

	return named.value ? uns_catalog_add_value(cat, &named, err) : uns_oom(err);
}

static int bytes_add(struct uns_catalog *cat, uint32_t file, const char *root, const char *name, const void *p,
		     size_t n, struct uns_err *err)
{
	struct uns_value *v = UNS_NEW(&cat->arena, struct uns_value);
	const struct uns_named_value named = { .name = name, .root = root, .file = file, .value = v };

	UNS_TRY_ALLOC(v && name, err);
	*v = (struct uns_value){ .kind = UNS_VALUE_BYTES, .n = (uint32_t)n };
	UNS_TRY_ALLOC(v->bytes = uns_arena_strn(&cat->arena, p, n), err);
	return uns_catalog_add_value(cat, &named, err);
}

/* -- a file -- */

/* NULL, or why the pickle, which was read as `root`, cannot be continued. */
static const char *pickle_refusal(struct uns_span pickle, const struct uns_value *root, struct uns_arena *scratch)
{
	struct uns_span rest = pickle;
	const struct uns_value *unused;

	if (!root || root->kind != UNS_VALUE_DICT || root->cls)
		return "it does not hold a dict";
	if (uns_pickle_parse(&rest, scratch, &unused, NULL) < 0 || uns_span_left(&rest))
		return "its pickle does not end where it should";
	return NULL;
}

static const char *key_of(const struct uns_torchfile *torch, const struct uns_zip_record *record)
{
	const char *name = record->name + strlen(torch->zip.prefix);

	return uns_str_starts(name, "data/") ? name + strlen("data/") : NULL;
}

/* Of the storages. *why: NULL, or why they cannot be kept. */
static int storages_keep(struct uns_catalog *cat, uint32_t file, const struct uns_torchfile *torch, const char **why,
			 struct uns_err *err)
{
	const struct uns_zip_record *r = torch->zip.v, *end = r + torch->zip.n;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	uint64_t total = 0, n = 0, i;
	struct uns_span bytes;
	char name[32];

	for (; r < end; r++)
		if (key_of(torch, r)) {
			n++;
			total += r->size_bytes < MAX_STORAGES_BYTES ? r->size_bytes : MAX_STORAGES_BYTES;
		}
	if (total >= MAX_STORAGES_BYTES) {
		*why = "its tensors have more than 1 MiB, which unshard does not copy";
		return 0;
	}
	for (i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "data/%llu", (unsigned long long)i);
		r = uns_zip_find(&torch->zip, name);
		if (!r) {
			*why = "its storages are not numbered from 0, as torch numbers them";
			return 0;
		}
		UNS_TRY(uns_zip_read(torch->r, r, MAX_STORAGES_BYTES, &scratch, &bytes, err));
		UNS_TRY(bytes_add(cat, file, UNS_MEGATRON_STORAGE, uns_arena_str(&cat->arena, name + strlen("data/")),
				  bytes.p, uns_span_left(&bytes), err));
	}
	return 0;
}

static int content_keep(struct uns_catalog *cat, uint32_t file, const struct uns_value *content, struct uns_err *err)
{
	struct uns_named_value named = { .name = UNS_MEGATRON_CONTENT, .root = UNS_MEGATRON_COMMON, .file = file };

	if (!content || content->kind != UNS_VALUE_DICT)
		return 0;
	UNS_TRY_ALLOC(named.value = uns_value_copy(&cat->arena, content), err);
	return uns_catalog_add_value(cat, &named, err);
}

/* {"optimizer": {"grad_scaler": ..}} or, of several optimizers, {"optimizer": {0: {"grad_scaler": ..}, ..}} */
static int scaler_keep(struct uns_catalog *cat, uint32_t file, const struct uns_value *optimizer, struct uns_err *err)
{
	struct uns_named_value named = { .name = UNS_MEGATRON_SCALER, .root = UNS_MEGATRON_COMMON, .file = file };
	bool found = uns_value_get(optimizer, UNS_MEGATRON_SCALER) != NULL;
	size_t i;

	for (i = 0; optimizer && optimizer->kind == UNS_VALUE_DICT && i < optimizer->n; i++)
		found |= uns_value_get(optimizer->pair[i].value, UNS_MEGATRON_SCALER) != NULL;
	if (!found)
		return 0;
	UNS_TRY_ALLOC(named.value = uns_value_new_bool(&cat->arena, true), err);
	return uns_catalog_add_value(cat, &named, err);
}

int uns_megatron_schedule_keep(struct uns_catalog *cat, uint32_t file, struct uns_err *err)
{
	struct uns_named_value named = { .name = UNS_MEGATRON_SCHEDULE, .root = UNS_MEGATRON_COMMON, .file = file };

	UNS_TRY_ALLOC(named.value = uns_value_new_bool(&cat->arena, true), err);
	return uns_catalog_add_value(cat, &named, err);
}

int uns_megatron_common_keep(struct uns_catalog *cat, uint32_t file, const struct uns_torchfile *torch,
			     struct uns_err *err)
{
	const struct uns_zip_record *record = uns_zip_find(&torch->zip, "data.pkl");
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct uns_span pickle;
	const char *why = NULL;

	if (!record || record->size_bytes > MAX_PICKLE_BYTES)
		return text_add(cat, file, "it is larger than 16 MiB, which unshard does not copy", err);
	UNS_TRY(uns_zip_read(torch->r, record, MAX_PICKLE_BYTES, &scratch, &pickle, err));
	why = pickle_refusal(pickle, torch->root, &scratch);
	if (!why)
		UNS_TRY(storages_keep(cat, file, torch, &why, err));
	if (why)
		return text_add(cat, file, why, err);
	UNS_TRY(scaler_keep(cat, file, uns_value_get(torch->root, "optimizer"), err));
	if (uns_value_get(torch->root, UNS_MEGATRON_SCHEDULE) || uns_value_get(torch->root, UNS_MEGATRON_OLD_SCHEDULE))
		UNS_TRY(uns_megatron_schedule_keep(cat, file, err));
	UNS_TRY(content_keep(cat, file, uns_value_get(torch->root, UNS_MEGATRON_CONTENT), err));
	return bytes_add(cat, file, UNS_MEGATRON_PICKLE, "", pickle.p, uns_span_left(&pickle) - STOP_BYTES, err);
}

/* -- objects -- */

static void key_put(struct uns_text *out, const char *key)
{
	const size_t n = strlen(key);

	uns_text_add(out, "X", 1);
	uns_text_le(out, n, 4);
	uns_text_add(out, key, n);
}

static void dict_end(struct uns_megatron_kept *kept)
{
	if (kept->dict)
		uns_text_add(&kept->pickle, "s", 1);
	kept->dict = NULL;
}

static void dict_begin(struct uns_megatron_kept *kept, const char *dict)
{
	if (!kept->pickle.len) {
		uns_text_add(&kept->pickle, PROTO_2, PROTO_BYTES);
		uns_text_add(&kept->pickle, "}", 1);
	}
	if (kept->dict && strcmp(kept->dict, dict) == 0)
		return;
	dict_end(kept);
	if (!*dict)
		return;
	kept->n_keys++;
	kept->dict = dict;
	key_put(&kept->pickle, dict);
	uns_text_add(&kept->pickle, "}", 1);
}

/* Is it a pickle of one value alone, which may be put between others? */
static bool is_alone(const struct uns_torchfile *torch, struct uns_span pickle, struct uns_arena *scratch)
{
	const struct uns_zip_record *r = torch->zip.v, *end = r + torch->zip.n;
	const size_t n = uns_span_left(&pickle);
	const struct uns_value *unused;

	for (; r < end; r++)
		if (key_of(torch, r))
			return false;
	if (n < PROTO_BYTES + STOP_BYTES || memcmp(pickle.p, PROTO_2, PROTO_BYTES) != 0)
		return false;
	return uns_pickle_parse(&pickle, scratch, &unused, NULL) == 0 && !uns_span_left(&pickle);
}

int uns_megatron_kept_add(struct uns_megatron_kept *kept, const char *dict, const char *name, struct uns_span item,
			  struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct uns_reader r = uns_reader_of_span(&item);
	const struct uns_zip_record *record;
	struct uns_torchfile torch;
	struct uns_span pickle;

	UNS_TRY(uns_torchfile_open(&r, &scratch, &torch, err));
	record = uns_zip_find(&torch.zip, "data.pkl"); /* it was opened by it */
	if (record->size_bytes > MAX_PICKLE_BYTES - kept->pickle.len)
		return 0;
	UNS_TRY(uns_zip_read(&r, record, MAX_PICKLE_BYTES, &scratch, &pickle, err));
	if (!is_alone(&torch, pickle, &scratch))
		return 0;
	dict_begin(kept, dict);
	kept->n_keys += !*dict;
	key_put(&kept->pickle, name);
	uns_text_add(&kept->pickle, pickle.p + PROTO_BYTES, uns_span_left(&pickle) - PROTO_BYTES - STOP_BYTES);
	uns_text_add(&kept->pickle, "s", 1);
	return kept->pickle.failed ? uns_oom(err) : 1;
}

/* An object whose pickle left more than itself on the machine's stack has put others out of place. */
static bool is_dict(const struct uns_megatron_kept *kept)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text whole = UNS_TEXT_INIT;
	const struct uns_value *v;
	struct uns_span in;

	uns_text_add(&whole, kept->pickle.p, kept->pickle.len);
	uns_text_add(&whole, ".", STOP_BYTES);
	in = uns_span_of(whole.p, whole.len);
	return !whole.failed && uns_pickle_parse(&in, &scratch, &v, NULL) == 0 && v->kind == UNS_VALUE_DICT &&
	       !v->cls && v->n == kept->n_keys;
}

int uns_megatron_kept_finish(struct uns_megatron_kept *kept, struct uns_catalog *cat, uint32_t file,
			     struct uns_err *err)
{
	dict_begin(kept, "");
	dict_end(kept);
	if (kept->pickle.failed)
		return uns_oom(err);
	if (!is_dict(kept))
		return text_add(cat, file, "its objects cannot be put together", err);
	return bytes_add(cat, file, UNS_MEGATRON_PICKLE, "", kept->pickle.p, kept->pickle.len, err);
}

void uns_megatron_kept_fini(struct uns_megatron_kept *kept)
{
	uns_text_fini(&kept->pickle);
}
