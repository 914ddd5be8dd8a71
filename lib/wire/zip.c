/* Reads the central directory of a zip archive, and refuses an archive that two readers could understand differently:
 * end records must agree, the directory must end where they begin, names must be unique and records disjoint. */
#include "wire/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/checked.h"
#include "base/cleanup.h"

enum {
	LOCAL_SIGNATURE = 0x04034b50,
	ENTRY_SIGNATURE = 0x02014b50,
	END_SIGNATURE = 0x06054b50,
	END64_SIGNATURE = 0x06064b50,
	LOCATOR_SIGNATURE = 0x07064b50,
	LOCAL_BYTES = 30,
	ENTRY_BYTES = 46,
	END_BYTES = 22,
	END64_BYTES = 56,
	LOCATOR_BYTES = 20,
	ZIP64_EXTRA = 1,
	FLAGS_UNKNOWN = 1 | 1 << 5 | 1 << 6 | 1 << 13, /* encrypted in some way, or patched: torch refuses them too */
	IS_DIRECTORY = 0x10, /* in DOS attributes: torch's reader (miniz) then reads nothing, and reports no error */
	FIRST_TAIL_BYTES = 2048, /* holds the directory (700 bytes) and the end records of a DCP item */
	LAST_TAIL_BYTES = 65535 + END_BYTES + LOCATOR_BYTES + END64_BYTES,
	MAX_DIRECTORY_BYTES = 1 << 28,
	NAME_CHECK_BYTES = 256, /* of a local header's name that are compared */
	SLACK_BYTES = 4096,     /* read along with a small record: its header, extra, descriptor */
};

#define FULL16 UINT64_C(0xffff) /* "see the zip64 record" */
#define FULL32 UINT64_C(0xffffffff)

/* The last bytes of the archive. */
struct tail {
	uint8_t *p;
	uint64_t off;
	size_t len;
};

/* The content of the end records. */
struct ends {
	uint64_t n, dir_bytes, dir_off;
	uint64_t off; /* where the end records begin, and so where the directory ends */
};

static void free_tail(struct tail *t)
{
	free(t->p);
}

static int read_tail(const struct uns_reader *r, size_t want, struct tail *t, struct uns_err *err)
{
	free(t->p);
	t->len = want < r->size ? want : (size_t)r->size;
	t->off = r->size - t->len;
	UNS_TRY_ALLOC(t->p = malloc(t->len ? t->len : 1), err);
	return uns_reader_pread(r, t->p, t->len, t->off, err);
}

/* len bytes at `off`: from the tail if they lie in it, else read into buf. */
static int bytes_at(const struct uns_reader *r, const struct tail *t, uint64_t off, size_t len, uint8_t *buf,
		    struct uns_err *err)
{
	if (off < t->off)
		return uns_reader_pread(r, buf, len, off, err);
	if (!uns_inside(off - t->off, len, t->len))
		return uns_fail(err, -EBADMSG, "zip: bytes %llu+%zu pass the end of the archive",
				(unsigned long long)off, len);
	memcpy(buf, t->p + (off - t->off), len);
	return 0;
}

/* -- end records -- */

/* The end record is the last one whose comment reaches exactly to the end of the file. */
static const uint8_t *find_end(const struct tail *t)
{
	size_t at;

	for (at = t->len < END_BYTES ? 0 : t->len - END_BYTES + 1; at-- > 0;)
		if (uns_le(t->p + at, 4) == END_SIGNATURE && at + END_BYTES + uns_le(t->p + at + 20, 2) == t->len)
			return t->p + at;
	return NULL;
}

/* A field of the end record must equal the wide field of the zip64 record, or be all ones ("see there"). */
static bool agrees(uint64_t narrow, uint64_t full, uint64_t wide)
{
	return narrow == full || narrow == wide;
}

