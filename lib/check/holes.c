/* Files that end in a hole. A copier that reserves a file's whole size, and ends before it has written all of it,
 * leaves one; so does a power cut. A file of safetensors has no checksum, so that nothing else distinguishes its zeros
 * from weights. */
#include "check/checking.h"
#include "io/hole.h"

struct file_end {
	uint64_t size, hole_at;
};

static int find_end(void *ctx, int fd, struct uns_err *err)
{
	struct file_end *end = ctx;

	(void)err;
	end->hole_at = uns_fd_hole_at_end(fd, end->size);
	return 0;
}

int check_holes(struct checking *c, struct snapshot *snap)
{
	const struct uns_catalog *cat = snap->cat;
	int code = 0;
	size_t i;

	for (i = 0; i < cat->n_files && code == 0; i++) {
		const uint64_t size = cat->files[i].stat.id.size;
		struct file_end end = { size, size };

		/* A file that cannot be opened is reported by what reads it. */
		if (cat->files[i].missing || uns_backing_lend(snap->backing, (uint32_t)i, find_end, &end, NULL) < 0 ||
		    end.hole_at >= end.size)
			continue;
		code = CHECKING_FOUND(
			c, FILE_ENDS_IN_HOLE, .file = cat->files[i].path,
			.arg = { { "bytes", uns_num(end.size - end.hole_at) }, { "total", uns_num(end.size) } });
	}
	return code;
}
