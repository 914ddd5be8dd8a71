/* torch_dist: a Megatron-Core checkpoint whose optimizer's states have the names of parameters, so that megatron-core
 * loads it at another tensor, pipeline and data parallelism. torch_dist-ep: the same for ranks that share experts. */
#include <string.h>

#include "megatron/torch_dist.h"
#include "views/view.h"

static const char EP[] = "ep";

static bool parse(const char *parameter, uint64_t *out)
{
	*out = strcmp(parameter, EP) == 0 ? UNS_MG_EXPERTS_APART : UNS_MG_EXPERTS_TOGETHER;
	return !*parameter || *out == UNS_MG_EXPERTS_APART;
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	return uns_megatron_torch_dist_check(cat, (enum uns_megatron_experts)parameter, why);
}

static int notes(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	return uns_megatron_torch_dist_notes(in->catalog, out, err);
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	UNS_TRY(uns_megatron_torch_dist_add(in->catalog, (enum uns_megatron_experts)parameter, out, err));
	return notes(in, out, err);
}

static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	(void)in, (void)parameter, (void)is_file;
	return "dist_checkpointing.load(sharded_state_dict, \"%s\")  # Megatron-LM: --load with the directory above it";
}

static const char *const listed[] = { "", NULL };
static const char *const not_listed[] = { EP, NULL };

extern const struct uns_view uns_view_torch_dist;
const struct uns_view uns_view_torch_dist = {
	.name = "torch_dist",
	.listed = listed,
	.not_listed = not_listed,
	.parse = parse,
	.needs_finished = true,
	.names_optimizer = uns_view_always,
	.for_megatron = true,
	.supports = supports,
	.tree = tree,
	.notes = notes,
	.usage = usage,
};
