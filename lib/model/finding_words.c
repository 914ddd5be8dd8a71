/* Every kind of finding with its words: the only place where anything is said about damage. Programs know a
 * finding by its name, which stays as it is; the words may change at any time, as only people read them.
 * How a sentence is written is in finding.h. One entry becomes one entry of the manual. */
#include "model/finding.h"

/* What the source is to whoever reads it. */
#define INCOMPLETE -ENODATA
#define DAMAGED    -EBADMSG
#define UNKNOWN    -ENOTSUP /* sound, for all that is known, and in a form that is not */
#define ELSEWHERE  -ENOENT  /* the checkpoint is whole; the file that should name it names another */

#define OR_BEFORE    ", or go on from the checkpoint before it"
#define GO_BEFORE    "go on from the checkpoint before it"
#define COPY_BACK    "copy it back from the training machine"
#define COPY_AGAIN   "copy the file again from the training machine"
#define OF_TWO_SAVES ": the files are of two saves; copy this save's files again from the training machine" OR_BEFORE

/* What leaves a directory without weights in it. */
#define SAVE_ONLY_MODEL   "FSDP SHARDED_STATE_DICT with save_only_model does this (transformers before 4.50): set save_only_model to false, or fsdp_state_dict_type to FULL_STATE_DICT; if the shards are on other nodes' disks, copy them here"
#define SAVE_WEIGHTS_ONLY "FSDPStrategy(state_dict_type='sharded') with ModelCheckpoint(save_weights_only=True) does this before Lightning 2.2.2: upgrade Lightning, or set save_weights_only to false, or state_dict_type to 'full'"
#define NOT_BEGUN         "the save did not begin, or the shards are on other nodes' disks: copy them here, or delete the directory"