static int parse_end64(const uint8_t *p, const uint8_t *end, uint64_t at, struct ends *out, struct uns_err *err)
{
	if (uns_le(p, 4) != END64_SIGNATURE || uns_le(p + 4, 8) < END64_BYTES - 12)
		return uns_fail(err, -EBADMSG, "zip: no zip64 end record at byte %llu", (unsigned long long)at);
	*out = (struct ends){ uns_le(p + 32, 8), uns_le(p + 40, 8), uns_le(p + 48, 8), at };
	if (uns_le(p + 16, 4) != 0 || uns_le(p + 20, 4) != 0 || uns_le(p + 24, 8) != out->n)
		return uns_fail(err, -ENOTSUP, "zip: the archive is split over several disks");
	if (!agrees(uns_le(end + 4, 2), FULL16, 0) || !agrees(uns_le(end + 6, 2), FULL16, 0) ||
	    !agrees(uns_le(end + 8, 2), FULL16, out->n) || !agrees(uns_le(end + 10, 2), FULL16, out->n) ||
	    !agrees(uns_le(end + 12, 4), FULL32, out->dir_bytes) || !agrees(uns_le(end + 16, 4), FULL32, out->dir_off))
		return uns_fail(err, -EBADMSG, "zip: the two end records contradict each other");
	return 0;
}

static int parse_end(const uint8_t *end, uint64_t at, struct ends *out, struct uns_err *err)
{
	*out = (struct ends){ uns_le(end + 10, 2), uns_le(end + 12, 4), uns_le(end + 16, 4), at };
	if (uns_le(end + 4, 2) != 0 || uns_le(end + 6, 2) != 0 || uns_le(end + 8, 2) != out->n)
		return uns_fail(err, -ENOTSUP, "zip: the archive is split over several disks");
	if (out->n == FULL16 || out->dir_bytes == FULL32 || out->dir_off == FULL32)
		return uns_fail(err, -EBADMSG, "zip: the zip64 end record is missing");
	return 0;
}

static int parse_ends(const struct uns_reader *r, const struct tail *t, const uint8_t *end, struct ends *out,
		      struct uns_err *err)
{
	uint64_t end_off = t->off + (uint64_t)(end - t->p), at;
	uint8_t p[END64_BYTES];

	if (end_off < LOCATOR_BYTES)
		return parse_end(end, end_off, out, err);
	UNS_TRY(bytes_at(r, t, end_off - LOCATOR_BYTES, LOCATOR_BYTES, p, err));
	if (uns_le(p, 4) != LOCATOR_SIGNATURE)
		return parse_end(end, end_off, out, err);
	if (uns_le(p + 4, 4) != 0 || uns_le(p + 16, 4) != 1)
		return uns_fail(err, -ENOTSUP, "zip: the archive is split over several disks");
	at = uns_le(p + 8, 8);
	if (!uns_inside(at, END64_BYTES, end_off - LOCATOR_BYTES))
		return uns_fail(err, -EBADMSG, "zip: the zip64 end record is recorded at byte %llu, past the end",
				(unsigned long long)at);
	UNS_TRY(bytes_at(r, t, at, END64_BYTES, p, err));
	return parse_end64(p, end, at, out, err);
}

static int check_ends(const struct ends *e, struct uns_err *err)
{
	if (e->dir_bytes > e->off || e->dir_off != e->off - e->dir_bytes)
		return uns_fail(err, -EBADMSG,
				"zip: the directory is recorded with %llu bytes at %llu, but must end at byte %llu",
				(unsigned long long)e->dir_bytes, (unsigned long long)e->dir_off,
				(unsigned long long)e->off);
	if (e->n > e->dir_bytes / ENTRY_BYTES)
		return uns_fail(err, -EBADMSG, "zip: %llu records do not fit into %llu bytes", (unsigned long long)e->n,
				(unsigned long long)e->dir_bytes);
	if (e->dir_bytes > MAX_DIRECTORY_BYTES)
		return uns_fail(err, -ENOTSUP, "zip: a directory of %llu bytes; expected at most %d",
				(unsigned long long)e->dir_bytes, MAX_DIRECTORY_BYTES);
	return 0;
}

/* -- directory -- */

/* If `value` is all ones, the number is in the zip64 extra field. */
static bool widen(struct uns_span *zip64, uint64_t *value)
{
	return *value != FULL32 || uns_take_u64le(zip64, value);
}

static bool find_zip64(struct uns_span extra, struct uns_span *out)
{
	const uint8_t *p;
	uint16_t id, len;

	*out = uns_span_of(extra.p, 0);
	while (uns_take_u16le(&extra, &id)) {
		if (!uns_take_u16le(&extra, &len) || !uns_span_take(&extra, len, &p))
			return false;
		if (id == ZIP64_EXTRA) {
			*out = uns_span_of(p, len);
			return true;
		}
	}
	return true;
}

