/* The companions in a checkpoint's directory: configs, schedulers, random states. */
#ifndef UNS_FILES_BESIDE_H
#define UNS_FILES_BESIDE_H

#include "model/catalog.h"

/* Every regular file of directory `path` (below root; `list` is its listing) that is no companion yet becomes one,
 * named prefix/NAME. Links count when they lead to a regular file. Directories do not. */
int uns_beside_add(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *prefix,
		   const struct uns_listing *list, struct uns_err *err);

/* The same of each directory below that a script saved a model into (diffusers: "unet_ema", by a hook of Accelerate):
 * it has a config.json and a file of weights that from_pretrained looks for. */
int uns_beside_add_models(struct uns_catalog *cat, const struct uns_directory *dir, struct uns_err *err);

/* File `name` of directory `path` becomes a companion of the sharded form, named prefix/name, whether it is there or
 * not. *file: the file in the catalog. */
int uns_beside_add_shard(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *prefix,
			 const char *name, uint32_t *file, struct uns_err *err);

/* Highest rank + 1 among names PREFIX<rank>SUFFIX; 0 if there is no such name. *n (may be NULL): how many there are. */
int64_t uns_beside_ranks(const struct uns_listing *list, const char *prefix, const char *suffix, size_t *n);

/* Highest writer + 1 among "__<rank>_<n>.distcp"; 0 if there is no such name. */
int64_t uns_beside_distcp_ranks(const struct uns_listing *list);

/* N, if the directory is called PREFIX<N>; else UNS_UNKNOWN. */
int64_t uns_beside_named_step(const struct uns_root *root, const char *path, const char *prefix);

/* N of "iter_0000010", Megatron's name (seven digits at least); else UNS_UNKNOWN. */
int64_t uns_beside_iteration(const struct uns_root *root, const char *path);

/* The step of a Trainer's directory: N of "checkpoint-N", else global_step of its trainer_state.json. *step keeps its
 * value if neither has one. */
int uns_beside_step(const struct uns_root *root, const char *path, const struct uns_listing *list, int64_t *step,
		    struct uns_err *err);

#endif
