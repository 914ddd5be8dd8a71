/* What was found out once and is kept in the store: a checkpoint's catalog and its tensors' CRCs,
 * under a key that says of which files, read by which program with which options. All of it can be
 * found out again, so that nothing here fails. */
#include "session/session.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "model/catalog_pack.h"

/* -- the key -- */

struct build {
	uint64_t hash;
	bool found;
};

/* The linker's identity of the program or library that this code is part of: another build may read
 * the same metadata otherwise. */
static int hash_build_id(struct dl_phdr_info *object, size_t size, void *ctx)
{
	struct build *build = ctx;
	uintptr_t here = (uintptr_t)hash_build_id, at;
	const ElfW(Nhdr) *note;
	bool ours = false;
	size_t i;

	(void)size;
	for (i = 0; i < object->dlpi_phnum; i++) {
		at = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
		ours |= object->dlpi_phdr[i].p_type == PT_LOAD && here >= at &&
			here - at < object->dlpi_phdr[i].p_memsz;
	}
	for (i = 0; ours && i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &object->dlpi_phdr[i];
		const char *n = (const char *)(object->dlpi_addr + p->p_vaddr), *end = n;

		for (end += p->p_type == PT_NOTE ? p->p_memsz : 0; n + sizeof(*note) <= end;
		     n += sizeof(*note) + ((note->n_namesz + 3) & ~3u) +
			  ((note->n_descsz + 3) & ~3u)) {
			note = (const void *)n;
			if (note->n_type != NT_GNU_BUILD_ID || note->n_namesz != 4)
				continue;
			build->hash = uns_hash_bytes(build->hash, n + sizeof(*note) + 4,
						     note->n_descsz);
			build->found = true;
		}
	}
	return ours;
}

static uint64_t hash_strings(uint64_t h, const char *const *v, size_t n)
{
	h = uns_hash_u64(h, n);
	while (n--)
		h = uns_hash_str(h, *v++);
	return h;
}

void memo_init(struct unshard *u, const struct unshard_options *o)
{
	struct build build = { .hash = uns_hash_str(UNS_HASH_INIT, UNSHARD_VERSION) };

	dl_iterate_phdr(hash_build_id, &build);
	if (!build.found)
		build.hash = uns_hash_str(build.hash, __DATE__ __TIME__);
	build.hash = uns_hash_u64(build.hash, UNS_CATALOG_PACK_VERSION);
	build.hash = hash_strings(build.hash, o->weight_root, o->n_weight_root);
	build.hash = hash_strings(build.hash, o->follow, o->n_follow);
	build.hash = uns_hash_u64(build.hash, o->assume != NULL);
	u->crc_salt = build.hash;
	u->memo_salt = uns_hash_str(build.hash, u->real_root);
}

static uint64_t key_of(const struct unshard *u, const struct place *place)
{
	/* A catalog is made of the files, and of a layout from the store where the format has one. */
	uint64_t h = uns_hash_u64(u->memo_salt, place->format->wants_units ?
							place->generation :
							place->source_generation);

	h = uns_hash_str(h, place->format->name);
	return uns_hash_end(uns_hash_str(h, place->path));
}

/* CRCs hang on the files alone, whichever directory above them is SOURCE. */
static uint64_t crc_key_of(const struct unshard *u, const struct place *place)
{
	uint64_t h = uns_hash_u64(u->crc_salt, place->source_generation);

	return uns_hash_end(uns_hash_str(h, place->format->name));
}

/* A file that changed just before it was read may change again without its times showing it: by how
 * much depends on how finely its file system keeps time. */
bool memo_allowed(const struct place *place)
{
	const int64_t fine_ns = 100000000, coarse_ns = 2500000000;
	struct timespec t;
	int64_t newest_ns = __atomic_load_n(&place->newest_ns, __ATOMIC_RELAXED), age;

	clock_gettime(CLOCK_REALTIME, &t);
	age = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - newest_ns;
	return age >= (newest_ns % 1000000000 ? fine_ns : coarse_ns);
}

/* -- catalogs -- */

static int load(struct unshard *u, const struct place *place, struct uns_catalog *cat)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_store *store = store_hold(u, NULL);
	struct uns_span bytes;
	int code;

	if (!store)
		return -ENOENT;
	code = uns_store_memo_get(store, "catalog", key_of(u, place), &arena, &bytes, NULL);
	store_release(u);
	return code < 0 ? code : uns_catalog_unpack(bytes, u->root, cat, NULL);
}

int memo_load_catalog(struct unshard *u, const struct place *place, struct uns_capture *capture,
		      struct uns_catalog **out)
{
	struct uns_catalog *cat;
	int code;

	UNS_TRY(uns_catalog_new(place->path, &cat, NULL));
	cat->capture = capture;
	code = load(u, place, cat);
	if (code < 0)
		uns_catalog_free(cat);
	else
		*out = cat;
	__atomic_add_fetch(code < 0 ? &u->n_opened : &u->n_remembered, 1, __ATOMIC_RELAXED);
	return code;
}

void memo_save_catalog(struct unshard *u, const struct place *place, const struct uns_catalog *cat)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text bytes = UNS_TEXT_INIT;
	struct uns_store *store = store_hold(u, NULL);

	if (!store)
		return;
	if (uns_catalog_pack(cat, u->root, &bytes, NULL) == 0)
		uns_store_memo_put(store, "catalog", key_of(u, place), bytes.p, bytes.len, NULL);
	store_release(u);
}

/* -- CRCs -- */

void memo_load_crcs(struct unshard *u, const struct place *place, struct snapshot *snap)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_store *store = store_hold(u, NULL);
	struct uns_span bytes;
	int code;

	snap->memo_key = crc_key_of(u, place);
	snap->memo_allowed = memo_allowed(place);
	if (!store)
		return;
	code = uns_store_memo_get(store, "crc", snap->memo_key, &arena, &bytes, NULL);
	store_release(u);
	if (code == 0)
		uns_backing_crc_import(snap->backing, bytes);
	snap->crcs_kept = uns_backing_crc_changes(snap->backing);
}

void memo_save_crcs(struct unshard *u, struct snapshot *snap)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text bytes = UNS_TEXT_INIT;
	uint64_t changes = uns_backing_crc_changes(snap->backing);
	struct uns_store *store;

	if (!snap->memo_allowed ||
	    __atomic_exchange_n(&snap->crcs_kept, changes, __ATOMIC_RELAXED) == changes)
		return;
	store = store_hold(u, NULL);
	if (!store)
		return;
	uns_backing_crc_export(snap->backing, &bytes);
	if (!bytes.failed)
		uns_store_memo_put(store, "crc", snap->memo_key, bytes.p, bytes.len, NULL);
	store_release(u);
}