static int parse_entry(struct uns_span *dir, uint64_t dir_off, struct uns_arena *arena, struct uns_zip_record *rec,
		       struct uns_err *err)
{
	const uint8_t *p, *name, *extra;
	uint64_t plain_bytes, need;
	struct uns_span zip64;

	if (!uns_span_take(dir, ENTRY_BYTES, &p) || uns_le(p, 4) != ENTRY_SIGNATURE ||
	    !uns_span_take(dir, uns_le(p + 28, 2), &name) || !uns_span_take(dir, uns_le(p + 30, 2), &extra) ||
	    !uns_span_skip(dir, uns_le(p + 32, 2)))
		return uns_fail(err, -EBADMSG, "zip: the directory is damaged");
	if (name == extra || memchr(name, '\0', (size_t)(extra - name)))
		return uns_fail(err, -EBADMSG, "zip: a record without a valid name");
	UNS_TRY_ALLOC(rec->name = uns_arena_strn(arena, (const char *)name, (size_t)(extra - name)), err);
	rec->method = (uint16_t)uns_le(p + 10, 2);
	rec->crc32 = (uint32_t)uns_le(p + 16, 4);
	rec->size_bytes = uns_le(p + 20, 4);
	plain_bytes = uns_le(p + 24, 4);
	rec->header_bytes = uns_le(p + 42, 4);
	if (!find_zip64(uns_span_of(extra, uns_le(p + 30, 2)), &zip64) || !widen(&zip64, &plain_bytes) ||
	    !widen(&zip64, &rec->size_bytes) || !widen(&zip64, &rec->header_bytes))
		return uns_fail(err, -EBADMSG, "zip: record %s lacks its zip64 sizes", rec->name);
	if (uns_le(p + 8, 2) & FLAGS_UNKNOWN)
		return uns_fail(err, -ENOTSUP, "zip: record %s is encrypted", rec->name);
	if (uns_le(p + 34, 2) != 0)
		return uns_fail(err, -ENOTSUP, "zip: record %s is recorded to be on another disk", rec->name);
	if ((uns_le(p + 38, 4) & IS_DIRECTORY) && plain_bytes)
		return uns_fail(err, -EBADMSG, "zip: record %s is marked as a directory and has %llu bytes", rec->name,
				(unsigned long long)plain_bytes);
	if (rec->method == 0 && plain_bytes != rec->size_bytes)
		return uns_fail(err, -EBADMSG, "zip: stored record %s has sizes %llu and %llu", rec->name,
				(unsigned long long)rec->size_bytes, (unsigned long long)plain_bytes);
	if (!uns_u64_add(LOCAL_BYTES + strlen(rec->name), rec->size_bytes, &need) ||
	    !uns_inside(rec->header_bytes, need, dir_off))
		return uns_fail(err, -EBADMSG, "zip: record %s, %llu bytes at %llu, runs into the directory at %llu",
				rec->name, (unsigned long long)rec->size_bytes, (unsigned long long)rec->header_bytes,
				(unsigned long long)dir_off);
	return 0;
}

static int parse_directory(const struct uns_reader *r, const struct tail *t, const struct ends *e,
			   struct uns_arena *arena, struct uns_zip *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *own = NULL;
	const uint8_t *bytes = e->dir_off >= t->off ? t->p + (e->dir_off - t->off) : NULL;
	struct uns_span dir;
	size_t i;

	if (!bytes) { /* not all of it is in the tail */
		UNS_TRY_ALLOC(own = malloc((size_t)e->dir_bytes), err);
		UNS_TRY(uns_reader_pread(r, own, (size_t)e->dir_bytes, e->dir_off, err));
		bytes = own;
	}
	dir = uns_span_of(bytes, (size_t)e->dir_bytes);
	out->n = (size_t)e->n;
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(arena, struct uns_zip_record, out->n), err);
	for (i = 0; i < out->n; i++)
		UNS_TRY(parse_entry(&dir, e->dir_off, arena, &out->v[i], err));
	if (uns_span_left(&dir))
		return uns_fail(err, -EBADMSG, "zip: %zu bytes of the directory belong to no record",
				uns_span_left(&dir));
	return 0;
}

/* -- what must hold between records -- */