static const struct uns_finding_words words[UNS_N_FINDINGS] = {
	/* -- a file, or a part of one, that cannot be read: what its parser says -- */

	[UNS_FOUND_PART_UNREADABLE] = {
		.name = "part_unreadable", .code = DAMAGED,
		.sentence = "{cause}",
	},
	[UNS_FOUND_FILE_UNREADABLE] = {
		.name = "file_unreadable", .code = DAMAGED,
		.sentence = "{file}: {cause}",
	},
	[UNS_FOUND_TENSOR_UNREADABLE] = {
		.name = "tensor_unreadable", .code = DAMAGED,
		.sentence = "{file}: {tensor}: {cause}",
	},
	[UNS_FOUND_ITEM_UNREADABLE] = {
		.name = "item_unreadable", .code = DAMAGED,
		.sentence = "{tensor}: {cause}",
	},
	[UNS_FOUND_ITEM_FILE_MISSING] = {
		.name = "item_file_missing", .code = INCOMPLETE,
		.sentence = "[{tensor}: ]{file} is missing",
		.advice = COPY_BACK,
	},
	[UNS_FOUND_ITEM_CUT] = {
		.name = "item_cut", .code = DAMAGED,
		.sentence = "[{tensor}: ]{file} is cut short: expected at least {expected} bytes, found {found}",
		.advice = COPY_AGAIN,
	},
	[UNS_FOUND_ITEM_TOO_LARGE] = {
		.name = "item_too_large", .code = UNKNOWN,
		.sentence = "[{tensor}: ]{file}: an object of {found} bytes; at most {expected} are read",
	},
	[UNS_FOUND_FILE_MISSING] = {
		.name = "file_missing", .code = INCOMPLETE,
		.sentence = "{file} is missing",
	},
	[UNS_FOUND_WEIGHTS_FILE_MISSING] = {
		.name = "weights_file_missing", .code = INCOMPLETE,
		.sentence = "{file} is missing",
		.advice = ": " COPY_BACK,
	},

	/* -- shards that do not hold every element of a tensor exactly once -- */

	[UNS_FOUND_SHARD_MISSING] = {
		.name = "shard_missing", .code = INCOMPLETE,
		.sentence = "{file} is missing: [rank {rank}'s|a] part of {tensor} ({shape}) is there",
		.advice = COPY_BACK,
	},
	[UNS_FOUND_SHARD_IS_NO_FILE] = {
		.name = "shard_is_no_file", .code = DAMAGED,
		.sentence = "{file} is not a regular file (a link that leads out of the source is not followed): [rank {rank}'s|a] part of {tensor} ({shape}) is there",
	},
	[UNS_FOUND_SHARD_CUT] = {
		.name = "shard_cut", .code = DAMAGED,
		.sentence = "{file} is cut short: expected at least {expected} bytes, found {found}; [rank {rank}'s|a] part of {tensor} ({shape}) is not all there",
		.advice = COPY_AGAIN,
	},
	[UNS_FOUND_COPIES_DIFFER_IN_LENGTH] = {
		.name = "copies_differ_in_length", .code = DAMAGED,
		.sentence = "{tensor}: two copies of one part have different lengths ({expected} bytes in {other_file}, {found} in {file})",
	},
	[UNS_FOUND_TENSOR_HAS_A_HOLE] = {
		.name = "tensor_has_a_hole", .code = DAMAGED,
		.sentence = "{tensor}: [{unit}s {first} to {last} of {total} are|{unit} {first} of {total} is] in no shard[ (have {n_ranks|rank|ranks} {ranks}[; file {file.name} is missing[, and {more} more]])|[ (file {file.name} is missing[, and {more} more])]]",
	},
	[UNS_FOUND_TENSOR_HAS_A_HOLE_BEHIND] = {
		.name = "tensor_has_a_hole_behind", .code = DAMAGED,
		.sentence = "{tensor} ({shape}): a part behind element {first} of {total} is in no shard",
	},
	[UNS_FOUND_SHARDS_OVERLAP] = {
		.name = "shards_overlap", .code = DAMAGED,
		.sentence = "{tensor}: two shards hold the same elements (from {unit} {first} on): one of {file}, one of {other_file}",
	},
	[UNS_FOUND_SHARDS_INTERLEAVE] = {
		.name = "shards_interleave", .code = UNKNOWN,
		.sentence = "{tensor}: {n} shards that interleave too much to be checked",
	},
	[UNS_FOUND_SHARDS_OF_TWO_KINDS] = {
		.name = "shards_of_two_kinds", .code = UNKNOWN,
		.sentence = "{tensor}: boxes and flat ranges of one tensor are mixed",
	},
	[UNS_FOUND_TENSORS_NOT_COVERED] = {
		.name = "tensors_not_covered", .code = DAMAGED,
		.sentence = "{cause}[ (and {more} more tensors are like it)]",
		.advice = "copy the files again from the training machine" OR_BEFORE,
	},
	[UNS_FOUND_NO_WEIGHTS] = {
		.name = "no_weights", .code = UNKNOWN,
		.sentence = "{checkpoint} holds no model weights",
	},

	/* -- torch distributed checkpoints -- */

	[UNS_FOUND_METADATA_MISSING] = {
		.name = "metadata_missing", .code = INCOMPLETE,
		.sentence = "{file} is missing[ ({torn} is there: the save was interrupted)]: the save did not finish, or the file was not copied; without it the .distcp files cannot be read",
	},
	[UNS_FOUND_RANK_METADATA_MISSING] = {
		.name = "rank_metadata_missing", .code = INCOMPLETE,
		.sentence = "{file} is missing: what rank {rank} saved is not known",
		.advice = COPY_BACK,
	},
	[UNS_FOUND_TRANSFORM_UNKNOWN] = {
		.name = "transform_unknown", .code = UNKNOWN,
		.sentence = "{file}: items were saved through \"{found}\"{n|| and more}, which cannot be undone here; only {expected} is known",
	},
	[UNS_FOUND_ITEM_NOT_SAVED] = {
		.name = "item_not_saved", .code = DAMAGED,
		.sentence = "{file}: {tensor} is listed but was not saved",
	},
	[UNS_FOUND_HYPER_IN_PARTS] = {
		.name = "hyper_in_parts", .code = UNKNOWN,
		.sentence = "{file}: {tensor}: a hyper-parameter that was saved in several parts",
	},
	[UNS_FOUND_HYPER_NOT_ONE_NUMBER] = {
		.name = "hyper_not_one_number", .code = UNKNOWN,
		.sentence = "{file}: {tensor}: a hyper-parameter that is not one number",
	},
	[UNS_FOUND_WEIGHT_NOT_PLANNED] = {
		.name = "weight_not_planned", .code = DAMAGED,
		.sentence = "{file}: {tensor} is spelled like a weight, but planner_data does not say what it is",
	},
	[UNS_FOUND_OPTIMIZER_IS_NUMBERED] = {
		.name = "optimizer_is_numbered", .code = UNKNOWN,
		.sentence = "{file}: the optimizer's state is keyed by parameter numbers, not names; which number is which parameter is not recorded",
	},
	[UNS_FOUND_NO_TENSOR_BELOW_KEY] = {
		.name = "no_tensor_below_key", .code = INCOMPLETE,
		.sentence = "{file}: no tensor is below the key \"{expected}\"; the first one there is called {found}",
	},
	[UNS_FOUND_GROUP_MISSING] = {
		.name = "group_missing", .code = DAMAGED,
		.sentence = "{file}: param group {group} of {optimizer} is not there",
	},
	[UNS_FOUND_GROUP_UNLISTED] = {
		.name = "group_unlisted", .code = DAMAGED,
		.sentence = "{file}: param group {group} of {optimizer} does not say which parameters are in it",
	},
	[UNS_FOUND_GROUP_IS_NUMBERED] = {
		.name = "group_is_numbered", .code = UNKNOWN,
		.sentence = "{file}: param group {group} of {optimizer} lists its parameters by number, not by name; which number is which parameter is not recorded",
	},
	[UNS_FOUND_HYPERS_TOO_DIVERSE] = {
		.name = "hypers_too_diverse", .code = UNKNOWN,
		.sentence = "{file}: parameters have more than {expected} different sets of hyper-parameters",
	},
	[UNS_FOUND_HYPERS_PER_PARAMETER] = {
		.name = "hypers_per_parameter", .severity = UNS_NOTE,
		.sentence = "{file}: hyper-parameters are stored with each parameter; equal ones were taken for one param group ({n} groups)",
	},
	[UNS_FOUND_MEGATRON_OPTIMIZER] = {
		.name = "megatron_optimizer", .code = UNKNOWN,
		.sentence = "{checkpoint}: Megatron-Core keeps its optimizer's param groups in common.pt, in a form of its own: the optimizer is served as it is, in the view dcp",
	},

	/* -- DeepSpeed -- */

	[UNS_FOUND_ZERO_MODEL_FILE_MISSING] = {
		.name = "zero_model_file_missing", .code = INCOMPLETE,
		.sentence = "{checkpoint}: there is no model file ({expected}, or one of each rank): only it says which parameters the optimizer's shards hold",
	},
	[UNS_FOUND_ZERO_OPTIMIZER_MISSING] = {
		.name = "zero_optimizer_missing", .code = INCOMPLETE,
		.sentence = "{checkpoint}: there are no optimizer shards ({expected}) of the parameters that {file} lists: the save did not finish, or they were not copied",
	},
	[UNS_FOUND_ZERO_FROZEN_SLICES_MISSING] = {
		.name = "zero_frozen_slices_missing", .code = INCOMPLETE,
		.sentence = "{file} (data-parallel rank {rank}) is missing: expected a model file of each of {expected} ranks, which hold slices of the frozen parameters",
		.advice = COPY_BACK,
	},
	[UNS_FOUND_ZERO_MODEL_FILES_MISSING] = {
		.name = "zero_model_files_missing", .severity = UNS_NOTE,
		.sentence = "{file} (data-parallel rank {rank}) is missing: expected a model file of each of {expected} ranks; nothing that is needed is in it",
	},
	[UNS_FOUND_ZERO_WEIGHTS_ROUNDED] = {
		.name = "zero_weights_rounded", .severity = UNS_NOTE,
		.sentence = "ZeRO stage 3 saves no weights: {n} of them are the optimizer's fp32 copies, given out in the model's type",
	},
	[UNS_FOUND_ZERO_TENSOR_PARALLEL] = {
		.name = "zero_tensor_parallel", .code = UNKNOWN,
		.sentence = "{checkpoint} holds tensor-parallel slices of {n} model-parallel ranks, and does not record how each parameter was cut: this is not supported",
	},
	[UNS_FOUND_ZERO_LAYER_MISSING] = {
		.name = "zero_layer_missing", .code = INCOMPLETE,
		.sentence = "{checkpoint}: the optimizer holds {tensor}, but no layer_*-model_states.pt does: a layer's file is missing",
	},
	[UNS_FOUND_ZERO_EXPERTS] = {
		.name = "zero_experts", .code = UNKNOWN,
		.sentence = "{file}: experts in files of their own ({n} of them) are not supported",
	},
	[UNS_FOUND_ZERO_HYPERS_NOT_SAVED] = {
		.name = "zero_hypers_not_saved", .severity = UNS_NOTE,
		.sentence = "{file}: saved with elastic_checkpoint, which leaves out the param groups' hyper-parameters (learning rate, weight decay): from the view universal training goes on with those of its own config, and the other views cannot hold the optimizer",
	},
	[UNS_FOUND_ZERO_SUB_GROUPS_UNASSIGNED] = {
		.name = "zero_sub_groups_unassigned", .code = UNKNOWN,
		.sentence = "{file}: {expected} param groups in {found} sub-groups, and nothing records which sub-group belongs to which group",
	},
	[UNS_FOUND_ZERO_WEIGHT_MISSING] = {
		.name = "zero_weight_missing", .code = INCOMPLETE,
		.sentence = "{file}: {tensor} is in neither the model's state dict, nor the optimizer, nor the frozen parameters: a file is missing or damaged",
	},
	[UNS_FOUND_ZERO_GATHERED_UNREADABLE] = {
		.name = "zero_gathered_unreadable", .severity = UNS_NOTE,
		.sentence = "{file} is not used, the weights are taken from the optimizer's fp32 copies: {cause}",
	},
	[UNS_FOUND_ZERO_GATHERED_INCOMPLETE] = {
		.name = "zero_gathered_incomplete", .severity = UNS_NOTE,
		.sentence = "{file} is not used, it does not hold {tensor} in its full shape: the weights are taken from the optimizer's fp32 copies",
	},
	[UNS_FOUND_ZERO_STATE_MISSING] = {
		.name = "zero_state_missing", .code = INCOMPLETE,
		.sentence = "{file} is missing; other parameters have theirs",
	},
	[UNS_FOUND_ZERO_STATE_SHAPE] = {
		.name = "zero_state_shape", .code = DAMAGED,
		.sentence = "{file}: the tensor has shape {found}; expected {expected}",
	},
	[UNS_FOUND_ZERO_PARAMETER_MISSING] = {
		.name = "zero_parameter_missing", .code = INCOMPLETE,
		.sentence = "{file} is missing, which {other_file} lists",
	},
	[UNS_FOUND_ZERO_FROZEN_SLICE_ABSENT] = {
		.name = "zero_frozen_slice_absent", .code = DAMAGED,
		.sentence = "{file}: frozen_param_fragments has no {tensor}",
	},
	[UNS_FOUND_ZERO_FROZEN_SLICE_STRIDED] = {
		.name = "zero_frozen_slice_strided", .code = UNKNOWN,
		.sentence = "{file}: the slice of {tensor} is not contiguous",
	},
	[UNS_FOUND_ZERO_FROZEN_SLICE_SIZE] = {
		.name = "zero_frozen_slice_size", .code = DAMAGED,
		.sentence = "{file}: rank {rank}'s slice of the frozen {tensor} has {found} elements; expected {expected} (its shape cut for {n} ranks)",
	},
	[UNS_FOUND_ZERO_FROZEN_TYPES_DIFFER] = {
		.name = "zero_frozen_types_differ", .code = DAMAGED,
		.sentence = "{checkpoint}: ranks hold the frozen {tensor} in different types, or not at all",
	},
	[UNS_FOUND_ZERO_GROUP_TOO_LARGE] = {
		.name = "zero_group_too_large", .code = DAMAGED,
		.sentence = "{file}: the {what} of group {group} are too many",
	},
	[UNS_FOUND_ZERO_PARTITION_SIZE] = {
		.name = "zero_partition_size", .code = DAMAGED,
		.sentence = "{file}: {part} of group {group}, rank {rank}, has {found} elements; expected {expected} of the {total} that param_shapes of {other_file} add up to over {n} ranks: the files are damaged or of different checkpoints",
	},
	[UNS_FOUND_ZERO_PARTITION_PADDING] = {
		.name = "zero_partition_padding", .code = DAMAGED,
		.sentence = "{file}: group {group} is said to end in {found} elements of padding; expected {expected} for rank {rank} of {n}: the file is another rank's, or of another checkpoint",
	},
	[UNS_FOUND_ZERO_PARTITION_TYPE] = {
		.name = "zero_partition_type", .code = DAMAGED,
		.sentence = "{file}: {part} of group {group}, rank {rank}, is {found}; expected {expected} as in the other ranks' files: the files are of different checkpoints",
	},
	[UNS_FOUND_ZERO_PARTITION_STATE_ABSENT] = {
		.name = "zero_partition_state_absent", .code = DAMAGED,
		.sentence = "{file}: the optimizer's {part} of group {group}, rank {rank}, is not there; other ranks' files have it: the file is damaged or of another checkpoint",
	},
	[UNS_FOUND_ZERO_PARTITIONS_SUM] = {
		.name = "zero_partitions_sum", .code = DAMAGED,
		.sentence = "group {group}: param_shapes of {file} add up to {expected} elements, but the partitions of {n} ranks to {found}: the files are damaged or of different checkpoints",
	},
	[UNS_FOUND_ZERO_PARAMETER_TWICE] = {
		.name = "zero_parameter_twice", .code = DAMAGED,
		.sentence = "{file} lists {tensor}, which another param group or another model-parallel rank holds already",
	},
	[UNS_FOUND_ZERO_GROUPS_DIFFER] = {
		.name = "zero_groups_differ", .code = DAMAGED,
		.sentence = "{file} lists {expected} groups of parameters, but the optimizer's shards hold {found}: they are of different checkpoints",
	},
	[UNS_FOUND_ZERO_RANKS_DIFFER] = {
		.name = "zero_ranks_differ", .code = DAMAGED,
		.sentence = "{file}: stage {stage}, {groups} groups, cut for {cut} ranks, but stage {other_stage}, {other_groups} groups, {other_cut} ranks in another rank's file: they are of different checkpoints",
	},
	[UNS_FOUND_ZERO_VERSIONS_DIFFER] = {
		.name = "zero_versions_differ", .code = DAMAGED,
		.sentence = "{file} was saved by DeepSpeed {found}, another rank's file by {expected}: they are of different checkpoints",
	},
	[UNS_FOUND_ZERO_SHARDS_MISSING] = {
		.name = "zero_shards_missing", .code = INCOMPLETE,
		.sentence = "{file} (data-parallel rank {rank}) is missing[{?more}, and others after it]: expected the optimizer's shards of {expected} ranks, found {found}",
		.advice = COPY_BACK,
	},
	[UNS_FOUND_ZERO_GROUPS_CUT_UNEVENLY] = {
		.name = "zero_groups_cut_unevenly", .code = UNKNOWN,
		.sentence = "{file}: its param groups are cut for different numbers of ranks (mixture of experts), which is not supported",
	},
	[UNS_FOUND_ZERO_SHARD_TOO_MANY] = {
		.name = "zero_shard_too_many", .code = DAMAGED,
		.sentence = "the optimizer is cut for {expected} ranks, and {file} would be the shard of rank {rank}: a file was renamed, or is of another checkpoint",
	},
	[UNS_FOUND_ZERO_PARTITIONS_REPEATED] = {
		.name = "zero_partitions_repeated", .code = UNKNOWN,
		.sentence = "the optimizer is cut for {expected} ranks, but there are shards of {found} (as {file}): partitions that are kept several times (MiCS, hpZ) are not supported",
	},
	[UNS_FOUND_ZERO_TOO_MANY_RANKS] = {
		.name = "zero_too_many_ranks", .code = DAMAGED,
		.sentence = "the optimizer is said to be cut for {found} ranks",
	},
	[UNS_FOUND_ZERO_RANK_TOO_HIGH] = {
		.name = "zero_rank_too_high", .code = UNKNOWN,
		.sentence = "{file}: a rank above {expected}",
	},
	[UNS_FOUND_ZERO_NUMBER_AMBIGUOUS] = {
		.name = "zero_number_ambiguous", .code = UNKNOWN,
		.sentence = "{file}: {found} weights may be parameter {number} of the optimizer, whose names were not saved (they are with ZeRO stages 1 to 3)",
	},
	[UNS_FOUND_ZERO_FILE_RENAMED] = {
		.name = "zero_file_renamed", .code = DAMAGED,
		.sentence = "{file}: the file was saved as {found}: it was renamed, or is another rank's",
		.advice = "copy the right one back from the training machine",
	},
	[UNS_FOUND_ZERO_FILE_MISSING] = {
		.name = "zero_file_missing", .code = INCOMPLETE,
		.sentence = "{file}: the file is missing",
		.advice = COPY_BACK,
	},
	[UNS_FOUND_ZERO_NOT_THE_FP32_COPY] = {
		.name = "zero_not_the_fp32_copy", .code = DAMAGED,
		.sentence = "{file} is not the fp32 copy of {tensor} in {other_file}: ds_to_universal mixes parameters up where round_robin_gradients was on",
		.advice = "take the universal view of the checkpoint that it was made from",
	},
	[UNS_FOUND_ZERO_LATEST_STALE] = {
		.name = "zero_latest_stale", .check = "tracker", .code = ELSEWHERE,
		.sentence = "{file} names {found}, which is not there: DeepSpeed finds nothing to go on from",
		.advice = "copy that tag back from the training machine, or write {tag} into the file",
	},
	[UNS_FOUND_ZERO_SEVERAL_TAGS] = {
		.name = "zero_several_tags", .severity = UNS_NOTE,
		.sentence = "{checkpoint} holds {n} tags; this is {tag}",
		.advice = ". Give another tag's directory as SOURCE to see it",
	},
	[UNS_FOUND_ZERO_NO_TAG] = {
		.name = "zero_no_tag", .code = INCOMPLETE,
		.sentence = "{checkpoint}: there is no tag directory with shards in it",
	},

	/* -- files of ranks -- */

	[UNS_FOUND_RANK_TENSOR_DAMAGED] = {
		.name = "rank_tensor_damaged", .code = DAMAGED,
		.sentence = "{file}: {tensor}: {cause}[ (and {more} more of its tensors)]",
		.advice = COPY_AGAIN,
	},
	[UNS_FOUND_RANK_TENSOR_UNKNOWN] = {
		.name = "rank_tensor_unknown", .code = UNKNOWN,
		.sentence = "{file}: {tensor}: {cause}[ (and {more} more of its tensors)]",
	},
	[UNS_FOUND_RANK_TENSOR_MISTYPED] = {
		.name = "rank_tensor_mistyped", .code = DAMAGED,
		.sentence = "{file}: {tensor}: its data are {found}, but it is declared as {expected}[ (and {more} more of its tensors)]",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_PART_SHAPE] = {
		.name = "rank_part_shape", .code = DAMAGED,
		.sentence = "{file}: {tensor}: this rank holds a part of shape {found}; expected {expected}[ (and {more} more of its tensors)]",
		.advice = COPY_AGAIN,
	},
	[UNS_FOUND_RANK_TYPES_DIFFER] = {
		.name = "rank_types_differ", .code = DAMAGED,
		.sentence = "{file}: {tensor} is {found} there, but {expected} in {other_file.name}[ (and {more} more of its tensors)]",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_SHAPES_DIFFER] = {
		.name = "rank_shapes_differ", .code = DAMAGED,
		.sentence = "{file}: {tensor} is a {found_kind} tensor of shape {found} there, but a {expected_kind} one of shape {expected} in {other_file.name}[ (and {more} more of its tensors)]",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_MESHES_DIFFER] = {
		.name = "rank_meshes_differ", .code = DAMAGED,
		.sentence = "{file}: {tensor} is cut over ranks of shape {found} there, over {expected} in {other_file.name}[ (and {more} more of its tensors)]",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_TENSOR_ABSENT] = {
		.name = "rank_tensor_absent", .code = DAMAGED,
		.sentence = "{file}: {tensor} is not there, but in {other_file.name}[ (and {more} more of its tensors)]",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_TENSOR_ONLY_THERE] = {
		.name = "rank_tensor_only_there", .code = DAMAGED,
		.sentence = "{file}: {tensor} is there, but not in {other_file.name}[ (and {more} more of its tensors)]",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_STEPS_DIFFER] = {
		.name = "rank_steps_differ", .code = DAMAGED,
		.sentence = "{file}: {tensor} is {found} there, but {expected} in {other_file.name}[ (and {more} more of its tensors)]",
		.advice = OF_TWO_SAVES,
	},
	[UNS_FOUND_RANK_GROUPS_DIFFER] = {
		.name = "rank_groups_differ", .code = DAMAGED,
		.sentence = "{file}: {key} of param group {group} is {found} there, but {expected} in {other_file.name}[ (and {more} more of its tensors)]",
		.advice = OF_TWO_SAVES,
	},
	[UNS_FOUND_RANK_SCHEDULERS_DIFFER] = {
		.name = "rank_schedulers_differ", .code = DAMAGED,
		.sentence = "{file}: {key} of the learning rate scheduler is {found} there, but {expected} in {other_file.name}[ (and {more} more of its tensors)]",
		.advice = OF_TWO_SAVES,
	},
	[UNS_FOUND_RANK_SCHEDULER_ONLY_SOME] = {
		.name = "rank_scheduler_only_some", .code = DAMAGED,
		.sentence = "{file}: it has {found} learning rate scheduler, and {other_file.name} has {expected}[ (and {more} more of its tensors)]",
		.advice = OF_TWO_SAVES,
	},
	[UNS_FOUND_RANK_REPLICAS_DIFFER] = {
		.name = "rank_replicas_differ", .code = DAMAGED,
		.sentence = "{file}: {tensor} differs there from the copy of the same elements in {other_file.name}[ (and {more} more of its tensors)]",
		.advice = "move the file of the rank that is wrong away, then the other copy is taken",
	},
	[UNS_FOUND_RANK_PLAIN_TENSORS_DIFFER] = {
		.name = "rank_plain_tensors_differ", .code = UNKNOWN,
		.sentence = "{file}: {tensor} differs from the tensor of that name and shape in {other_file}, and neither says which part of the whole it is[ (and {more} more of its tensors)]",
	},
	[UNS_FOUND_RANK_MORE_FILES] = {
		.name = "rank_more_files", .code = DAMAGED,
		.sentence = "{n} more files have tensors with problems like these",
	},
	[UNS_FOUND_RANK_FILE_COPIED] = {
		.name = "rank_file_copied", .code = DAMAGED,
		.sentence = "{file} was written by rank {found}, as {other_file.name} was: rank {rank}'s own is not there",
		.advice = COPY_BACK,
	},
	[UNS_FOUND_RANK_FILE_RENAMED] = {
		.name = "rank_file_renamed", .code = DAMAGED,
		.sentence = "{file} was written by rank {found}, not by rank {rank} as its name says[ (and {more} more like it)]: who resumes from the files takes one rank's part for another's",
		.advice = "rename them back, or copy them again from the training machine (what is put together here goes by what they record)",
	},
	[UNS_FOUND_RANK_BUFFERS_DIFFER] = {
		.name = "rank_buffers_differ", .severity = UNS_NOTE,
		.sentence = "{tensor} differs between ranks[ (as do {more} more buffers)]; it is taken from {file}, not {other_file.name}",
	},
	[UNS_FOUND_RANK_FILE_MISSING] = {
		.name = "rank_file_missing", .code = INCOMPLETE,
		.sentence = "{file} is missing, rank {rank}'s part[{?copies} (other ranks hold copies of it, which are taken here)]",
		.advice = COPY_BACK,
	},
	[UNS_FOUND_RANK_FILES_MISSING] = {
		.name = "rank_files_missing", .code = INCOMPLETE,
		.sentence = "{file} and {more} more {more|file|files} are missing, the parts of ranks {ranks}[{?copies} (other ranks hold copies of it, which are taken here)]",
		.advice = "copy them back from the training machine",
	},
	[UNS_FOUND_RANK_FILE_UNREADABLE] = {
		.name = "rank_file_unreadable", .code = DAMAGED,
		.sentence = "{file}: {cause}[{?copies} (other ranks hold copies of it, which are taken here)]",
		.advice = COPY_AGAIN,
	},
	[UNS_FOUND_RANK_FILE_UNKNOWN] = {
		.name = "rank_file_unknown", .code = UNKNOWN,
		.sentence = "{file}: {cause}[{?copies} (other ranks hold copies of it, which are taken here)]",
	},
	[UNS_FOUND_RANK_FILES_UNREADABLE] = {
		.name = "rank_files_unreadable", .code = DAMAGED,
		.sentence = "{n} more files cannot be read",
		.advice = "copy them again from the training machine",
	},
	[UNS_FOUND_RANK_NO_TENSORS] = {
		.name = "rank_no_tensors", .code = UNKNOWN,
		.sentence = "{file}: the file holds no tensors by name",
	},
	[UNS_FOUND_RANK_NUMBERS_UNLIKE_MODEL] = {
		.name = "rank_numbers_unlike_model", .code = UNKNOWN,
		.sentence = "{checkpoint}: the optimizer numbers {found} parameters, the model has {expected}: no file says which ones they are",
	},
	[UNS_FOUND_RANK_NUMBERED_SHAPE] = {
		.name = "rank_numbered_shape", .code = DAMAGED,
		.sentence = "{checkpoint}: optimizer state {tensor} has shape {found}; expected {expected}, that of {parameter}, which is the parameter of that number in the model's order",
	},
	[UNS_FOUND_RANK_STATES_DIFFER_IN_LENGTH] = {
		.name = "rank_states_differ_in_length", .code = DAMAGED,
		.sentence = "{file}: {tensor} has {found} elements, but {other_tensor} has {expected}: an optimizer's states of one parameter are as long as each other",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_STATE_ABSENT] = {
		.name = "rank_state_absent", .code = DAMAGED,
		.sentence = "{file}: {other_tensor} is there, but not {tensor}",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_STATE_SIZE] = {
		.name = "rank_state_size", .code = DAMAGED,
		.sentence = "{checkpoint}: the ranks' parts of optimizer state {tensor} have {found} elements together; expected {expected}, those of {parameter}, which is parameter {number} in the model's order",
		.advice = "copy the ranks' files again from the training machine" OR_BEFORE,
	},
	[UNS_FOUND_RANK_ORDER_UNKNOWN] = {
		.name = "rank_order_unknown", .code = DAMAGED,
		.sentence = "{checkpoint}: the model's files and their names disagree on who is which rank, so the order of the ranks' parts of the optimizer cannot be told",
		.advice = "rename them back, or copy them again from the training machine",
	},
	[UNS_FOUND_RANK_UNIT_ABSENT] = {
		.name = "rank_unit_absent", .code = DAMAGED,
		.sentence = "{checkpoint}: rank {rank}'s file has no part of the flat unit's {tensor}, which {file.name} has",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_UNIT_LENGTH] = {
		.name = "rank_unit_length", .code = DAMAGED,
		.sentence = "{file}: {tensor} has {found} elements there, but {expected} in {other_file.name}: flat units are padded to the same length on all ranks",
		.advice = COPY_AGAIN OR_BEFORE,
	},
	[UNS_FOUND_RANK_UNITS_SIZE] = {
		.name = "rank_units_size", .code = DAMAGED,
		.sentence = "{checkpoint}: the optimizer's {n} flat units have {found} elements on all ranks together; expected {expected}, the model's parameters and their padding (torch's _sharded_numel_padded cannot come from them)",
		.advice = GO_BEFORE,
	},
	[UNS_FOUND_RANK_UNITS_UNNAMED] = {
		.name = "rank_units_unnamed", .code = UNKNOWN,
		.sentence = "{checkpoint}: the optimizer's state is that of {n} flat units (FSDP1 with use_orig_params=False), and no file says which of the model's {parameters} parameters lie in which, in what order; the weights are served without it",
		.advice = " (-o assume=fsdp-units, or a layout: unshard meta import)",
	},
	[UNS_FOUND_RANK_UNITS_MAP_IS_OF_OTHER_FILES] = {
		.name = "rank_units_map_is_of_other_files", .code = UNKNOWN,
		.sentence = "{checkpoint}: the optimizer's state is that of {n} flat units (FSDP1 with use_orig_params=False), and no file says which of the model's {parameters} parameters lie in which, in what order; the weights are served without it",
		.advice = " (the layout that was imported is of other files than those that are there now: import it again if it is theirs too)",
	},
	[UNS_FOUND_RANK_UNITS_NOT_GUESSED] = {
		.name = "rank_units_not_guessed", .code = UNKNOWN,
		.sentence = "{checkpoint}: the optimizer's state is that of {n} flat units (FSDP1 with use_orig_params=False), and no file says which of the model's {parameters} parameters lie in which, in what order; the weights are served without it (-o assume=fsdp-units: {cause})",
	},
	[UNS_FOUND_RANK_UNITS_MAP_DOES_NOT_FIT] = {
		.name = "rank_units_map_does_not_fit", .code = DAMAGED,
		.sentence = "{checkpoint}: {cause} (imported by unshard meta import)",
	},
	[UNS_FOUND_RANK_UNITS_NAMED] = {
		.name = "rank_units_named", .severity = UNS_NOTE,
		.sentence = "{checkpoint}: the optimizer's state by name is {cause}",
	},
	[UNS_FOUND_RANK_CONFIG_UNREADABLE] = {
		.name = "rank_config_unreadable", .code = DAMAGED,
		.sentence = "{file} [{?json}says no world_size above 0|is no JSON object]: the ranks' files are read by the world size in their names",
		.advice = "copy it again from the training machine, verl's model merger needs it",
	},
	[UNS_FOUND_RANK_WORLD_UNLIKE_CONFIG] = {
		.name = "rank_world_unlike_config", .code = INCOMPLETE,
		.sentence = "{checkpoint}: fsdp_config.json says world size {expected}, but the files are of world size {found}",
		.advice = ": copy the missing files back from the training machine",
	},
	[UNS_FOUND_RANK_WORLDS_MIXED] = {
		.name = "rank_worlds_mixed", .code = DAMAGED,
		.sentence = "{checkpoint} holds files of world sizes {found}, and nothing says which are current",
		.advice = ": move the others away (of one save, all ranks have the same world size)",
	},
	[UNS_FOUND_RANK_OLD_WORLDS] = {
		.name = "rank_old_worlds", .severity = UNS_NOTE,
		.sentence = "{checkpoint} holds files of world sizes {found}; those of {expected} are read, as fsdp_config.json says",
	},
	[UNS_FOUND_RANK_MODEL_NOT_SAVED] = {
		.name = "rank_model_not_saved", .severity = UNS_NOTE,
		.sentence = "{checkpoint} holds no model files: the trainer was told not to save them",
	},
	[UNS_FOUND_RANK_MESH_UNLIKE_NAMES] = {
		.name = "rank_mesh_unlike_names", .code = DAMAGED,
		.sentence = "{checkpoint}: the model was saved by {found} ranks, its files are named for {expected}",
		.advice = ": rename them as they were, or copy them again from the training machine",
	},
	[UNS_FOUND_RANK_MOMENT_MISSING] = {
		.name = "rank_moment_missing", .code = DAMAGED,
		.sentence = "{checkpoint}: the optimizer has {found} of {tensor} and no {expected}[ (and {more} more parameters are like it)]",
		.advice = GO_BEFORE,
	},
	[UNS_FOUND_RANK_MOMENT_TYPES_DIFFER] = {
		.name = "rank_moment_types_differ", .code = DAMAGED,
		.sentence = "{checkpoint}: exp_avg of {tensor} is {expected}, but its exp_avg_sq is {found}[ (and {more} more parameters are like it)]: an optimizer keeps both in one type",
		.advice = GO_BEFORE,
	},

	/* -- Hugging Face -- */

	[UNS_FOUND_SHARD_COUNT_UNKNOWN] = {
		.name = "shard_count_unknown", .severity = UNS_NOTE,
		.sentence = "this form does not record how many shards there were: {n} were found; if the last ranks' files were lost, tensors end early",
	},
	[UNS_FOUND_INDEX_MISSING] = {
		.name = "index_missing", .code = INCOMPLETE,
		.sentence = "{file} is missing: it is written after the files it names, so the save did not end or the copy is not complete",
		.advice = "",
	},
	[UNS_FOUND_INDEX_NAMES_ABSENT_TENSOR] = {
		.name = "index_names_absent_tensor", .code = DAMAGED,
		.sentence = "{file} names tensor {tensor} in {other_file}, which does not hold it",
	},
	[UNS_FOUND_TENSOR_IN_TWO_FILES] = {
		.name = "tensor_in_two_files", .code = DAMAGED,
		.sentence = "tensor {tensor} is whole in both {other_file} and {file}",
	},
	[UNS_FOUND_TENSOR_UNLIKE_IN_FILES] = {
		.name = "tensor_unlike_in_files", .code = DAMAGED,
		.sentence = "tensor {tensor} has another type or rank in {file} than in {other_file}",
	},
	[UNS_FOUND_TENSOR_OFFSET_OVERFLOWS] = {
		.name = "tensor_offset_overflows", .code = DAMAGED,
		.sentence = "tensor {tensor}: offset overflows in {file}",
	},
	[UNS_FOUND_SECOND_MODEL] = {
		.name = "second_model", .severity = UNS_NOTE,
		.sentence = "{file} is a second model of this checkpoint: only model 0 is shown as weights",
	},
	[UNS_FOUND_MODEL_MISSING] = {
		.name = "model_missing", .code = INCOMPLETE,
		.sentence = "{checkpoint} has no pytorch_model_fsdp_0: the save did not finish, or the directory was not copied",
	},

	/* -- an optimizer, or weights, that a view cannot put together -- */

	[UNS_FOUND_OPTIMIZERS_SEVERAL] = {
		.name = "optimizers_several", .code = UNKNOWN,
		.sentence = "{checkpoint} has several optimizers ({one}, {other}): DeepSpeed's engine has one",
	},
	[UNS_FOUND_OPTIMIZER_STATES_UNNAMED] = {
		.name = "optimizer_states_unnamed", .code = UNKNOWN,
		.sentence = "{checkpoint} holds no optimizer state with parameter names, which DeepSpeed's universal checkpoint is made of",
	},
	[UNS_FOUND_OPTIMIZER_STATELESS] = {
		.name = "optimizer_stateless", .code = UNKNOWN,
		.sentence = "{checkpoint}: the optimizer has no states yet",
	},
	[UNS_FOUND_OPTIMIZER_STATE_OTHER] = {
		.name = "optimizer_state_other", .code = UNKNOWN,
		.sentence = "{checkpoint}: the optimizer keeps {state} of {tensor}; a universal checkpoint has exp_avg, exp_avg_sq and step only (Adam, AdamW)",
	},
	[UNS_FOUND_OPTIMIZER_STATE_STRAY] = {
		.name = "optimizer_state_stray", .code = DAMAGED,
		.sentence = "{checkpoint}: optimizer state {tensor} belongs to no param group's parameter",
	},
	[UNS_FOUND_OPTIMIZER_STATE_NO_TENSOR] = {
		.name = "optimizer_state_no_tensor", .code = UNKNOWN,
		.sentence = "{checkpoint}: optimizer state {tensor} is not a tensor; only tensor states can be served",
	},
	[UNS_FOUND_OPTIMIZER_STATE_MISSING] = {
		.name = "optimizer_state_missing", .code = INCOMPLETE,
		.sentence = "{checkpoint}: parameter {tensor} has no {state}",
	},
	[UNS_FOUND_OPTIMIZER_STATE_TOO_WIDE] = {
		.name = "optimizer_state_too_wide", .code = UNKNOWN,
		.sentence = "{checkpoint}: {state} of {tensor} is {found}, which does not fit into fp32",
	},
	[UNS_FOUND_OPTIMIZER_STATE_SHAPE] = {
		.name = "optimizer_state_shape", .code = DAMAGED,
		.sentence = "{checkpoint}: {state} of {tensor} is not of the parameter's shape",
	},
	[UNS_FOUND_OPTIMIZER_STATE_UNLIKE] = {
		.name = "optimizer_state_unlike", .code = INCOMPLETE,
		.sentence = "{checkpoint}: {state} of {tensor} is not there, or not as that of other parameters",
	},
	[UNS_FOUND_OPTIMIZER_WEIGHT_MISSING] = {
		.name = "optimizer_weight_missing", .code = INCOMPLETE,
		.sentence = "{checkpoint}: the optimizer has states of {tensor}, but there is no weight of that name",
	},
	[UNS_FOUND_OPTIMIZER_STEP_NOT_ONE] = {
		.name = "optimizer_step_not_one", .code = UNKNOWN,
		.sentence = "{checkpoint}: step of {tensor} is not one number",
	},
	[UNS_FOUND_OPTIMIZER_STEP_UNKNOWN] = {
		.name = "optimizer_step_unknown", .code = INCOMPLETE,
		.sentence = "{checkpoint}: parameter {tensor} has moments but no step, and the training step is not known",
		.advice = "set it with `unshard meta set CHECKPOINT global_step=N`",
	},
	[UNS_FOUND_GROUPS_MISSING] = {
		.name = "groups_missing", .code = INCOMPLETE,
		.sentence = "{checkpoint}: the optimizer's param groups were not saved, so its states cannot be put in order",
	},
	[UNS_FOUND_GROUPS_UNORDERED] = {
		.name = "groups_unordered", .code = UNKNOWN,
		.sentence = "{checkpoint}: hyper-parameters were saved with each parameter, in several param groups whose order is not recorded, and DeepSpeed knows groups by their order",
	},
	[UNS_FOUND_GROUPS_SHARE_A_PARAMETER] = {
		.name = "groups_share_a_parameter", .code = DAMAGED,
		.sentence = "{checkpoint}: parameter {tensor} is in two param groups",
	},
	[UNS_FOUND_GROUPS_WITHOUT_SETTINGS] = {
		.name = "groups_without_settings", .code = UNKNOWN,
		.sentence = "{checkpoint}: hyper-parameters of the param groups (learning rate, weight decay) were not saved, as with elastic_checkpoint",
		.advice = "only the view universal can do without them",
	},
	[UNS_FOUND_SETTING_UNNAMED] = {
		.name = "setting_unnamed", .code = UNKNOWN,
		.sentence = "{checkpoint}: a hyper-parameter has no name",
	},
	[UNS_FOUND_OPTIMIZER_NUMBERED] = {
		.name = "optimizer_numbered", .code = UNKNOWN,
		.sentence = "{file.name} of {checkpoint} numbers its parameters and FSDP needs their names",
		.advice = "resume without FSDP from the view full",
	},
	[UNS_FOUND_NO_WEIGHTS_UNDER_ROOT] = {
		.name = "no_weights_under_root", .code = UNKNOWN,
		.sentence = "{checkpoint} holds no model weights (optimizer or other state only)",
		.advice = "if they are below another key, name it with -o root=KEY",
	},
	[UNS_FOUND_NO_METADATA] = {
		.name = "no_metadata", .code = UNKNOWN,
		.sentence = "{checkpoint} is not a torch distributed checkpoint: it has no .metadata",
	},
	[UNS_FOUND_LIGHTNING_META_UNREADABLE] = {
		.name = "lightning_meta_unreadable", .code = DAMAGED,
		.sentence = "{checkpoint}: meta.pt could not be read",
	},
	[UNS_FOUND_LIGHTNING_META_STORAGE] = {
		.name = "lightning_meta_storage", .code = UNKNOWN,
		.sentence = "{checkpoint}: meta.pt names a storage {found}, and a file that continues it cannot: torch numbers them from 0",
	},
	[UNS_FOUND_PIPELINE_NAMES] = {
		.name = "pipeline_names", .code = UNKNOWN,
		.sentence = "{checkpoint} was saved by a pipeline, whose names for parameters are not those of a model in one piece",
	},
	[UNS_FOUND_PIPELINE_NUMBERS] = {
		.name = "pipeline_numbers", .code = UNKNOWN,
		.sentence = "{checkpoint} was saved by a pipeline: each stage's optimizer numbers its own parameters, and how one process would number them all is not recorded",
	},

	/* -- what cannot be sharded for another number of ranks -- */

	[UNS_FOUND_NOT_ZERO] = {
		.name = "not_zero", .code = UNKNOWN,
		.sentence = "{checkpoint} is not a DeepSpeed ZeRO checkpoint",
	},
	[UNS_FOUND_NO_ZERO_SHARDS] = {
		.name = "no_zero_shards", .code = UNKNOWN,
		.sentence = "{checkpoint} has no ZeRO optimizer shards of data-parallel ranks",
	},
	[UNS_FOUND_MODEL_PARALLEL] = {
		.name = "model_parallel", .code = UNKNOWN,
		.sentence = "{checkpoint} was saved by several model-parallel ranks ({file.name}): only data-parallel checkpoints can be cut anew",
	},
	[UNS_FOUND_ZERO_CUT_NOT_POSSIBLE] = {
		.name = "zero_cut_not_possible", .code = UNKNOWN,
		.sentence = "{checkpoint}: {cause}",
	},
	[UNS_FOUND_ZERO_COPY_UNLIKE] = {
		.name = "zero_copy_unlike", .code = INCOMPLETE,
		.sentence = "{checkpoint}: the optimizer's fp32 copy or step of {tensor} is not there, or not of the type that others are",
	},
	[UNS_FOUND_ZERO_PADDINGS] = {
		.name = "zero_paddings", .code = DAMAGED,
		.sentence = "{checkpoint}: param_alignment_paddings is not of these groups",
	},
	[UNS_FOUND_ZERO_SUB_GROUPS] = {
		.name = "zero_sub_groups", .code = UNKNOWN,
		.sentence = "{checkpoint} has {found} sub-groups of parameters, where sub_group_size and {ranks} ranks ask for {expected}: how another number of ranks would be cut is not known",
	},
	[UNS_FOUND_ZERO_SHAPES_UNLIKE_GROUPS] = {
		.name = "zero_shapes_unlike_groups", .code = DAMAGED,
		.sentence = "{checkpoint}: param_shapes lists {found} parameters in {found_groups} groups, the optimizer's param groups are {expected_groups} with {expected}",
	},
	[UNS_FOUND_ZERO_FROZEN_MISSING] = {
		.name = "zero_frozen_missing", .code = INCOMPLETE,
		.sentence = "{checkpoint}: the frozen parameter {tensor} is not there",
	},
	[UNS_FOUND_TOO_MANY_SLICES] = {
		.name = "too_many_slices", .code = UNKNOWN,
		.sentence = "{checkpoint}: {n} parameters sliced for {ranks} ranks are more than is laid out at once ({most} slices)",
		.advice = "the view universal loads at any number of ranks",
	},
	[UNS_FOUND_TOO_MANY_SHARDS] = {
		.name = "too_many_shards", .code = UNKNOWN,
		.sentence = "{checkpoint}: {n} tensors for {ranks} ranks are more than is laid out at once ({most} shards)",
		.advice = "the views full and full-fsdp load at any number of ranks",
	},
	[UNS_FOUND_FLAT_OPTIMIZER] = {
		.name = "flat_optimizer", .code = UNKNOWN,
		.sentence = "{checkpoint}: the optimizer's state is FSDP1's own (flattened parameters, cut by how the model was wrapped): only DTensors can be sharded anew for other ranks",
		.advice = "the view full-fsdp holds it by name",
	},
	[UNS_FOUND_NO_DTENSORS] = {
		.name = "no_dtensors", .code = UNKNOWN,
		.sentence = "{checkpoint} holds no DTensors (FSDP without a device mesh saves ShardedTensors): only DTensors can be sharded anew for other ranks",
	},
	[UNS_FOUND_TENSOR_WITHOUT_ROWS] = {
		.name = "tensor_without_rows", .code = UNKNOWN,
		.sentence = "{checkpoint}: {tensor} is sharded and has no rows",
	},
	[UNS_FOUND_OPTIMIZER_STATE_PLACELESS] = {
		.name = "optimizer_state_placeless", .code = UNKNOWN,
		.sentence = "{checkpoint}: the optimizer's {tensor} has no known place",
	},
	[UNS_FOUND_TOO_MANY_STATES] = {
		.name = "too_many_states", .code = UNKNOWN,
		.sentence = "{checkpoint}: the optimizer keeps more than {most} states for {tensor}",
	},
	[UNS_FOUND_SCHEDULER_UNREADABLE] = {
		.name = "scheduler_unreadable", .code = DAMAGED,
		.sentence = "{checkpoint}: the scheduler's state cannot be read from {file.name}",
		.advice = ": copy the file back from the training machine",
	},
	[UNS_FOUND_NO_FLAT_UNITS] = {
		.name = "no_flat_units", .code = UNKNOWN,
		.sentence = "{checkpoint} has no flat units: its optimizer is named without a layout, or was not saved",
	},

	/* -- what stands beside a checkpoint -- */

	[UNS_FOUND_CONFIG_UNUSABLE] = {
		.name = "config_unusable", .check = "config", .severity = UNS_NOTE,
		.sentence = "config.json of {where} cannot be used: {cause}",
	},
	[UNS_FOUND_CONFIG_DOES_NOT_FIT] = {
		.name = "config_does_not_fit", .check = "config", .severity = UNS_NOTE,
		.sentence = "config.json of {where} does not fit this checkpoint: {cause}",
		.advice = "name the right directory with -o model=DIR",
	},
	[UNS_FOUND_NO_CONFIG] = {
		.name = "no_config", .severity = UNS_NOTE,
		.sentence = "there is no config.json beside these weights: from_pretrained needs one",
		.advice = ". Put the model's config.json (and tokenizer) into the run directory, or mount with -o model=DIR where DIR holds them",
	},
	[UNS_FOUND_MODEL_FACT_UNUSABLE] = {
		.name = "model_fact_unusable", .severity = UNS_NOTE,
		.sentence = "the fact \"model\" cannot be used: {cause}",
	},
	[UNS_FOUND_MODEL_DIR_UNUSABLE] = {
		.name = "model_dir_unusable", .severity = UNS_NOTE,
		.sentence = "the model directory cannot be used: {cause}",
	},
	[UNS_FOUND_FILES_BORROWED] = {
		.name = "files_borrowed", .severity = UNS_NOTE,
		.sentence = "{what} borrowed from {where}",
	},
	[UNS_FOUND_TIED_WEIGHT_LEFT_OUT] = {
		.name = "tied_weight_left_out", .severity = UNS_NOTE,
		.sentence = "{tensor} is left out: config.json ties it to {other_tensor}, proven equal by {how}",
	},
	[UNS_FOUND_TIED_WEIGHTS_DIFFER] = {
		.name = "tied_weights_differ", .severity = UNS_NOTE,
		.sentence = "config.json ties {tensor} to {other_tensor} but their bytes differ ({how}): both are kept, and from_pretrained will use the latter for both",
	},
	[UNS_FOUND_TIE_NOT_COMPARED] = {
		.name = "tie_not_compared", .severity = UNS_NOTE,
		.sentence = "{tensor} is kept beside {other_tensor}: they could not be compared: {cause}",
	},

	/* -- a checkpoint as a whole, and what a view can make of it -- */

	[UNS_FOUND_CHECKPOINT_UNREADABLE] = {
		.name = "checkpoint_unreadable", .check = "unreadable", .code = DAMAGED,
		.sentence = "{cause}",
	},
	[UNS_FOUND_VIEW_NOT_POSSIBLE] = {
		.name = "view_not_possible", .code = UNKNOWN,
		.sentence = "{cause}",
	},
	[UNS_FOUND_SAVE_GOING_ON] = {
		.name = "save_going_on", .code = INCOMPLETE,
		.sentence = "the save may still be going on: the file that is written last is not there, and something changed less than {expected} s ago (-o settle=)",
	},

	/* -- what a Trainer misses that resumes -- */

	[UNS_FOUND_TRAINER_STATE_MISSING] = {
		.name = "trainer_state_missing", .check = "trainer_state", .code = INCOMPLETE,
		.sentence = "{checkpoint} has no trainer_state.json: a Trainer that resumes from it fails with FileNotFoundError",
		.advice = "copy it back from the training machine, or resume from a mount, whose view full makes one",
	},
	[UNS_FOUND_TRAINER_STATE_UNUSABLE] = {
		.name = "trainer_state_unusable", .check = "trainer_state", .code = DAMAGED,
		.sentence = "a Trainer cannot resume from trainer_state.json of {checkpoint}: {cause}",
		.advice = "copy it back from the training machine, or resume from a mount, whose view full makes one",
	},
	[UNS_FOUND_SCHEDULER_MISSING] = {
		.name = "scheduler_missing", .check = "scheduler", .code = INCOMPLETE,
		.sentence = "{checkpoint} has an optimizer and no scheduler.pt: a Trainer restores both or neither, so both would silently start afresh",
		.advice = "copy scheduler.pt back from the training machine",
	},
	[UNS_FOUND_OPTIMIZER_MISSING] = {
		.name = "optimizer_missing", .check = "optimizer", .code = INCOMPLETE,
		.sentence = "{checkpoint} has scheduler.pt and no optimizer: a Trainer restores both or neither, so both would silently start afresh",
		.advice = "copy optimizer_0 (or optimizer.pt, optimizer.bin) back from the training machine",
	},
	[UNS_FOUND_SAVED_WEIGHTS_ONLY] = {
		.name = "saved_weights_only", .check = "weights_only", .severity = UNS_NOTE,
		.sentence = "{checkpoint} was saved with save_weights_only: trainer.fit cannot go on from it (KeyError 'optimizer_0' or 'optimizer_states', \"contains only the model\")",
		.advice = "a Trainer on one device goes on, with fresh optimizers, from a mount's view full, one with FSDPStrategy from full-fsdp",
	},
	[UNS_FOUND_RNG_FILE_MISSING] = {
		.name = "rng_file_missing", .check = "rng", .code = INCOMPLETE,
		.sentence = "{file.name} of {checkpoint} is missing: there are {found} of {expected} ranks' random states, and rank {rank} would go on with others",
		.advice = COPY_BACK,
	},
	[UNS_FOUND_RNG_MISSING] = {
		.name = "rng_missing", .check = "rng", .severity = UNS_NOTE,
		.sentence = "{checkpoint} has no rng_state files: a Trainer that resumes from it shuffles and drops out differently, and only an info line says so",
		.advice = "copy them back from the training machine",
	},
	[UNS_FOUND_RNG_OF_FEWER_RANKS] = {
		.name = "rng_of_fewer_ranks", .check = "rng", .code = INCOMPLETE,
		.sentence = "the shards of {checkpoint} are of {expected} ranks and its random states of {found}",
		.advice = ": copy the other ranks' {prefix}*{suffix} back, or the directory mixes two saves",
	},
	[UNS_FOUND_RNG_OF_MORE_RANKS] = {
		.name = "rng_of_more_ranks", .check = "rng", .severity = UNS_NOTE,
		.sentence = "{checkpoint} has random states of {found} ranks and shards of {expected}: unless those ranks had nothing to write, the directory mixes two saves",
	},
	[UNS_FOUND_CONFIG_UNLIKE_WEIGHTS] = {
		.name = "config_unlike_weights", .check = "config", .code = DAMAGED,
		.sentence = "config.json does not fit the weights of {checkpoint}: {cause}",
		.advice = "put the config.json that the run was started with beside it, or mount with -o model=DIR",
	},
	[UNS_FOUND_CONFIG_MISSING] = {
		.name = "config_missing", .check = "config", .severity = UNS_NOTE,
		.sentence = "there is no config.json beside the weights of {checkpoint}: from_pretrained needs one",
		.advice = "put the model's config.json and tokenizer into the run directory, or mount with -o model=DIR",
	},
	[UNS_FOUND_STILL_SAVING] = {
		.name = "still_saving", .check = "saving", .severity = UNS_NOTE,
		.sentence = "{checkpoint} changed less than {expected} s ago and its save has not ended",
		.advice = ": check it again later (-o settle=)",
	},
	[UNS_FOUND_SAVE_END_UNKNOWN] = {
		.name = "save_end_unknown", .check = "unfinished", .severity = UNS_NOTE,
		.sentence = "nothing in {checkpoint} says that its save ended, though what is there is whole",
		.advice = ": if a file that the script saves last is missing, go on from the checkpoint before it",
	},

	/* -- files that name a run's last checkpoint -- */

	[UNS_FOUND_TRACKER_UNUSABLE] = {
		.name = "tracker_unusable", .check = "tracker", .code = DAMAGED,
		.sentence = "{file.name} of {checkpoint} {cause}: {trainer} fails when it looks there for the last checkpoint",
		.advice = "[set it to {newest}, the newest step that is there, if that one is whole|delete it, there is no step to go on from]",
	},
	[UNS_FOUND_TRACKER_STALE] = {
		.name = "tracker_stale", .check = "tracker", .code = ELSEWHERE,
		.sentence = "{file.name} of {checkpoint} names step {found}, and there is no global_step_{found}: {trainer} would start from scratch",
		.advice = "copy the directory back, or [set it to {newest}, the newest step that is there, if that one is whole|delete it, there is no step to go on from]",
	},

	/* -- directories without a checkpoint -- */

	[UNS_FOUND_UNREADABLE_DIRECTORY] = {
		.name = "unreadable_directory", .check = "unreadable", .code = DAMAGED,
		.sentence = "{file} cannot be read, so that nothing in it was looked at: {cause}",
	},
	[UNS_FOUND_NOTHING_FOUND] = {
		.name = "nothing_found", .check = "nothing", .code = INCOMPLETE,
		.sentence = "there is no checkpoint below {file}: nothing was saved yet, or the saves failed (FSDP SHARDED_STATE_DICT with save_only_model leaves nothing before transformers 4.50)",
		.advice = "",
	},
	[UNS_FOUND_LEFTOVER_UNKNOWN] = {
		.name = "leftover_unknown", .check = "not_read", .severity = UNS_NOTE,
		.sentence = "{checkpoint} is in a form that is not known here ({file}), so nothing of it was checked",
	},
	[UNS_FOUND_LEFTOVER_STAGING] = {
		.name = "leftover_staging", .check = "staging", .code = INCOMPLETE,
		.sentence = "{checkpoint} is what a Trainer renames when a save has ended: this one did not end",
		.advice = "go on from the checkpoint before it and delete this directory",
	},
	[UNS_FOUND_NO_WEIGHTS_LEFT] = {
		.name = "no_weights_left", .check = "no_weights", .code = INCOMPLETE,
		.sentence = "{checkpoint} holds no weights, only files such as {file}: nothing can be recovered from it",
		.advice = NOT_BEGUN,
	},
	[UNS_FOUND_NOTHING_LEFT] = {
		.name = "nothing_left", .check = "empty", .code = INCOMPLETE,
		.sentence = "{checkpoint} is empty: nothing can be recovered from it",
		.advice = NOT_BEGUN,
	},
	[UNS_FOUND_NO_WEIGHTS_LEFT_OF_TRAINER] = {
		.name = "no_weights_left_of_trainer", .check = "no_weights", .code = INCOMPLETE,
		.sentence = "{checkpoint} holds no weights, only files such as {file}: nothing can be recovered from it",
		.advice = SAVE_ONLY_MODEL,
	},
	[UNS_FOUND_NOTHING_LEFT_OF_TRAINER] = {
		.name = "nothing_left_of_trainer", .check = "empty", .code = INCOMPLETE,
		.sentence = "{checkpoint} is empty: nothing can be recovered from it",
		.advice = SAVE_ONLY_MODEL,
	},
	[UNS_FOUND_NO_WEIGHTS_LEFT_OF_LIGHTNING] = {
		.name = "no_weights_left_of_lightning", .check = "no_weights", .code = INCOMPLETE,
		.sentence = "{checkpoint} holds no weights, only files such as {file}: nothing can be recovered from it",
		.advice = SAVE_WEIGHTS_ONLY,
	},
	[UNS_FOUND_NOTHING_LEFT_OF_LIGHTNING] = {
		.name = "nothing_left_of_lightning", .check = "empty", .code = INCOMPLETE,
		.sentence = "{checkpoint} is empty: nothing can be recovered from it",
		.advice = SAVE_WEIGHTS_ONLY,
	},

	/* -- what only reading all bytes tells (check --deep) -- */

	[UNS_FOUND_BYTES_UNREADABLE] = {
		.name = "bytes_unreadable", .check = "unreadable", .code = DAMAGED,
		.sentence = "{cause}",
		.advice = COPY_BACK OR_BEFORE,
	},
	[UNS_FOUND_RECORD_CRC_DIFFERS] = {
		.name = "record_crc_differs", .check = "crc", .code = DAMAGED,
		.sentence = "{file.name}[ (rank {rank})]: record {record}[ of tensor {tensor}], {bytes} bytes at {at}, has CRC {found}, the archive says {expected}: it was damaged after it was saved",
		.advice = COPY_BACK OR_BEFORE,
	},
	[UNS_FOUND_ITEM_CRC_DIFFERS] = {
		.name = "item_crc_differs", .check = "crc", .code = DAMAGED,
		.sentence = "{file.name}[ (rank {rank})]: tensor {tensor}, decompressed, has CRC {found}, its item says {expected}: it was damaged after it was saved",
		.advice = COPY_BACK OR_BEFORE,
	},
	[UNS_FOUND_NOT_FINITE] = {
		.name = "not_finite", .check = "not_finite", .code = DAMAGED,
		.sentence = "{what} has [{nans} {nans|NaN|NaNs}[{?infs} and ]][{infs} {infs|infinity|infinities}] among its {n} elements, the first is element {first}, in {file.name}[ (rank {rank})]: training diverged, or the file was damaged",
		.advice = "go on from a checkpoint before that",
	},
	[UNS_FOUND_MORE_NOT_FINITE] = {
		.name = "more_not_finite", .check = "not_finite", .code = DAMAGED,
		.sentence = "{n} more tensors of {checkpoint} are not finite either: [{nans} {nans|NaN|NaNs}[{?infs} and ]][{infs} {infs|infinity|infinities}] in all",
	},
	[UNS_FOUND_FP32_COPY_DIFFERS] = {
		.name = "fp32_copy_differs", .check = "master", .code = DAMAGED,
		.sentence = "weight {tensor} is not its fp32 copy rounded to {dtype} in {n} of {total} elements: element {first} is {found} in {file.name}[ (rank {rank})], and {exact} of {other_file.name}[ (rank {other_rank})] rounds to {expected}; one of the files is of another save or was changed",
		.advice = ": copy both back from the training machine, or take the fp32 copies alone (view weights-fp32)",
	},
	[UNS_FOUND_MORE_FP32_COPIES_DIFFER] = {
		.name = "more_fp32_copies_differ", .check = "master", .code = DAMAGED,
		.sentence = "{n} more weights of {checkpoint} are not their fp32 copies rounded either",
	},
	[UNS_FOUND_NO_CRCS] = {
		.name = "no_crcs", .check = "no_crc", .severity = UNS_NOTE,
		.sentence = "{n} {n|file|files} of {checkpoint} recorded no CRCs of data (set_crc32_options(False)), the first is {file.name}: damage in them cannot be told",
	},
};

const struct uns_finding_words *uns_finding_words(enum uns_finding_id id)
{
	return &words[id];
}

const char *uns_finding_general_advice(int code)
{
	return code == INCOMPLETE ? COPY_BACK OR_BEFORE : NULL;
}
