/* One file of a DeepSpeed checkpoint while it is being read: opened, proven to be the file that the
 * catalog has seen, its pickle parsed. */
#ifndef UNS_ZERO_FILE_H
#define UNS_ZERO_FILE_H

#include "model/catalog.h"
#include "wire/torchfile.h"

struct uns_zero_file {
	uint32_t index; /* in the catalog */
	int fd;
	struct uns_open_file open;
	struct uns_reader reader;
	struct uns_torchfile torch;
};

#define UNS_ZERO_FILE_INIT ((struct uns_zero_file){ .fd = -1 })

/* *out must not move until it is closed. Values live in the arena, longer than the file. Sentences
 * begin with the file's path. -ENODATA when it is missing; -EBADMSG also when its records are called
 * after another rank's file. */
int uns_zero_file_open(const struct uns_catalog *cat, uint32_t index, struct uns_arena *arena,
		       struct uns_zero_file *out, struct uns_err *err);
void uns_zero_file_close(struct uns_zero_file *file);

/* The whole of tensor `v` of the file as one piece, and its type and shape. */
int uns_zero_file_tensor(const struct uns_zero_file *file, const struct uns_value *v, struct uns_arena *arena,
			 struct uns_tensor *out, struct uns_piece *piece, struct uns_err *err);

#endif