static int by_header(const void *a, const void *b)
{
	const struct uns_zip_record *x = *(struct uns_zip_record *const *)a;
	const struct uns_zip_record *y = *(struct uns_zip_record *const *)b;

	return (x->header_bytes > y->header_bytes) - (x->header_bytes < y->header_bytes);
}

static int by_name(const void *a, const void *b)
{
	const struct uns_zip_record *x = *(struct uns_zip_record *const *)a;
	const struct uns_zip_record *y = *(struct uns_zip_record *const *)b;

	return strcmp(x->name, y->name);
}

/* Gives every record its limit (sums do not overflow: parse_entry), sorts the records by name, and finds the prefix of
 * all names, which the first and the last have in common. */
static int relate_records(struct uns_zip *zip, uint64_t dir_off, struct uns_arena *arena, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_zip_record **order = calloc(zip->n + 1, sizeof(*order));
	struct uns_zip_record *rec;
	const char *slash;
	size_t i, len;

	zip->by_name = UNS_NEW_N(arena, const struct uns_zip_record *, zip->n);
	UNS_TRY_ALLOC(order && zip->by_name, err);
	for (i = 0; i < zip->n; i++)
		order[i] = &zip->v[i];
	qsort(order, zip->n, sizeof(*order), by_header);
	for (i = 0; i < zip->n; i++) {
		rec = order[i];
		rec->limit_bytes = i + 1 < zip->n ? order[i + 1]->header_bytes : dir_off;
		if (rec->header_bytes + LOCAL_BYTES + strlen(rec->name) + rec->size_bytes > rec->limit_bytes)
			return uns_fail(err, -EBADMSG, "zip: records %s and %s overlap", rec->name,
					order[i + 1 < zip->n ? i + 1 : i]->name);
	}
	qsort(order, zip->n, sizeof(*order), by_name);
	for (i = 0; i < zip->n; i++) {
		zip->by_name[i] = order[i];
		if (i && strcmp(order[i - 1]->name, order[i]->name) == 0)
			return uns_fail(err, -EBADMSG, "zip: two records are called %s", order[i]->name);
	}
	slash = zip->n ? strchr(order[0]->name, '/') : NULL;
	len = slash ? (size_t)(slash - order[0]->name) + 1 : 0;
	if (len && strncmp(order[0]->name, order[zip->n - 1]->name, len) != 0)
		len = 0;
	zip->prefix = uns_arena_strn(arena, len ? order[0]->name : "", len);
	return zip->prefix ? 0 : uns_oom(err);
}

int uns_zip_open(const struct uns_reader *r, struct uns_arena *arena, struct uns_zip *out, struct uns_err *err)
{
	UNS_CLEANUP(free_tail) struct tail t = { 0 };
	const uint8_t *end;
	struct ends e;

	*out = (struct uns_zip){ 0 };
	UNS_TRY(read_tail(r, FIRST_TAIL_BYTES, &t, err));
	end = find_end(&t);
	if (!end && t.off > 0) {
		UNS_TRY(read_tail(r, LAST_TAIL_BYTES, &t, err));
		end = find_end(&t);
	}
	if (!end)
		return uns_fail(err, -EBADMSG,
				"truncated, or not a zip archive: no end record was found in its %llu bytes",
				(unsigned long long)r->size);
	UNS_TRY(parse_ends(r, &t, end, &e, err));
	UNS_TRY(check_ends(&e, err));
	UNS_TRY(parse_directory(r, &t, &e, arena, out, err));
	return relate_records(out, e.dir_off, arena, err);
}

/* -- records -- */

struct wanted {
	const char *prefix, *name;
	size_t prefix_len;
};

static int compare_wanted(const void *key, const void *element)
{
	const struct uns_zip_record *rec = *(struct uns_zip_record *const *)element;
	const struct wanted *want = key;
	int c = strncmp(want->prefix, rec->name, want->prefix_len);

	return c ? c : strcmp(want->name, rec->name + want->prefix_len);
}

const struct uns_zip_record *uns_zip_find(const struct uns_zip *zip, const char *name)
{
	struct wanted want = { zip->prefix, name, strlen(zip->prefix) };
	const struct uns_zip_record **found;

	if (!zip->n)
		return NULL;
	found = bsearch(&want, zip->by_name, zip->n, sizeof(*zip->by_name), compare_wanted);
	return found ? *found : NULL;
}

