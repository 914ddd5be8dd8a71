/* A DeepSpeed tag directory into a catalog: model files, the optimizer's shards of every ZeRO stage,
 * pipeline layers. */
#ifndef UNS_ZERO_READ_OPEN_H
#define UNS_ZERO_READ_OPEN_H

#include "zero/read/dir.h"

struct uns_zero_input {
	const struct uns_root *root;
	const struct uns_zero_dir *dir;
	/* The directory, with its listing, that may have gathered weights; NULL = none. */
	const char *beside_path;
	const struct uns_listing *beside;
	/* Of a universal checkpoint: its directory zero/, below root and below the checkpoint. */
	const char *universal_path, *universal_name;
};

struct uns_zero_found {
	int stage;            /* 0 .. 3; -1 = not known */
	int64_t global_steps; /* UNS_UNKNOWN when not recorded, all of these */
	int64_t dp_world_size, mp_world_size;
};

/* What is wrong becomes problems; fails only when memory is out or a file changed meanwhile. */
int uns_zero_add(struct uns_catalog *cat, const struct uns_zero_input *in, struct uns_zero_found *out,
		 struct uns_err *err);

#endif
