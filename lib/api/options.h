/* What unshard_open was given, checked and copied. */
#ifndef UNS_API_OPTIONS_H
#define UNS_API_OPTIONS_H

#include "facts/companions.h"
#include "files/adapter_list.h"
#include "formats/format.h"
#include "io/direct.h"
#include "unshard.h"
#include "views/view.h"

/* -o mean=: how much of a mean each of the K checkpoints is. */
struct mean_options {
	enum mean_weighting {
		MEAN_UNIFORM, /* all alike */
		MEAN_EMA, /* a moving mean, which each checkpoint changes by 1 - decay */
		MEAN_WSM, /* as a learning rate that falls by 1 - sqrt weighs the updates between them */
	} weighting;
	double decay; /* of MEAN_EMA */
};

struct session_options {
	struct uns_format_options format;
	struct model_dirs models;
	const char *const *fact; /* -o fact=: "KEY=JSON", checked */
	size_t n_fact;
	const struct uns_view *only; /* -o view= */
	uint64_t only_parameter;
	const char *only_text; /* its parameter as it was given */
	const char *mounted_at; /* absolute; NULL = not mounted */
	const char *hidden;     /* the mountpoint below SOURCE; NULL = elsewhere */
	const char *strip, *cache_dir;
	const char *seals; /* -o seals=; NULL = in the store */
	struct memo_dirs {
		const char *const *v; /* absolute */
		size_t n;
	} memos; /* -o memos= */
	const char *seals_directory; /* that, or the directory of that file */
	uint64_t max_shard_size_bytes, mem_bytes, cache_size_bytes;
	int64_t settle_ns, recheck_ns;
	bool hide_rng, keep_rng, keep_names, crc_exact;
	struct mean_options mean;
	struct uns_adapter_choice adapters; /* -o adapters= */
	enum uns_expert_form experts; /* -o experts= */
	enum uns_way way; /* -o reads= */
	bool finds_way, keeps_pages; /* keeps_pages: through the page cache */
	uint64_t shown; /* a hash of the options that change what a view shows of a checkpoint: inode numbers contain it
			 */
};

/* root: SOURCE. Texts live in the arena. -EINVAL names the option. */
int session_options_take(struct session_options *out, const struct unshard_options *o, const struct uns_root *root,
			 struct uns_arena *arena, struct uns_err *err);
void session_options_fini(struct session_options *options);

/* "weights-bf16" -> the view and its parameter; NULL = there is none of that name. */
const struct uns_view *view_find(const char *name, size_t len, uint64_t *parameter);

#endif
