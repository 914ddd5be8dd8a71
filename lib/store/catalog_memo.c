/* The keys of a checkpoint's memos. */
#include "store/catalog_memo.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
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
	const ElfW(Nhdr) * note;
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
		     n += sizeof(*note) + ((note->n_namesz + 3) & ~3u) + ((note->n_descsz + 3) & ~3u)) {
			note = (const void *)n;
			if (note->n_type != NT_GNU_BUILD_ID || note->n_namesz != 4)
				continue;
			build->hash = uns_hash_bytes(build->hash, n + sizeof(*note) + 4, note->n_descsz);
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

void memo_init(struct memo *memo, struct store_link *store, const struct uns_root *root, const char *source,
	       const struct memo_options *o)
{
	struct build build = { .hash = uns_hash_str(UNS_HASH_INIT, UNSHARD_VERSION) };

	dl_iterate_phdr(hash_build_id, &build);
	build.hash = uns_hash_u64(build.hash, UNS_CATALOG_PACK_VERSION);
	build.hash = hash_strings(build.hash, o->weight_roots, o->n_weight_roots);
	build.hash = hash_strings(build.hash, o->follow, o->n_follow);
	build.hash = uns_hash_u64(build.hash, o->assume_units);
	build.hash = hash_strings(build.hash, o->adapters, o->n_adapters);
	*memo = (struct memo){ .store = store, .root = root, .off = !build.found, .crc_salt = build.hash };
	memo->salt = uns_hash_str(build.hash, source);
}

static uint64_t key_of(const struct memo *memo, const struct memo_subject *of)
{
	uint64_t h = uns_hash_u64(uns_hash_u64(memo->salt, of->own_generation), of->facts);

	h = uns_hash_str(h, of->format);
	return uns_hash_end(uns_hash_str(h, of->path));
}

uint64_t memo_crc_key(const struct memo *memo, const struct memo_subject *of, const struct uns_catalog *cat)
{
	uint64_t h = uns_hash_u64(memo->crc_salt, of->own_generation);
	const struct uns_identity *id;
	size_t i;

	for (i = 0; i < cat->n_files; i++) {
		id = &cat->files[i].stat.id;
		h = uns_hash_u64(uns_hash_u64(h, id->ino), id->size);
		h = uns_hash_u64(uns_hash_u64(h, (uint64_t)id->mtime_ns), (uint64_t)id->ctime_ns);
		h = uns_hash_u64(h, id->mount);
	}
	return uns_hash_end(uns_hash_str(h, of->format));
}

/* A file that changed just before it was read may change again without its times showing it: by how
 * much depends on how finely its file system keeps time. */
bool memo_lasts(int64_t newest_ns)
{
	const int64_t fine_ns = 100000000, coarse_ns = 2500000000;

	return uns_wall_ns() - newest_ns >= (newest_ns % 1000000000 ? fine_ns : coarse_ns);
}

static int load(const struct memo *memo, const char *kind, uint64_t key, struct uns_arena *arena, struct uns_span *out)
{
	struct uns_store *store = memo->off ? NULL : store_hold(memo->store, NULL);
	int code;

	if (!store)
		return -ENOENT;
	code = uns_store_memo_get(store, kind, key, arena, out, NULL);
	store_release(memo->store);
	return code;
}

static void save(const struct memo *memo, const char *kind, uint64_t key, const struct uns_text *bytes)
{
	struct uns_store *store = bytes->failed || memo->off ? NULL : store_hold(memo->store, NULL);

	if (!store)
		return;
	uns_store_memo_put(store, kind, key, bytes->p, bytes->len, NULL);
	store_release(memo->store);
}

static bool can_save(const struct memo *memo)
{
	struct uns_store *store = memo->off ? NULL : store_hold(memo->store, NULL);

	if (store)
		store_release(memo->store);
	return store != NULL;
}

/* What was looked at outside its directory is in front of the catalog. */
static int unpack(const struct memo *memo, struct uns_span bytes, struct uns_arena *arena, struct uns_catalog *cat)
{
	struct uns_input *v;
	size_t n;
	int same;

	UNS_TRY(uns_inputs_unpack(&bytes, memo->root, arena, &v, &n));
	UNS_TRY(same = uns_seen_unpacked(cat->capture, v, n, NULL));
	return same ? uns_catalog_unpack(bytes, memo->root, cat, NULL) : -ESTALE;
}

int memo_load_catalog(struct memo *memo, const struct memo_subject *of, struct uns_capture *capture,
		      struct uns_catalog **out)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_inputs *before;
	struct uns_catalog *cat;
	struct uns_span bytes;
	int code;

	UNS_TRY(uns_catalog_new(of->path, &cat, NULL));
	cat->capture = capture;
	before = uns_inputs_ref(*uns_capture_inputs(capture));
	code = load(memo, "catalog", key_of(memo, of), &arena, &bytes);
	if (code == 0)
		code = unpack(memo, bytes, &arena, cat);
	if (code < 0) {
		uns_catalog_free(cat);
		uns_capture_give_inputs(capture, before);
	} else {
		*out = cat;
		uns_inputs_put(before);
	}
	__atomic_add_fetch(code < 0 ? &memo->n_opened : &memo->n_remembered, 1, __ATOMIC_RELAXED);
	return code;
}

void memo_save_catalog(const struct memo *memo, const struct memo_subject *of, const struct uns_catalog *cat)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text bytes = UNS_TEXT_INIT;

	if (can_save(memo) && uns_inputs_pack(*uns_capture_inputs(cat->capture), memo->root, &bytes) == 0 &&
	    uns_catalog_pack(cat, memo->root, &bytes, NULL) == 0)
		save(memo, "catalog", key_of(memo, of), &bytes);
}

int memo_load_crcs(const struct memo *memo, uint64_t key, struct uns_arena *arena, struct uns_span *out)
{
	return load(memo, "crc", key, arena, out);
}

void memo_save_crcs(const struct memo *memo, uint64_t key, const struct uns_text *bytes)
{
	save(memo, "crc", key, bytes);
}

int memo_load_masters(const struct memo *memo, uint64_t key, struct uns_arena *arena, struct uns_span *out)
{
	return load(memo, "masters", key, arena, out);
}

void memo_save_masters(const struct memo *memo, uint64_t key, const struct uns_text *bytes)
{
	save(memo, "masters", key, bytes);
}
