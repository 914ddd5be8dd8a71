/* SHA256SUMS: the SHA-256 of every file that was written, read back. Files are read in parallel, each from its
 * begin to its end. */
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/text.h"
#include "export/exporting.h"
#include "io/source.h"
#include "out/disk.h"

enum { READ_BYTES = 1 << 20 };

struct sums {
	struct export *e;
	uint8_t (*sum)[UNS_SHA256_BYTES]; /* parallel to the entries */
	_Atomic uint64_t done_bytes;
};

static int sum_file(struct sums *s, const struct export_entry *f, const char *path, uint8_t *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(READ_BYTES);
	uint64_t at, size = f->stat.size_bytes;
	struct uns_sha256 h;
	size_t n;

	if (fd < 0)
		return uns_fail_errno(path, err);
	UNS_TRY_ALLOC(buf, err);
	uns_sha256_init(&h);
	for (at = 0; at < size; at += n) {
		n = (size_t)uns_u64_min(READ_BYTES, size - at);
		UNS_TRY(uns_fd_pread(fd, buf, n, at, path, err));
		uns_sha256_add(&h, buf, n);
		UNS_TRY(export_step(s->e, UNSHARD_READING, &s->done_bytes, n, s->e->made.size_bytes, err));
	}
	uns_sha256_end(&h, out);
	return 0;
}

static int sum_entry(void *ctx, size_t i, struct uns_err *err)
{
	struct sums *s = ctx;
	char path[PATH_MAX];

	if (s->e->entry[i].kind != EXPORT_FILE)
		return 0;
	UNS_TRY(export_path(s->e, s->e->entry[i].path, path, err));
	return sum_file(s, &s->e->entry[i], path, s->sum[i], err);
}

/* As sha256sum(1) writes it: a line whose name holds a backslash or a line's end begins with a backslash. */
static void add_line(struct uns_text *t, const uint8_t sum[UNS_SHA256_BYTES], const char *name)
{
	const char *p;

	if (strpbrk(name, "\\\n\r"))
		uns_text_str(t, "\\");
	uns_text_hex(t, sum, UNS_SHA256_BYTES);
	uns_text_str(t, "  ");
	for (p = name; *p; p++)
		if (*p == '\\')
			uns_text_str(t, "\\\\");
		else if (*p == '\n')
			uns_text_str(t, "\\n");
		else if (*p == '\r')
			uns_text_str(t, "\\r");
		else
			uns_text_add(t, p, 1);
	uns_text_str(t, "\n");
}

static int write_sums(const struct sums *s, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	char path[PATH_MAX];
	size_t i;

	for (i = 0; i < s->e->n; i++)
		if (s->e->entry[i].kind == EXPORT_FILE)
			add_line(&text, s->sum[i], s->e->entry[i].path);
	if (text.failed)
		return uns_oom(err);
	UNS_TRY(export_path(s->e, EXPORT_CHECKSUMS, path, err));
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return uns_fail_errno(path, err);
	UNS_TRY(uns_write(fd, text.p, text.len, UNS_AT_CURSOR, path, err));
	return fsync(fd) < 0 ? uns_fail_errno(path, err) : 0;
}

int export_checksums(struct export *e, struct uns_pool *pool, struct uns_err *err)
{
	struct sums s = { .e = e, .sum = calloc(e->n, sizeof(*s.sum)) };
	int code = s.sum ? uns_pool_each(pool, e->n, sum_entry, &s, err) : uns_oom(err);

	if (code == 0)
		code = write_sums(&s, err);
	free(s.sum);
	return code;
}