/* header: LOCAL_BYTES and the first n_name bytes of the name. */
static int parse_local(const struct uns_zip_record *record, const uint8_t *header, size_t n_name, uint64_t *start_bytes,
		       struct uns_err *err)
{
	uint64_t name_len = uns_le(header + 26, 2), extra_len = uns_le(header + 28, 2), start;

	if (record->method != 0)
		return uns_fail(err, -ENOTSUP, "zip: record %s is compressed (method %u); torch.save stores",
				record->name, record->method);
	if (uns_le(header, 4) != LOCAL_SIGNATURE || name_len != strlen(record->name) ||
	    memcmp(header + LOCAL_BYTES, record->name, n_name) != 0)
		return uns_fail(err, -EBADMSG, "zip: record %s has no local header at byte %llu", record->name,
				(unsigned long long)record->header_bytes);
	start = record->header_bytes + LOCAL_BYTES + name_len + extra_len;
	if (!uns_inside(start, record->size_bytes, record->limit_bytes))
		return uns_fail(err, -EBADMSG, "zip: record %s, %llu bytes at %llu, runs into what starts at %llu",
				record->name, (unsigned long long)record->size_bytes, (unsigned long long)start,
				(unsigned long long)record->limit_bytes);
	*start_bytes = start;
	return 0;
}

static size_t checked_name_bytes(const struct uns_zip_record *record)
{
	size_t n = strlen(record->name);

	return n < NAME_CHECK_BYTES ? n : NAME_CHECK_BYTES;
}

int uns_zip_data(const struct uns_reader *r, const struct uns_zip_record *record, uint64_t *start_bytes,
		 struct uns_err *err)
{
	uint8_t header[LOCAL_BYTES + NAME_CHECK_BYTES];
	size_t n = checked_name_bytes(record);

	UNS_TRY(uns_reader_pread(r, header, LOCAL_BYTES + n, record->header_bytes, err));
	return parse_local(record, header, n, start_bytes, err);
}

bool uns_zip_first(struct uns_span *head, const char *name)
{
	const uint8_t *header, *found;
	size_t n_found, n = strlen(name);

	if (!uns_span_take(head, LOCAL_BYTES, &header) || uns_le(header, 4) != LOCAL_SIGNATURE ||
	    uns_le(header + 8, 2) != 0)
		return false;
	n_found = (size_t)uns_le(header + 26, 2);
	return uns_span_take(head, n_found, &found) && uns_span_skip(head, (size_t)uns_le(header + 28, 2)) &&
	       n_found > n && found[n_found - n - 1] == '/' && memcmp(found + n_found - n, name, n) == 0;
}

int uns_zip_read(const struct uns_reader *r, const struct uns_zip_record *record, uint64_t max_bytes,
		 struct uns_arena *arena, struct uns_span *out, struct uns_err *err)
{
	uint64_t whole = record->limit_bytes - record->header_bytes, start;
	uint32_t crc;
	uint8_t *p;

	if (record->size_bytes > max_bytes)
		return uns_fail(err, -ENOTSUP, "zip: record %s has %llu bytes; expected at most %llu", record->name,
				(unsigned long long)record->size_bytes, (unsigned long long)max_bytes);
	if (whole > record->size_bytes + SLACK_BYTES) { /* a large gap before the next record: do not read it */
		UNS_TRY(uns_zip_data(r, record, &start, err));
		whole = record->size_bytes;
	} else {
		start = record->header_bytes;
	}
	UNS_TRY_ALLOC(p = uns_arena_alloc(arena, (size_t)whole, 1), err);
	UNS_TRY(uns_reader_pread(r, p, (size_t)whole, start, err));
	if (whole != record->size_bytes) {
		UNS_TRY(parse_local(record, p, checked_name_bytes(record), &start, err));
		p += start - record->header_bytes;
	}
	*out = uns_span_of(p, (size_t)record->size_bytes);
	crc = (uint32_t)crc32_z(0, p, (size_t)record->size_bytes);
	if (record->crc32 && record->crc32 != crc)
		return uns_fail(err, -EBADMSG, "zip: record %s is damaged: CRC %08x, expected %08x", record->name, crc,
				record->crc32);
	return 0;
}
