/* Every kind of finding with its words: the only place that has words for damage. Programs know a
 * finding by its name, which stays as it is; the words may change at any time, as only people read them.
 *
 *     SECTION(title of the rows that follow)
 *     KIND(ID, name, code, sentence, .advice = what to do, .check = its name for `unshard check`,
 *          .cause = how it comes about, .help = what to do; both only for `unshard explain` and docs/findings.md)
 *
 * How a sentence and its advice are written, and what is true of a kind without .advice or .check, is in
 * finding.h (struct uns_finding_words), which makes the enum of these rows. finding_words.c makes the table
 * of them and defines what they spell in capitals. A row becomes an entry of the manual. */

SECTION("a file, or a part of one, that its parser cannot read")
KIND(PART_UNREADABLE, part_unreadable, DAMAGED, "{cause}", .help = COPY_ALL)
KIND(FILE_UNREADABLE, file_unreadable, DAMAGED, "{file}: {cause}", .help = COPY_ALL)
KIND(TENSOR_UNREADABLE, tensor_unreadable, DAMAGED, "{file}: {tensor}: {cause}", .help = COPY_ALL)
KIND(ITEM_UNREADABLE, item_unreadable, DAMAGED, "{file}[ (rank {rank})]: {tensor}: {cause}",
     .advice = COPY_BACK OR_BEFORE)
KIND(ITEM_UNKNOWN, item_unknown, UNKNOWN,
     "{file}[ (rank {rank})]: {tensor}: {cause}[, and {more} more {more|item|items} of the file cannot be read]",
     .help = WRITER_READS)
KIND(ITEMS_UNREADABLE, items_unreadable, DAMAGED,
     "{file}[ (rank {rank})]: {tensor}[ and {more} more {more|item|items}] cannot be read: the file is another rank's, of another save, or damaged; the first: {cause}",
     .advice = COPY_BACK OR_BEFORE)
KIND(ITEM_FILE_MISSING, item_file_missing, INCOMPLETE, "[{tensor}: ]{file} is missing", .advice = COPY_BACK)
KIND(ITEM_CUT, item_cut, DAMAGED, "[{tensor}: ]{file} is truncated: expected at least {expected} bytes, found {found}",
     .advice = COPY_AGAIN)
KIND(ITEM_TOO_LARGE, item_too_large, UNKNOWN,
     "[{tensor}: ]{file}: an object has {found} bytes; unshard reads at most {expected}[ (and {more} more {more|item|items} of the file cannot be read)]",
     .help = WRITER_READS)
KIND(HOLDS_NOTHING, holds_nothing, INCOMPLETE,
     "it holds neither a model's tensors nor an optimizer's: no view can show anything of it", .help = COPY_ALL)
KIND(FILE_MISSING, file_missing, INCOMPLETE, "{file} is missing")
KIND(WEIGHTS_FILE_MISSING, weights_file_missing, INCOMPLETE, "{file} is missing", .advice = ": " COPY_BACK)

SECTION("shards that do not hold every element of a tensor exactly once")
KIND(SHARD_MISSING, shard_missing, INCOMPLETE,
     "{file} is missing: it holds [rank {rank}'s|a] piece of {tensor} (shape {shape})", .advice = COPY_BACK)
KIND(SHARD_IS_NO_FILE, shard_is_no_file, DAMAGED,
     "{file} is not a regular file (a link that leads out of SOURCE is not followed): it should hold [rank {rank}'s|a] piece of {tensor} (shape {shape})",
     .help = "if it is a link to a directory that you trust, add -o follow=DIRECTORY; otherwise " COPY_BACK)
KIND(SHARD_CUT, shard_cut, DAMAGED,
     "{file} is truncated: expected at least {expected} bytes, found {found}; [rank {rank}'s|a] piece of {tensor} (shape {shape}) is incomplete",
     .advice = COPY_AGAIN)
KIND(COPIES_DIFFER_IN_LENGTH, copies_differ_in_length, DAMAGED,
     "{tensor}: two copies of one piece have different lengths ({expected} bytes in {other_file}, {found} in {file})",
     .help = COPY_ALL)
KIND(TENSOR_HAS_A_HOLE, tensor_has_a_hole, DAMAGED,
     "{tensor}: [{unit}s {first} to {last} of {total} are|{unit} {first} of {total} is] in no shard[ (found {n_ranks|rank|ranks} {ranks}[; file {file.name} is missing[, and {more} more]])|[ (file {file.name} is missing[, and {more} more])]]",
     .help = COPY_ALL)
KIND(TENSOR_HAS_A_HOLE_BEHIND, tensor_has_a_hole_behind, DAMAGED,
     "{tensor} (shape {shape}): a piece after element {first} of {total} is in no shard", .help = COPY_ALL)
KIND(SHARDS_OVERLAP, shards_overlap, DAMAGED,
     "{tensor}: two shards hold the same elements (from {unit} {first} on): one of {file}, one of {other_file}",
     .help = COPY_ALL)
KIND(SHARDS_INTERLEAVE, shards_interleave, UNKNOWN,
     "{tensor}: its {n} shards interleave too much for unshard to check that they hold every element once",
     .help = WRITER_READS)
KIND(SHARDS_OF_TWO_KINDS, shards_of_two_kinds, UNKNOWN,
     "{tensor}: some of its shards hold boxes and others flat ranges, which unshard does not read together",
     .help = WRITER_READS)
KIND(TENSORS_NOT_COVERED, tensors_not_covered, DAMAGED,
     "{cause}[ (and {more} more {more|tensor is|tensors are} like it)]",
     .advice = "copy the files again from the training machine" OR_BEFORE)
KIND(NO_WEIGHTS, no_weights, UNKNOWN, "{checkpoint} holds no model weights",
     .help = "if they are below another key, name it with -o weights_key=KEY; otherwise look for them in another checkpoint",
     .cause = "the checkpoint holds an optimizer or other state only, or its weights are below another key")

SECTION("torch distributed checkpoints")
KIND(METADATA_MISSING, metadata_missing, INCOMPLETE,
     "{file} is missing[ ({torn} was found: the save was interrupted)]: the save did not finish, or the file was not copied; without it the .distcp files cannot be read")
KIND(RANK_METADATA_MISSING, rank_metadata_missing, INCOMPLETE, "{file} is missing: what rank {rank} saved is not known",
     .advice = COPY_BACK)
KIND(RANK_METADATA_OF_OTHER, rank_metadata_of_other, DAMAGED,
     "{file} names {found}, which rank {rank} did not write: it is another rank's metadata under this name, and rank {rank} would load that rank's data",
     .advice = "copy the directory's .metadata files again from the training machine",
     .cause = "the files of two ranks were exchanged or copied over each other")
KIND(SHARD_NOT_NAMED, shard_not_named, NOTE,
     "{file}[ and {more} more {more|shard|shards}] {more|is|are} named by no metadata: nothing loads {more|it|them}",
     .advice = "; it is probably left over from another save of another number of ranks, and can be removed",
     .check = "stale",
     .cause = "another save, of more ranks, was written into the directory before, or a file was copied there")
KIND(TRANSFORM_UNKNOWN, transform_unknown, UNKNOWN,
     "{file}: items were saved through the transform \"{found}\"{n|| and others}, which unshard cannot undo; it knows {expected} only",
     .help = WRITER_READS)
KIND(TENSORS_NOT_PLAIN, tensors_not_plain, UNKNOWN,
     "{file}: {tensor}[ and {more} more are| is] {found}: unshard does not know what the bytes mean",
     .advice = "; the view dcp shows the files unchanged, for the program that wrote them")
KIND(TORCH_FILE_LEGACY, torch_file_legacy, UNKNOWN,
     "{file} has the form of torch before 1.6 (not a zip archive), which unshard does not read",
     .advice = ": load it with torch.load, save it again with torch.save")
KIND(FILE_IS_SHOWN, file_is_shown, UNKNOWN, "a checkpoint that is one file: this view shows the file unchanged",
     .advice = "", .help = NOTHING_TO_DO)
KIND(WRAPPERS_LEFT_OUT, wrappers_left_out, NOTE,
     "{n} {n|tensor is|tensors are} shown without the part of the name that a wrapper module added ({found} in {tensor}), as torch's get_model_state_dict names them",
     .help = NOTHING_TO_DO)
KIND(ITEM_NOT_SAVED, item_not_saved, DAMAGED, "{file}: {tensor} is listed but was not saved", .help = COPY_ALL)
KIND(HYPER_IN_PARTS, hyper_in_parts, UNKNOWN,
     "{file}: the hyper-parameter {tensor} was saved in several pieces; expected one", .help = WRITER_READS)
KIND(HYPER_NOT_ONE_NUMBER, hyper_not_one_number, UNKNOWN, "{file}: the hyper-parameter {tensor} is not one number",
     .help = WRITER_READS)
KIND(WEIGHT_NOT_PLANNED, weight_not_planned, DAMAGED,
     "{file}: {tensor} is named like a weight, but planner_data has no entry for it", .help = COPY_ALL)
KIND(OPTIMIZER_IS_NUMBERED, optimizer_is_numbered, UNKNOWN,
     "{checkpoint}: the optimizer's parameters have numbers in place of names, and no file records which parameter has which number",
     .advice = "resume from the view full or dcp, which keep the numbers")
KIND(NUMBERED_STATE_UNLIKE, numbered_state_unlike, UNKNOWN,
     "{file}: the optimizer's parameters have numbers in place of names, and no weight has a state of the shape of {tensor}, {found}[ and of {more} more]: it may be one rank's part, which FSDP1's optimizer.state_dict() returns",
     .advice = "save what torch.distributed.checkpoint.state_dict.get_optimizer_state_dict returns")
KIND(NO_TENSOR_BELOW_KEY, no_tensor_below_key, INCOMPLETE,
     "{file}: no tensor is below the key \"{expected}\"; the first tensor of the file is {found}",
     .advice = "name the right key with -o weights_key=KEY", .cause = "the key is another one in this file")
KIND(WEIGHTS_BELOW_KEYS, weights_below_keys, NOTE,
     "{file}: weights are below several keys, \"{what}\" and \"{other}\" among them; they are shown together, with the key in front of each name",
     .advice = ". -o weights_key={what} shows those of one key, under their own names")
KIND(GROUP_MISSING, group_missing, DAMAGED, "{file}: param group {group} of {optimizer} is missing", .help = COPY_ALL)
KIND(GROUP_UNLISTED, group_unlisted, DAMAGED,
     "{file}: param group {group} of {optimizer} does not record which parameters are in it", .help = COPY_ALL)
KIND(GROUP_IS_MIXED, group_is_mixed, UNKNOWN,
     "{file}: param group {group} of {optimizer} lists its parameters neither all by name nor all by number",
     .help = WRITER_READS)
KIND(HYPERS_TOO_DIVERSE, hypers_too_diverse, UNKNOWN,
     "{file}: parameters have more than {expected} different sets of hyper-parameters, the most "
     "that unshard sorts into param groups",
     .help = WRITER_READS)
KIND(HYPERS_PER_PARAMETER, hypers_per_parameter, NOTE,
     "{file}: hyper-parameters are stored with each parameter; parameters with equal ones are shown as one param group ({n} {n|group|groups})",
     .help = NOTHING_TO_DO)
KIND(MEGATRON_NO_FORMAT, megatron_no_format, INCOMPLETE,
     "{file} is missing: Megatron-Core takes a directory without it for no distributed checkpoint", .advice = COPY_BACK)
KIND(MEGATRON_OPTIMIZER, megatron_optimizer, UNKNOWN,
     "common.pt does not have the param groups of Megatron-Core's optimizer: only the view dcp shows the optimizer, unchanged",
     .help = OTHER_VIEW)
KIND(MEGATRON_RANKS_OPTIMIZER, megatron_ranks_optimizer, UNKNOWN,
     "unshard does not read the optimizer of Megatron-LM's files of model-parallel ranks (--ckpt-format torch): only views of weights are shown",
     .advice = "to resume elsewhere, let Megatron-LM load the checkpoint and save it with --ckpt-format torch_dist")
KIND(MEGATRON_NOT_CONVERTED, megatron_not_converted, UNKNOWN,
     "Megatron-Core's tensors cannot be converted for a training that resumes from them: {cause}", .help = OTHER_VIEW)
KIND(MEGATRON_NOT_RESHARDED, megatron_not_resharded, UNKNOWN,
     "it cannot be shown as a directory that Megatron-Core loads at another parallelism: {cause}", .help = OTHER_VIEW)
KIND(NOT_MEGATRON, not_megatron, UNKNOWN, "{checkpoint} is no checkpoint of Megatron-Core", .advice = "",
     .help = OTHER_VIEW)
KIND(MEGATRON_BUCKETS, megatron_buckets, UNKNOWN,
     "Megatron-Core saved its optimizer in buckets (dp_reshardable), which do not record the names of the parameters, and they cannot be derived: {cause}. Only the view dcp shows the optimizer, unchanged",
     .advice =
	     "to resume elsewhere, let Megatron save with --dist-ckpt-optim-fully-reshardable (distrib_optim_sharding_type fully_reshardable)")
KIND(MEGATRON_GATHERED, megatron_gathered, UNKNOWN,
     "Megatron-Core saved its optimizer as one object for each group of ranks (dp_zero_gather_scatter), here {name}, and unshard does not take it apart: only the view dcp shows the optimizer, unchanged",
     .advice =
	     "to resume elsewhere, let Megatron load the checkpoint and save it with --dist-ckpt-optim-fully-reshardable (before megatron-core 0.15: --ckpt-fully-parallel-save)")

KIND(MEGATRON_BUCKETS_DISPROVEN, megatron_buckets_disproven, UNKNOWN,
     "the names that Megatron-Core's rules give to its optimizer's buckets (dp_reshardable) are wrong or the checkpoint is damaged: the fp32 copy[ that rank {rank} saved] of {tensor}, rounded, is not the weight[ at element {element}][; it is in {file}]",
     .advice =
	     "use the view weights. If the training trained all parameters with Megatron-Core's own modules, report it")
KIND(MEGATRON_BUCKETS_TWICE, megatron_buckets_twice, UNKNOWN,
     "the names that Megatron-Core's rules give to its optimizer's buckets (dp_reshardable) cannot be proven: {tensor} and {other_tensor} have equal weights everywhere{what}, and each one's states could be the other's",
     .advice =
	     "use a later checkpoint, where training has made them different, or let Megatron save with --dist-ckpt-optim-fully-reshardable")

SECTION("DeepSpeed")
KIND(ZERO_MODEL_FILE_MISSING, zero_model_file_missing, INCOMPLETE,
     "no model file was found ({expected}, or one for each rank): only a model file records which parameters the optimizer's shards hold")
KIND(ZERO_OPTIMIZER_MISSING, zero_optimizer_missing, INCOMPLETE,
     "no optimizer shards ({expected}) were found for the parameters that {file} lists: the save did not finish, or the shards were not copied")
KIND(ZERO_FROZEN_SLICES_MISSING, zero_frozen_slices_missing, INCOMPLETE,
     "{file} (data-parallel rank {rank}) is missing: expected a model file of each of {expected} ranks, which hold slices of the frozen parameters",
     .advice = COPY_BACK)
KIND(ZERO_MODEL_FILES_MISSING, zero_model_files_missing, NOTE,
     "{file} (data-parallel rank {rank}) is missing: expected a model file of each of {expected} ranks; nothing that is needed is in it",
     .help = NOTHING_TO_DO)
KIND(ZERO_WEIGHTS_ROUNDED, zero_weights_rounded, NOTE,
     "{n} {n|weight is|weights are} made from the optimizer's fp32 copies, because they are not saved in 16 bits (this is normal with ZeRO stage 3)",
     .help = NOTHING_TO_DO)
KIND(ZERO_TENSOR_PARALLEL, zero_tensor_parallel, UNKNOWN,
     "{checkpoint} holds tensor-parallel slices of {n} model-parallel ranks, and does not record how each parameter was split: this is not supported",
     .help = WRITER_READS)
KIND(ZERO_MAP_VERSION, zero_map_version, UNKNOWN,
     "{file}: {by} stored its maps in version {found}, and unshard reads version {expected}", .help = WRITER_READS)
KIND(ZERO_MAP_UNKNOWN, zero_map_unknown, UNKNOWN,
     "{file}: the map that says how {by} cut {tensor} cannot be used at rank {rank}: {cause}", .help = WRITER_READS)
KIND(ZERO_MAP_COVERS_NOT, zero_map_covers_not, DAMAGED,
     "{file}: the map that says how {by} cut {tensor} does not cover [rank {rank}'s slice|it][: expected {expected} elements, found {found}]",
     .advice = COPY_AGAIN)
KIND(ZERO_MAP_OVERLAPS, zero_map_overlaps, DAMAGED,
     "{file}: the map that says how {by} cut {tensor} gives an element of rank {rank} to rank {other} too",
     .advice = COPY_AGAIN)
KIND(ZERO_MAPS_DIFFER, zero_maps_differ, DAMAGED,
     "{file} (rank {rank}): the map that says how tensor parallelism cut {tensor} is not that of {other_file.name}: the files are of different saves",
     .advice = COPY_AGAIN)
KIND(ZERO_SLICE_UNMAPPED, zero_slice_unmapped, UNKNOWN, "{file} (rank {rank}): no map says how {tensor} was cut",
     .help = WRITER_READS)
KIND(ZERO_SLICE_SHAPE, zero_slice_shape, DAMAGED,
     "{file} (rank {rank}): {tensor} has shape {found}, but the map of its slices says {expected}",
     .advice = COPY_AGAIN)
KIND(ZERO_SLICE_ABSENT, zero_slice_absent, DAMAGED, "{file} (rank {rank}): the rank's slice of {tensor} is not in it",
     .advice = COPY_AGAIN)
KIND(ZERO_LAYER_MISSING, zero_layer_missing, INCOMPLETE,
     "the optimizer holds {tensor}, but no layer_*-model_states.pt does: a layer's file is missing")
KIND(ZERO_EXPERTS, zero_experts, UNKNOWN,
     "{file}: experts in files of their own are not supported together with pipelines and tensor parallelism",
     .help = WRITER_READS)
KIND(ZERO_AUTOEP, zero_autoep, UNKNOWN,
     "{file}: DeepSpeed's AutoEP shared out the experts (ds_autoep_layers), and {cause}: this is not supported",
     .help = WRITER_READS)
KIND(ZERO_EXPERTS_UNNAMED, zero_experts_unnamed, UNKNOWN,
     "the optimizer is not available ({file}): ZeRO stage 0 numbers parameters, and with experts each rank that shares them has numbers of its own",
     .advice = "use the views weights and world-N, or train at stage 1 or 2")
KIND(ZERO_EXPERT_MISSING, zero_expert_missing, INCOMPLETE,
     "{file} is missing: it holds expert {number} of {expected} of layer {layer} of experts", .advice = COPY_BACK)
KIND(ZERO_EXPERT_FOREIGN, zero_expert_foreign, DAMAGED,
     "{file} should hold expert {number} of layer {layer} of experts, but holds {tensor}: it is another checkpoint's",
     .advice = COPY_BACK)
KIND(ZERO_EXPERT_SHAPE, zero_expert_shape, DAMAGED,
     "{file} (expert {number} of layer {layer} of experts): {tensor} has shape {found}, but the optimizer's shards hold one of {expected}: it is another checkpoint's",
     .advice = COPY_BACK)
KIND(ZERO_EXPERT_STALE, zero_expert_stale, DAMAGED,
     "{file} (expert {number} of layer {layer} of experts): {tensor} is not the fp32 copy in {other_file}, rounded: the files are of different saves",
     .advice = COPY_BACK)
KIND(ZERO_HYPERS_NOT_SAVED, zero_hypers_not_saved, NOTE,
     "{file}: saved with elastic_checkpoint, which leaves out the param groups' hyper-parameters (learning rate, weight decay): training that resumes from the view universal takes those of its own config, and the other views cannot hold the optimizer",
     .help = "resume from the view universal, with the hyper-parameters in DeepSpeed's config")
KIND(ZERO_SUB_GROUPS_UNASSIGNED, zero_sub_groups_unassigned, UNKNOWN,
     "{file}: {expected} param groups in {found} sub-groups, and nothing records which sub-group belongs to which group",
     .help = WRITER_READS)
KIND(ZERO_WEIGHT_MISSING, zero_weight_missing, INCOMPLETE,
     "{file}: {tensor} is in neither the model's state dict, nor the optimizer, nor the frozen parameters: a file is missing or damaged")
KIND(ZERO_GATHERED_UNREADABLE, zero_gathered_unreadable, NOTE,
     "{file} is not used: {cause}; the weights are taken from the optimizer's fp32 copies instead",
     .help = "copy the file again from the training machine if you want the weights that it holds")
KIND(ZERO_GATHERED_INCOMPLETE, zero_gathered_incomplete, NOTE,
     "{file} is not used: it does not hold {tensor} in its full shape; the weights are taken from the optimizer's fp32 copies instead",
     .help = "copy the file again from the training machine if you want the weights that it holds")
KIND(ZERO_STATE_MISSING, zero_state_missing, INCOMPLETE, "{file} is missing, and other parameters have such a file")
KIND(ZERO_STATE_SHAPE, zero_state_shape, DAMAGED, "{file}: the tensor has shape {found}; expected {expected}",
     .help = COPY_ALL)
KIND(ZERO_PARAMETER_MISSING, zero_parameter_missing, INCOMPLETE, "{file} is missing, and {other_file} lists it")
KIND(ZERO_FROZEN_SLICE_ABSENT, zero_frozen_slice_absent, DAMAGED, "{file}: frozen_param_fragments has no {tensor}",
     .help = COPY_ALL)
KIND(ZERO_FROZEN_SLICE_STRIDED, zero_frozen_slice_strided, UNKNOWN, "{file}: the slice of {tensor} is not contiguous",
     .help = WRITER_READS)
KIND(ZERO_FROZEN_SLICE_SIZE, zero_frozen_slice_size, DAMAGED,
     "{file}: rank {rank}'s slice of the frozen {tensor} has {found} elements; expected {expected} (its shape cut for {n} ranks)",
     .help = COPY_ALL)
KIND(ZERO_FROZEN_TYPES_DIFFER, zero_frozen_types_differ, DAMAGED,
     "ranks hold the frozen {tensor} in different dtypes, or not at all", .help = COPY_ALL)
KIND(ZERO_GROUP_TOO_LARGE, zero_group_too_large, DAMAGED, "{file}: group {group} has more {what} than unshard reads",
     .help = COPY_ALL)
KIND(ZERO_PARTITION_SIZE, zero_partition_size, DAMAGED,
     "{file}: {part} of group {group}, rank {rank}, has {found} elements; expected {expected} of the {total} that param_shapes of {other_file} add up to over {n} ranks: the files are damaged or of different checkpoints",
     .help = COPY_ALL)
KIND(ZERO_PARTITION_PADDING, zero_partition_padding, DAMAGED,
     "{file}: group {group} is recorded to end in {found} elements of padding; expected {expected} for rank {rank} of {n}: the file is another rank's, or of another checkpoint",
     .help = COPY_ALL)
KIND(ZERO_PARTITION_TYPE, zero_partition_type, DAMAGED,
     "{file}: {part} of group {group}, rank {rank}, is {found}; expected {expected} as in the other ranks' files: the files are of different checkpoints",
     .help = COPY_ALL)
KIND(ZERO_PARTITION_STATE_ABSENT, zero_partition_state_absent, DAMAGED,
     "{file}: the optimizer's {part} of group {group}, rank {rank}, is missing; other ranks' files have it: the file is damaged or of another checkpoint",
     .help = COPY_ALL)
KIND(ZERO_PARTITIONS_SUM, zero_partitions_sum, DAMAGED,
     "group {group}: param_shapes of {file} add up to {expected} elements, but the partitions of {n} ranks to {found}: the files are damaged or of different checkpoints",
     .help = COPY_ALL)
KIND(ZERO_PARAMETER_TWICE, zero_parameter_twice, DAMAGED,
     "{file} lists {tensor}, and so does another param group or another model-parallel rank", .help = COPY_ALL)
KIND(ZERO_GROUPS_DIFFER, zero_groups_differ, DAMAGED,
     "{file} lists {expected} groups of parameters, but the optimizer's shards hold {found}: the files are of different checkpoints",
     .help = COPY_ALL)
KIND(ZERO_RANKS_DIFFER, zero_ranks_differ, DAMAGED,
     "{file}: stage {stage}, {groups} param groups, sharded over {cut} ranks; another rank's file has stage {other_stage}, {other_groups} param groups, sharded over {other_cut} ranks: the files are of different checkpoints",
     .help = COPY_ALL)
KIND(ZERO_VERSIONS_DIFFER, zero_versions_differ, DAMAGED,
     "{file} was saved by DeepSpeed {found}, another rank's file by {expected}: the files are of different checkpoints",
     .help = COPY_ALL)
KIND(ZERO_SHARDS_MISSING, zero_shards_missing, INCOMPLETE,
     "{file} (data-parallel rank {rank}) is missing[{?more}, and others after it]: expected the optimizer's shards of {expected} ranks, found {found}",
     .advice = COPY_BACK)
KIND(ZERO_GROUPS_CUT_UNEVENLY, zero_groups_cut_unevenly, UNKNOWN,
     "{file}: param group {group} is sharded over {found} of {expected} ranks; this is read of experts alone, and not with round_robin_gradients",
     .help = WRITER_READS)
KIND(ZERO_SHARD_TOO_MANY, zero_shard_too_many, DAMAGED,
     "the optimizer is sharded over {expected} ranks, and {file} would be the shard of rank {rank}: the file was renamed, or is of another checkpoint",
     .help = "move the file away if it is of another checkpoint, or give it back its own name")
KIND(ZERO_PARTITIONS_REPEATED, zero_partitions_repeated, UNKNOWN,
     "the optimizer is sharded over {expected} ranks, but shards of {found} ranks were found (such as {file}): partitions that are kept several times (MiCS, hpZ) are not supported",
     .help = WRITER_READS)
KIND(ZERO_TOO_MANY_RANKS, zero_too_many_ranks, DAMAGED,
     "the optimizer's shards record that it is sharded over {found} ranks, more than unshard reads", .help = COPY_ALL)
KIND(ZERO_RANK_TOO_HIGH, zero_rank_too_high, UNKNOWN, "{file}: unshard reads the shards of at most {expected} ranks",
     .help = WRITER_READS)
KIND(ZERO_NUMBER_AMBIGUOUS, zero_number_ambiguous, UNKNOWN,
     "the optimizer is not available ({file}): ZeRO stage 0 does not save parameter names, and {found} weights match parameter {number} of the optimizer equally well",
     .advice = "use the view weights, or train at stage 1, 2 or 3")
KIND(ZERO_FILE_RENAMED, zero_file_renamed, DAMAGED,
     "{file}: the file was saved as {found}: it was renamed, or is another rank's",
     .advice = "copy the right one back from the training machine",
     .cause = "the file was renamed, or is another rank's")
KIND(ZERO_FILE_MISSING, zero_file_missing, INCOMPLETE, "{file}: the file is missing", .advice = COPY_BACK)
KIND(ZERO_NOT_THE_FP32_COPY, zero_not_the_fp32_copy, DAMAGED,
     "{file} differs from the fp32 copy of {tensor} in {other_file}: ds_to_universal mixes parameters up if the training had round_robin_gradients on",
     .advice = "use the view universal of the checkpoint that this one was made from",
     .cause = "the training had round_robin_gradients on, or the files are of different saves")
KIND(ZERO_LATEST_STALE, zero_latest_stale, ELSEWHERE,
     "{file} names {found}, and no such tag exists: DeepSpeed finds no checkpoint to resume from",
     .advice = "copy that tag back from the training machine, or write {tag} into the file", .check = "tracker")
KIND(ZERO_SEVERAL_TAGS, zero_several_tags, NOTE, "{checkpoint} holds {n} tags; this is {tag}",
     .advice = ". Give another tag's directory as SOURCE to see it")
KIND(ZERO_STEPS_DIFFER, zero_steps_differ, DAMAGED,
     "{file}: the optimizer's step of group {group} is {found} here, but {expected} in {other_file.name}",
     .advice = OF_TWO_SAVES)
KIND(ZERO_COUNTERS_DIFFER, zero_counters_differ, DAMAGED,
     "{file}: global_steps is {found} here, but {expected} in {other_file.name}[ (and {more} more {more|file|files} likewise)]",
     .advice = OF_TWO_SAVES, .check = "mixed")
KIND(ZERO_STATE_OF_RANKS, zero_state_of_ranks, NOTE,
     "{state} of group {group} differs between the ranks of {checkpoint}: it describes the rank's shard, not a parameter, and no view shows it",
     .help = NOTHING_TO_DO)
KIND(ZERO_NO_TAG, zero_no_tag, INCOMPLETE, "no tag directory with shards was found")

SECTION("files of ranks")
KIND(RANK_TENSOR_DAMAGED, rank_tensor_damaged, DAMAGED, "{file}: {tensor}: {cause}[ (and {more} more of its tensors)]",
     .advice = COPY_AGAIN)
KIND(RANK_TENSOR_UNKNOWN, rank_tensor_unknown, UNKNOWN, "{file}: {tensor}: {cause}[ (and {more} more of its tensors)]",
     .help = WRITER_READS)
KIND(RANK_TENSOR_MISTYPED, rank_tensor_mistyped, DAMAGED,
     "{file}: dtype mismatch in {tensor}: declared {expected}, stored {found}[ (and {more} more of its tensors)]",
     .advice = ONE_DTYPE)
KIND(RANK_PART_SHAPE, rank_part_shape, DAMAGED,
     "{file}: {tensor}: this rank holds a piece of shape {found}; expected {expected}[ (and {more} more of its tensors)]",
     .advice = COPY_AGAIN)
KIND(RANK_TYPES_DIFFER, rank_types_differ, DAMAGED,
     "{file}: dtype mismatch in {tensor}: {found} here, {expected} in {other_file.name}[ (and {more} more of its tensors)]",
     .advice = ONE_DTYPE)
KIND(RANK_SHAPES_DIFFER, rank_shapes_differ, DAMAGED,
     "{file}: {tensor} is a {found_kind} tensor of shape {found} here, but a {expected_kind} one of shape {expected} in {other_file.name}[ (and {more} more of its tensors)]",
     .advice = COPY_AGAIN OR_BEFORE)
KIND(RANK_MESHES_DIFFER, rank_meshes_differ, DAMAGED,
     "{file}: {tensor} is sharded over a device mesh of shape {found} here, of shape {expected} in {other_file.name}[ (and {more} more of its tensors)]",
     .advice = COPY_AGAIN OR_BEFORE)
KIND(RANK_TENSOR_ABSENT, rank_tensor_absent, DAMAGED,
     "{file}: {tensor} is missing, and {other_file.name} has it[ (and {more} more of its tensors)]",
     .advice = COPY_AGAIN OR_BEFORE)
KIND(RANK_TENSOR_ONLY_THERE, rank_tensor_only_there, DAMAGED,
     "{file}: {tensor} is in this file, but not in {other_file.name}[ (and {more} more of its tensors)]",
     .advice = COPY_AGAIN OR_BEFORE)
KIND(RANK_STEPS_DIFFER, rank_steps_differ, DAMAGED,
     "{file}: {tensor} is {found} here, but {expected} in {other_file.name}[ (and {more} more of its tensors)]",
     .advice = OF_TWO_SAVES)
KIND(RANK_GROUPS_DIFFER, rank_groups_differ, DAMAGED,
     "{file}: {key} of param group {group} is {found} here, but {expected} in {other_file.name}[ (and {more} more of its tensors)]",
     .advice = OF_TWO_SAVES)
KIND(RANK_SCHEDULERS_DIFFER, rank_schedulers_differ, DAMAGED,
     "{file}: {key} of the learning rate scheduler is {found} here, but {expected} in {other_file.name}[ (and {more} more of its tensors)]",
     .advice = OF_TWO_SAVES)
KIND(RANK_SCHEDULER_ONLY_SOME, rank_scheduler_only_some, DAMAGED,
     "{file}: it has {found} learning rate scheduler, and {other_file.name} has {expected}[ (and {more} more of its tensors)]",
     .advice = OF_TWO_SAVES)
KIND(RANK_REPLICAS_DIFFER, rank_replicas_differ, DAMAGED,
     "{file}: {tensor} differs here from the copy of the same elements in {other_file.name}[ (and {more} more of its tensors)]",
     .advice = "move the file of the wrong rank away, and unshard reads the other copy")
KIND(RANK_PLAIN_TENSORS_DIFFER, rank_plain_tensors_differ, UNKNOWN,
     "{file}: {tensor} differs from the tensor of that name and shape in {other_file}, and neither file records which piece of the tensor it holds[ (and {more} more of its tensors)]",
     .help = "save DTensors or ShardedTensors, which record the piece that they hold; or load the files with the program that wrote them")
KIND(RANK_MORE_FILES, rank_more_files, DAMAGED, "{n} more {n|file has|files have} tensors with problems like these",
     .help = COPY_ALL)
KIND(RANK_FILE_COPIED, rank_file_copied, DAMAGED,
     "{file} was written by rank {found}, as {other_file.name} was: rank {rank}'s own file is missing",
     .advice = COPY_BACK)
KIND(RANK_FILE_RENAMED, rank_file_renamed, DAMAGED,
     "{file} is named rank {rank}, but its content is rank {found}'s[ ({more} other {more|file|files} likewise)]: the mount shows the right data, a trainer that resumes from these files would load another rank's",
     .advice = "rename the files back, or copy them again from the training machine",
     .cause = "the files were renamed or exchanged")
KIND(RANK_BUFFERS_DIFFER, rank_buffers_differ, NOTE,
     "{tensor} differs between ranks[ (and so {more|does|do} {more} more {more|buffer|buffers})]; it is taken from {file}, not {other_file.name}",
     .help = "nothing, unless the buffer should be equal on all ranks")
KIND(RANK_FILE_MISSING, rank_file_missing, INCOMPLETE,
     "{file} is missing: it holds rank {rank}'s pieces[{?copies} (unshard reads the copies that other ranks hold)]",
     .advice = COPY_BACK)
KIND(RANK_FILES_MISSING, rank_files_missing, INCOMPLETE,
     "{file} and {more} more {more|file|files} are missing: they hold the pieces of ranks {ranks}[{?copies} (unshard reads the copies that other ranks hold)]",
     .advice = "copy them back from the training machine")
KIND(RANK_FILE_UNREADABLE, rank_file_unreadable, DAMAGED,
     "{file}: {cause}[{?copies} (unshard reads the copies that other ranks hold)]", .advice = COPY_AGAIN)
KIND(RANK_FILE_UNKNOWN, rank_file_unknown, UNKNOWN,
     "{file}: {cause}[{?copies} (unshard reads the copies that other ranks hold)]", .help = WRITER_READS)
KIND(RANK_FILES_UNREADABLE, rank_files_unreadable, DAMAGED, "{n} more {n|file|files} cannot be read",
     .advice = "copy them again from the training machine")
KIND(RANK_NO_TENSORS, rank_no_tensors, UNKNOWN, "{file}: the file holds no tensors by name", .help = WRITER_READS)
KIND(RANK_NUMBERS_UNLIKE_MODEL, rank_numbers_unlike_model, UNKNOWN,
     "the optimizer numbers {found} parameters, the model has {expected}: no file records which "
     "parameters are numbered",
     .help = WRITER_READS)
KIND(RANK_NUMBERED_SHAPE, rank_numbered_shape, DAMAGED,
     "optimizer state {tensor} has shape {found}; expected {expected}, that of {parameter}, which is the parameter of that number in the model's order",
     .help = COPY_ALL)
KIND(RANK_STATES_DIFFER_IN_LENGTH, rank_states_differ_in_length, DAMAGED,
     "{file}: {tensor} has {found} elements, but {other_tensor} has {expected}: all states of one parameter have the same length",
     .advice = COPY_AGAIN OR_BEFORE)
KIND(RANK_STATE_ABSENT, rank_state_absent, DAMAGED, "{file}: it has {other_tensor}, but no {tensor}",
     .advice = COPY_AGAIN OR_BEFORE)
KIND(RANK_STATE_SIZE, rank_state_size, DAMAGED,
     "the ranks' pieces of optimizer state {tensor} have {found} elements together; expected {expected}, those of {parameter}, which is parameter {number} in the model's order",
     .advice = "copy the ranks' files again from the training machine" OR_BEFORE)
KIND(RANK_ORDER_UNKNOWN, rank_order_unknown, DAMAGED,
     "the model's files record other ranks than their names say, so the order of the ranks' pieces of the optimizer is not known",
     .advice = "rename them back, or copy them again from the training machine")
KIND(RANK_UNIT_ABSENT, rank_unit_absent, DAMAGED,
     "rank {rank}'s file has no piece of the flat unit's {tensor}, which {file.name} has",
     .advice = COPY_AGAIN OR_BEFORE)
KIND(RANK_UNIT_LENGTH, rank_unit_length, DAMAGED,
     "{file}: {tensor} has {found} elements here, but {expected} in {other_file.name}: flat units are padded to the same length on all ranks",
     .advice = COPY_AGAIN OR_BEFORE)
KIND(RANK_UNITS_SIZE, rank_units_size, DAMAGED,
     "the optimizer's {n} flat units have {found} elements on all ranks together; expected {expected}, the model's parameters and their padding: the model's files and the optimizer's do not belong together",
     .advice = GO_BEFORE)
KIND(RANK_UNITS_UNNAMED, rank_units_unnamed, UNKNOWN,
     "the optimizer is not available: FSDP1 (use_orig_params=False) stored the model's {parameters} parameters in {n} flat units and did not record their order; the weights are available",
     .advice = "to use the optimizer, import a unit map (unshard meta import FILE), or mount with -o assume=fsdp-units")
KIND(RANK_UNITS_MAP_IS_OF_OTHER_FILES, rank_units_map_is_of_other_files, UNKNOWN,
     "the optimizer is not available: FSDP1 (use_orig_params=False) stored the model's {parameters} parameters in {n} flat units and did not record their order; the weights are available",
     .advice =
	     "the unit map was imported when the checkpoint had other files: import it again if it fits these files too",
     .cause = "files of the checkpoint changed after the unit map was imported")
KIND(RANK_UNITS_NOT_GUESSED, rank_units_not_guessed, UNKNOWN,
     "the optimizer is not available: FSDP1 (use_orig_params=False) stored the model's {parameters} parameters in {n} flat units and did not record their order; the weights are available (-o assume=fsdp-units did not find the order: {cause})",
     .help = "import a unit map (unshard meta import FILE)")
KIND(RANK_UNITS_MAP_DOES_NOT_FIT, rank_units_map_does_not_fit, DAMAGED, "{cause} (imported by unshard meta import)",
     .help = "import the unit map of this training (unshard meta import FILE)",
     .cause = "the unit map that was imported is of another training, or was edited")
KIND(RANK_UNITS_NAMED, rank_units_named, NOTE, "the names of the optimizer's states are {cause}", .help = NOTHING_TO_DO)
KIND(RANK_CONFIG_UNREADABLE, rank_config_unreadable, DAMAGED,
     "{file} [{?json}has no world_size above 0|is not a JSON object]: unshard takes the number of ranks from the names of the ranks' files",
     .advice = "copy it again from the training machine: veRL's model merger needs it",
     .cause = "the file was cut or edited")
KIND(RANK_WORLD_UNLIKE_CONFIG, rank_world_unlike_config, INCOMPLETE,
     "fsdp_config.json records {expected} ranks, but the files are of {found} ranks",
     .advice = ": copy the missing files back from the training machine")
KIND(RANK_WORLDS_MIXED, rank_worlds_mixed, DAMAGED,
     "files of saves on different numbers of ranks are mixed: {found}; no file says which save is current",
     .advice = "move the files of the other saves away, or let --repair OUT write a copy of the one that is complete")
KIND(RANK_OLD_WORLDS, rank_old_worlds, NOTE,
     "files of saves on different numbers of ranks are mixed: {found}; those of {expected} ranks are read, as fsdp_config.json records",
     .help = "nothing, if the number of ranks is right; the files of the other saves can be moved away")
KIND(RANK_MODEL_NOT_SAVED, rank_model_not_saved, NOTE,
     "{checkpoint} holds no model files: the trainer was configured not to save them",
     .help = "to have weights, configure the trainer to save the model")
KIND(RANK_MESH_UNLIKE_NAMES, rank_mesh_unlike_names, DAMAGED,
     "the model was saved by {found} ranks, but its files are named for {expected}",
     .advice = ": rename them as they were, or copy them again from the training machine")
KIND(RANK_MOMENT_MISSING, rank_moment_missing, DAMAGED,
     "the optimizer has {found} of {tensor} and no {expected}[ (and {more} more {more|parameter is|parameters are} like it)]",
     .advice = GO_BEFORE)
KIND(RANK_MOMENT_TYPES_DIFFER, rank_moment_types_differ, DAMAGED,
     "exp_avg of {tensor} is {expected}, but its exp_avg_sq is {found}[ (and {more} more {more|parameter is|parameters are} like it)]: an optimizer keeps both in one dtype",
     .advice = GO_BEFORE)

SECTION("Hugging Face")
KIND(SHARD_COUNT_UNKNOWN, shard_count_unknown, NOTE,
     "this format does not record how many shards there were: {n} were found; if the last ranks' files were lost, tensors end early",
     .help = "compare the number of files with the number of ranks of the training")
KIND(INDEX_MISSING, index_missing, INCOMPLETE,
     "{file} is missing: it is written after the files it names, so the save did not end or the copy is not complete",
     .advice = "", .help = COPY_ALL)
KIND(INDEX_NAMES_ABSENT_TENSOR, index_names_absent_tensor, DAMAGED,
     "{file} names {other_file} as the file of tensor {tensor}, and that file does not hold it[ (and {more} more)]",
     .help = COPY_ALL)
KIND(INDEX_NAMES_OTHER_FILE, index_names_other_file, DAMAGED,
     "{file} names {other_file} as the file of tensor {tensor}[ and {more} more], which {found} holds",
     .advice = "unshard export writes the model again with an index that fits", .check = "whole",
     .cause = "an exporter wrote an index that does not fit its files, or files of two saves were put together")
KIND(INDEX_OMITS_TENSOR, index_omits_tensor, DAMAGED,
     "{file} does not name tensor {tensor}[ and {more} more], which {other_file} holds: a program that goes by the index does not load it",
     .advice = "unshard export writes the model again with an index that fits", .check = "whole",
     .cause = "an exporter wrote an index that does not fit its files, or files of two saves were put together")
KIND(INDEX_OMITS_FILE, index_omits_file, NOTE,
     "{file} does not name {other_file}[ and {more} more {more|file|files}]: no program that goes by the index loads it",
     .check = "whole", .cause = "the file is of an earlier save of another number of files, or the index is",
     .help = "if tensors are missing, copy the index again; otherwise delete the file")
KIND(INDEX_SIZE_DIFFERS, index_size_differs, NOTE,
     "{file} has the total size {expected}, and its tensors have {found} bytes", .check = "whole",
     .cause = "tensors were changed, added or left out after the index was written, or the exporter counted otherwise",
     .help = "compare the model with the one that it was made from: unshard check --base BASE")
KIND(TENSOR_IN_TWO_FILES, tensor_in_two_files, DAMAGED, "tensor {tensor} is whole in both {other_file} and {file}",
     .help = "move the file away that does not belong to this save")
KIND(TENSOR_UNLIKE_IN_FILES, tensor_unlike_in_files, DAMAGED,
     "tensor {tensor} has another dtype or number of dimensions in {file} than in {other_file}", .help = COPY_ALL)
KIND(TENSOR_OFFSET_OVERFLOWS, tensor_offset_overflows, DAMAGED, "tensor {tensor}: offset overflows in {file}",
     .help = COPY_ALL)
KIND(SECOND_MODEL, second_model, NOTE,
     "{file} is a further model of this checkpoint: weights shows it in model_{model}/ or in a pipeline's component, full as "
     "pytorch_model_{model}.bin, full-fsdp as pytorch_model_fsdp_{model}.bin, dcp as it is",
     .help = NOTHING_TO_DO)
KIND(MODEL_SLICED, model_sliced, INCOMPLETE,
     "{file} has only a part of tensor {tensor}, that of one rank: accelerate before 1.15.0 saves an adapter of PEFT so "
     "under FSDP2 with FULL_STATE_DICT",
     .advice = "load the adapter from adapter_model.safetensors beside it; upgrade accelerate before training again",
     .cause = "accelerate before 1.15.0 saves an adapter of PEFT so under FSDP2 with FULL_STATE_DICT")
KIND(MODEL_MISSING, model_missing, INCOMPLETE,
     "{checkpoint} has no pytorch_model_fsdp_0: the save did not finish, or the directory was not copied")

SECTION("an optimizer, or weights, that a view cannot put together")
KIND(OPTIMIZERS_SEVERAL, optimizers_several, UNKNOWN,
     "{checkpoint} has several optimizers ({one}, {other}): DeepSpeed's engine has one", .help = OTHER_VIEW)
KIND(OPTIMIZER_STATES_UNNAMED, optimizer_states_unnamed, UNKNOWN,
     "{checkpoint} holds no optimizer state with parameter names, which DeepSpeed's universal checkpoint is made of",
     .help = OTHER_VIEW)
KIND(OPTIMIZER_STATELESS, optimizer_stateless, UNKNOWN, "the optimizer has no states yet", .help = OTHER_VIEW,
     .cause = "the optimizer has made no step yet")
KIND(OPTIMIZER_STATE_OTHER, optimizer_state_other, UNKNOWN,
     "the optimizer keeps {state} of {tensor}; a universal checkpoint has exp_avg, exp_avg_sq and step only (Adam, AdamW)",
     .help = OTHER_VIEW)
KIND(OPTIMIZER_STATE_STRAY, optimizer_state_stray, DAMAGED,
     "optimizer state {tensor} is of a parameter that no param group lists", .help = COPY_ALL)
KIND(OPTIMIZER_STATE_NO_TENSOR, optimizer_state_no_tensor, UNKNOWN,
     "optimizer state {tensor} is not {expected}: this view can show no other states", .help = OTHER_VIEW)
KIND(OPTIMIZER_STATE_MISSING, optimizer_state_missing, INCOMPLETE, "parameter {tensor} has no {state}")
KIND(OPTIMIZER_STATE_TOO_WIDE, optimizer_state_too_wide, UNKNOWN,
     "{state} of {tensor} is {found}, which does not fit into fp32", .help = OTHER_VIEW)
KIND(OPTIMIZER_STATE_SHAPE, optimizer_state_shape, DAMAGED, "{state} of {tensor} does not have the parameter's shape",
     .help = COPY_ALL)
KIND(OPTIMIZER_STATE_UNLIKE, optimizer_state_unlike, INCOMPLETE,
     "{state} of {tensor} is missing, or has another dtype or shape than the other parameters' {state} and fp32 copies")
KIND(OPTIMIZER_STATE_IS_A_NUMBER, optimizer_state_is_a_number, UNKNOWN,
     "the optimizer keeps {state} of {tensor} as one number: shards for another number of ranks have states of elements only",
     .help = OTHER_VIEW)
KIND(OPTIMIZER_WEIGHT_MISSING, optimizer_weight_missing, INCOMPLETE,
     "the optimizer has states of {tensor}, but the model has no weight of that name",
     .cause = "the model's files are another model's or not complete, or the tensor was renamed")
KIND(OPTIMIZER_STEP_NOT_ONE, optimizer_step_not_one, UNKNOWN, "step of {tensor} is not one number", .help = OTHER_VIEW)
KIND(OPTIMIZER_STEP_UNKNOWN, optimizer_step_unknown, INCOMPLETE,
     "parameter {tensor} has moments but no step, and the training step is not known",
     .advice = "set it with `unshard meta set CHECKPOINT global_step=N`",
     .cause = "the program that saved the checkpoint did not save the step")
KIND(GROUPS_MISSING, groups_missing, INCOMPLETE,
     "the optimizer's param groups were not saved, so its states cannot be put in order",
     .cause = "the program that saved the checkpoint left out the param groups, or the file was cut")
KIND(GROUPS_UNORDERED, groups_unordered, UNKNOWN,
     "hyper-parameters were saved with each parameter, in several param groups whose order is not recorded, and DeepSpeed knows groups by their order",
     .help = OTHER_VIEW)
KIND(GROUPS_SHARE_A_PARAMETER, groups_share_a_parameter, DAMAGED, "parameter {tensor} is in two param groups",
     .help = COPY_ALL)
KIND(GROUPS_WITHOUT_SETTINGS, groups_without_settings, UNKNOWN,
     "hyper-parameters of the param groups (learning rate, weight decay) were not saved, as with elastic_checkpoint",
     .advice = "only the view universal can do without them")
KIND(SETTING_UNNAMED, setting_unnamed, UNKNOWN, "a hyper-parameter has no name", .help = WRITER_READS)
KIND(OPTIMIZER_NAMES_UNKNOWN, optimizer_names_unknown, UNKNOWN,
     "{checkpoint}: the optimizer's parameters have numbers in place of names, and unshard cannot find which is which: {cause}",
     .advice = "resume without FSDP from the view full",
     .cause = "the model is of a type that unshard does not know, or the training ordered parameters itself")
KIND(OPTIMIZER_NUMBERED, optimizer_numbered, UNKNOWN,
     "{file.name} of {checkpoint} numbers its parameters, and FSDP needs their names",
     .advice = "resume without FSDP from the view full")
KIND(NO_WEIGHTS_UNDER_ROOT, no_weights_under_root, UNKNOWN,
     "{checkpoint} holds no model weights (optimizer or other state only)",
     .advice = "if they are below another key, name it with -o weights_key=KEY",
     .cause = "the checkpoint holds an optimizer or other state only, or its weights are below another key")
KIND(NO_ADAPTER, no_adapter, UNKNOWN, "{checkpoint} holds no PEFT adapter", .advice = "", .help = OTHER_VIEW,
     .cause = "the checkpoint was not saved by PEFT")
KIND(OTHER_LORA, other_lora, UNKNOWN,
     "{checkpoint}: {tensor} is of a LoRA under the names of {what}, which cannot be converted to PEFT's: {cause}",
     .advice = "",
     .help = "mount with -o model=DIR where DIR holds the base model's config.json and safetensors, save it as PEFT's adapter with that program, or take the view weights",
     .cause = "the adapter was trained and saved by a program other than PEFT")
KIND(NOT_MERGED, not_merged, UNKNOWN, "{checkpoint}: adapter and base model cannot be merged: {cause}", .advice = "",
     .help = "load the base model and the view adapter with PEFT, or mount with -o model=DIR where DIR holds the base model's safetensors",
     .cause =
	     "the base model was not named or is another one, or the adapter is of a kind that unshard does not merge exactly")
KIND(NO_EMA, no_ema, UNKNOWN, "{checkpoint}: no moving mean of the weights was saved with it", .advice = "",
     .help = "take the view weights, or mean-K for the mean of several checkpoints",
     .cause = "the training keeps none, or the state that was saved has it under a key that unshard does not know")
KIND(NOT_QUANTISED, not_quantised, UNKNOWN, "{checkpoint}: the weights cannot be shown as fp8: {cause}", .advice = "",
     .help = "take the view weights or weights-bf16",
     .cause =
	     "there is no config.json, the model is quantised already, or its linear layers are not known by their names")
KIND(NOT_AVERAGED, not_averaged, UNKNOWN, "{checkpoint}: no mean of {expected} checkpoints: {cause}", .advice = "",
     .help = "take a smaller K in mean-K, or the view weights",
     .cause =
	     "the run has fewer checkpoints up to this one, or one of them is damaged or has tensors of other names, shapes or dtypes")
KIND(MODEL_EMPTY, model_empty, INCOMPLETE,
     "{checkpoint}: {file} holds no tensor at all, while the optimizer has states of {tensor}: the model was not saved",
     .advice = "peft 0.21 with FSDP1 saves no adapter; train with FSDP2, or save the adapter with save_pretrained",
     .cause = "peft 0.21 with FSDP1 saves no adapter")
KIND(OPTIMIZER_NOT_ADAM, optimizer_not_adam, UNKNOWN,
     "{checkpoint}: the optimizer keeps no {state} of any parameter; a universal checkpoint has exp_avg, exp_avg_sq and step only (Adam, AdamW)",
     .advice = "", .help = OTHER_VIEW)
KIND(NO_METADATA, no_metadata, UNKNOWN, "{checkpoint} is not a torch distributed checkpoint: it has no .metadata",
     .help = OTHER_VIEW)
KIND(LIGHTNING_META_UNREADABLE, lightning_meta_unreadable, DAMAGED, "meta.pt could not be read", .help = COPY_ALL)
KIND(LIGHTNING_META_STORAGE, lightning_meta_storage, UNKNOWN,
     "meta.pt names a storage {found}, and torch numbers its storages from 0: unshard "
     "cannot add tensors to such a file",
     .help = OTHER_VIEW)
KIND(FABRIC_OBJECT, fabric_object, UNKNOWN,
     "{tensor}, below the key {key}, is no tensor of a model and no part of an optimizer with states: unshard does not know how Fabric's single file would hold it",
     .advice = "load the view dcp, which shows the directory as it is",
     .cause = "a model's state dict holds an object that is no tensor (get_extra_state), or an optimizer has no states")
KIND(PIPELINE_NAMES, pipeline_names, UNKNOWN,
     "{checkpoint} was saved by a pipeline, which names parameters otherwise than the whole model does",
     .help = OTHER_VIEW)
KIND(EXPERTS_VARY, experts_vary, UNKNOWN,
     "{checkpoint}: different numbers of ranks share the experts of its layers, which makes param groups that a run without expert parallelism does not have",
     .help = OTHER_VIEW)
KIND(AUTOEP_ALONE, autoep_alone, UNKNOWN,
     "{checkpoint}: DeepSpeed's AutoEP gave the experts names and shapes that no other trainer's model has",
     .advice = "use the views weights, universal and world-N")
KIND(PIPELINE_STAGE_0, pipeline_stage_0, UNKNOWN,
     "the optimizer is not available ({file}): ZeRO stage 0 numbers parameters, and a pipeline's model files hold none to compare with",
     .advice = "use the views weights and world-N, or train at stage 1")
KIND(PIPELINE_NUMBERS, pipeline_numbers, UNKNOWN,
     "{checkpoint} was saved by a pipeline: each stage's optimizer numbers its own parameters, and no file records the numbers that one process would give all of them",
     .help = OTHER_VIEW)

SECTION("what cannot be sharded for another number of ranks")
KIND(NOT_ZERO, not_zero, UNKNOWN, "{checkpoint} is not a DeepSpeed ZeRO checkpoint", .help = OTHER_VIEW)
KIND(NO_ZERO_SHARDS, no_zero_shards, UNKNOWN, "{checkpoint} has no ZeRO optimizer shards of data-parallel ranks",
     .help = OTHER_VIEW)
KIND(MODEL_PARALLEL, model_parallel, UNKNOWN,
     "{checkpoint} was saved by several model-parallel ranks ({file.name}): only data-parallel checkpoints can be shown for another number of ranks",
     .help = OTHER_VIEW)
KIND(ZERO_WORLD_UNEVEN, zero_world_uneven, UNKNOWN,
     "{checkpoint} was saved with {what} parallelism of {expected} ranks, which stays in world-N: N must be a multiple of it, not {found}",
     .help = "choose an N that is a multiple of that number of ranks")
KIND(ZERO_CUT_NOT_POSSIBLE, zero_cut_not_possible, UNKNOWN, "{cause}", .help = OTHER_VIEW)
KIND(ZERO_COPY_UNLIKE, zero_copy_unlike, INCOMPLETE,
     "the optimizer's fp32 copy or step of {tensor} is missing, or has another dtype than the other parameters'")
KIND(ZERO_PADDINGS, zero_paddings, DAMAGED, "param_alignment_paddings does not fit the optimizer's param groups",
     .help = COPY_ALL)
KIND(ZERO_SUB_GROUPS, zero_sub_groups, UNKNOWN,
     "{checkpoint} has {found} sub-groups of parameters, but sub_group_size and {ranks} ranks make {expected}: unshard does not know how DeepSpeed would shard them over another number of ranks",
     .help = OTHER_VIEW)
KIND(ZERO_SHAPES_UNLIKE_GROUPS, zero_shapes_unlike_groups, DAMAGED,
     "param_shapes lists {found} parameters in {found_groups} groups, but the optimizer has {expected} parameters in {expected_groups} param groups",
     .help = COPY_ALL)
KIND(ZERO_FROZEN_MISSING, zero_frozen_missing, INCOMPLETE, "the frozen parameter {tensor} is missing")
KIND(TOO_MANY_SLICES, too_many_slices, UNKNOWN,
     "{n} parameters on {ranks} ranks are more than {most} slices, the most that unshard shows",
     .advice = "use the view universal, which loads on any number of ranks")
KIND(TOO_MANY_SHARDS, too_many_shards, UNKNOWN,
     "{n} tensors on {ranks} ranks are more than {most} shards, the most that unshard shows",
     .advice = "use the views full and full-fsdp, which load on any number of ranks")
KIND(FLAT_OPTIMIZER, flat_optimizer, UNKNOWN,
     "the optimizer's state is that of FSDP1's flat units: only DTensors can be sharded for another number of ranks",
     .advice = "use the view full-fsdp, which has the state by parameter names")
KIND(NO_DTENSORS, no_dtensors, UNKNOWN,
     "{checkpoint} holds no DTensors (FSDP without a device mesh saves ShardedTensors): only DTensors can be sharded for another number of ranks",
     .help = OTHER_VIEW)
KIND(TENSOR_WITHOUT_ROWS, tensor_without_rows, UNKNOWN, "{tensor} is sharded but has no dimensions", .help = OTHER_VIEW)
KIND(OPTIMIZER_STATE_PLACELESS, optimizer_state_placeless, UNKNOWN,
     "unshard does not know which parameter the optimizer's state {tensor} belongs to", .help = OTHER_VIEW)
KIND(TOO_MANY_STATES, too_many_states, UNKNOWN, "the optimizer keeps more than {most} states for {tensor}",
     .help = OTHER_VIEW)
KIND(SCHEDULER_UNREADABLE, scheduler_unreadable, DAMAGED, "the scheduler's state cannot be read from {file.name}",
     .advice = ": copy the file back from the training machine",
     .cause = "the file was cut or changed, or holds an object that unshard does not read")
KIND(NO_FLAT_UNITS, no_flat_units, UNKNOWN,
     "{checkpoint} has no flat units: its optimizer is named without a unit map, or was not saved", .help = OTHER_VIEW)

SECTION("files beside a checkpoint")
KIND(CONFIG_UNUSABLE, config_unusable, NOTE, "config.json of {where} cannot be used: {cause}", .check = "config",
     .help = "put a valid config.json there, or name the right directory with -o model=DIR")
KIND(CONFIG_DOES_NOT_FIT, config_does_not_fit, NOTE, "config.json of {where} does not fit this checkpoint: {cause}",
     .advice = "name the right directory with -o model=DIR", .check = "config")
KIND(CONFIG_HAS_OTHER_NAMES, config_has_other_names, NOTE,
     "no weight has a name of the {what} model that config.json describes: from_pretrained looks for {expected}, and the names are like {tensor}",
     .advice =
	     ": it would load none of them. If a prefix is in front of the names, mount with -o strip=PREFIX; otherwise rename the tensors",
     .check = "config")
KIND(CONFIG_HAS_OTHER_PREFIX, config_has_other_prefix, NOTE,
     "no weight has a name of the {what} model that config.json describes: from_pretrained looks for {expected}, and some names have {found} in front",
     .advice =
	     ": it would load none of them. Mount with -o strip={found}, or give the trainer's own directory of the model with -o model=DIR",
     .check = "config", .cause = "the trainer wrapped the model, together with other modules, in one of its own")
KIND(PREFIX_LEFT_OUT, prefix_left_out, NOTE,
     "every weight has {found} in front of its name, which the {what} model of config.json does not have: the view weights leaves it out",
     .advice = " (-o names=memory keeps it)", .check = "config",
     .cause = "the trainer wrapped the model in a module of its own")
KIND(SENTENCE_MODULES_MISSING, sentence_modules_missing, NOTE,
     "the names are those of a model of sentence-transformers ({tensor}), whose modules.json was not found: it names the modules that SentenceTransformer loads, and how token embeddings are pooled",
     .advice =
	     ". Put modules.json and the directories that it names into the run directory, or mount with -o model=DIR where DIR is the model's directory",
     .check = "config")
KIND(SENTENCE_MODULES_UNUSABLE, sentence_modules_unusable, NOTE, "modules.json of {where} cannot be used: {cause}",
     .check = "config", .help = "put the model's own modules.json there, or name its directory with -o model=DIR")
KIND(PIPELINE_UNDECIDED, pipeline_undecided, NOTE,
     "the weights are not shown as the pipeline of diffusers whose model_index.json is in {where}: {cause}",
     .advice =
	     ". Say which component each model is with `unshard meta set CHECKPOINT components=unet,text_encoder`, the first model's first, \"-\" for none",
     .check = "config")
KIND(NO_CONFIG, no_config, NOTE, "no config.json was found for these weights, and from_pretrained needs one",
     .advice =
	     ". Put the model's config.json (and tokenizer) into the run directory, or mount with -o model=DIR where DIR holds them")
KIND(MODEL_FACT_UNUSABLE, model_fact_unusable, NOTE, "the fact \"model\" cannot be used: {cause}",
     .help = "set the fact to a directory with a config.json (unshard meta set CHECKPOINT model=DIR), or remove it (unshard meta unset CHECKPOINT model)")
KIND(MODEL_DIR_UNUSABLE, model_dir_unusable, NOTE, "the model directory cannot be used: {cause}",
     .help = "name a directory with a config.json: -o model=DIR")
KIND(NAMED_MODEL_NOT_FOUND, named_model_not_found, NOTE, "{file} names the model {found}, which was not found: {cause}",
     .help = "name a directory with a config.json: -o model=DIR")
KIND(CONFIG_MADE, config_made, NOTE,
     "no config.json was found: the one shown is made from the training's own {file}, by which the model is of type {what}",
     .help = "compare it with the model's own config.json, if there is one, and name that one's directory: -o model=DIR")
KIND(CONFIG_NOT_MADE, config_not_made, NOTE, "no config.json is made from {file}: {cause}",
     .help = "name a directory with the model's config.json: -o model=DIR")
KIND(FILES_BORROWED, files_borrowed, NOTE, "{what} borrowed from {where}", .help = NOTHING_TO_DO)
KIND(TIED_WEIGHT_LEFT_OUT, tied_weight_left_out, NOTE,
     "{tensor} is left out: config.json ties it to {other_tensor}, proven equal by {how}", .help = NOTHING_TO_DO)
KIND(TIED_WEIGHTS_DIFFER, tied_weights_differ, NOTE,
     "config.json ties {tensor} to {other_tensor} but their bytes differ ({how}): both are kept, and from_pretrained uses {other_tensor} for both",
     .help = "if both tensors were trained apart, set tie_word_embeddings to false in config.json")
KIND(TIE_NOT_COMPARED, tie_not_compared, NOTE,
     "{tensor} is kept beside {other_tensor}: they could not be compared: {cause}", .help = NOTHING_TO_DO)

SECTION("a checkpoint as a whole, and what a view can make of it")
KIND(CHECKPOINT_UNREADABLE, checkpoint_unreadable, DAMAGED, "{cause}", .check = "unreadable", .help = COPY_ALL)
KIND(VIEW_NOT_POSSIBLE, view_not_possible, UNKNOWN, "{cause}", .help = OTHER_VIEW)
KIND(SAVES_MIXED, saves_mixed, INCOMPLETE,
     "{file.name} of {checkpoint} was written to again {found} min after {last.name}, which is written last: a second save into this directory did not end, and its files are mixed with those of the first",
     .advice =
	     "resume from another checkpoint; if you put {file.name} there yourself, run in the checkpoint's directory: touch {touch}",
     .check = "mixed", .cause = "a second save into the same directory did not end")
KIND(SAVES_MAY_BE_MIXED, saves_may_be_mixed, NOTE,
     "{file.name} of {checkpoint} is {found} min newer than {last.name}, which is written last",
     .advice =
	     ": either the files were copied here one by one, or a second save did not end and files of two saves are mixed; if they were copied, run in the checkpoint's directory: touch {touch}",
     .check = "mixed")

SECTION("files that record different steps")
KIND(STEPS_DIFFER, steps_differ, DAMAGED, "{by} has step {found}, and {other} has {expected}: {cause}",
     .advice = ". The files are of two saves: copy this save's files again from the training machine" OR_BEFORE,
     .check = "mixed")
KIND(STEP_UNLIKE_NAME, step_unlike_name, NOTE, "{by} has step {found}, and {other} has {expected}",
     .advice = ": either the directory was renamed, or files of another save were put into it", .check = "mixed")
KIND(OPTIMIZER_BEHIND, optimizer_behind, NOTE,
     "the optimizer has made {found} steps, and {other} has counted {expected}",
     .advice = ": either it was begun later than the training, or its files are of an earlier save", .check = "mixed")
KIND(OPTIMIZER_FILES_DIFFER, optimizer_files_differ, DAMAGED,
     "{file}: the optimizer's step of {tensor}[ and {more} more {more|parameter|parameters}] is {found}, but {expected} of those in {other_file}[; {twin} holds the same bytes]",
     .advice = OF_TWO_SAVES, .check = "mixed")
KIND(OPTIMIZER_FILES_MAY_DIFFER, optimizer_files_may_differ, NOTE,
     "{file}: the optimizer's step of {tensor}[ and {more} more {more|parameter|parameters}] is {found}, but {expected} of those in {other_file}",
     .advice =
	     ": either these parameters had no gradient in some steps of the training, or the file is of another save. Compare it with the one on the training machine",
     .check = "mixed")
KIND(UNIVERSAL_STEPS_DIFFER, universal_steps_differ, DAMAGED,
     "{file}: the step of {tensor} is {found}, but {expected} in {other_file}: DeepSpeed loads one step for all parameters of a param group",
     .advice = OF_TWO_SAVES, .check = "mixed")

SECTION("what a Trainer misses that resumes")
KIND(TRAINER_STATE_MISSING, trainer_state_missing, INCOMPLETE,
     "{checkpoint} has no trainer_state.json: a Trainer that resumes from it fails with FileNotFoundError",
     .advice =
	     "copy it back from the training machine, write a copy with one by --repair OUT, or resume from a mount, whose view full makes one",
     .check = "trainer_state", .cause = "it was not saved or not copied")
KIND(TRAINER_STATE_UNUSABLE, trainer_state_unusable, DAMAGED,
     "a Trainer cannot resume from trainer_state.json of {checkpoint}: {cause}",
     .advice =
	     "copy it back from the training machine, write a copy with one by --repair OUT, or resume from a mount, whose view full makes one",
     .check = "trainer_state", .cause = "the file was cut or edited")
KIND(TRAINER_STATE_BATCH_SIZE, trainer_state_batch_size, NOTE,
     "{file.name} of {checkpoint} has no train_batch_size, which older versions of transformers and other trainers do not write: the Trainer of transformers 5.23 ends with a TypeError when it resumes from this file",
     .advice = "resume from a mount, whose views add the key, or with the version that saved the checkpoint",
     .check = "trainer_state")
KIND(TRAINER_STATE_CADENCES, trainer_state_cadences, NOTE,
     "{file.name} of {checkpoint} has no {found}: a Trainer that resumes from this file uses 500 instead of its own arguments",
     .advice = "resume from a mount with -o fact=KEY=VALUE for each of them", .check = "trainer_state")
KIND(SCHEDULER_MISSING, scheduler_missing, INCOMPLETE,
     "{checkpoint} has an optimizer and no scheduler.pt: a Trainer restores both or neither, so both would start from the beginning without a warning",
     .advice = "copy scheduler.pt back from the training machine", .check = "scheduler",
     .cause = "it was not saved or not copied")
KIND(OPTIMIZER_MISSING, optimizer_missing, INCOMPLETE,
     "{checkpoint} has scheduler.pt and no optimizer: a Trainer restores both or neither, so both would start from the beginning without a warning",
     .advice = "copy optimizer_0 (or optimizer.pt, optimizer.bin) back from the training machine", .check = "optimizer",
     .cause = "it was not saved or not copied")
KIND(BOTH_MISSING, both_missing, INCOMPLETE,
     "{checkpoint} has random states, but neither an optimizer nor scheduler.pt: a Trainer that resumes from it starts both from the beginning without a message",
     .advice = "copy scheduler.pt and optimizer_0 (or optimizer.pt, optimizer.bin) back from the training machine",
     .check = "optimizer", .cause = "they were not saved or not copied")
KIND(SAVED_MODEL_ONLY, saved_model_only, NOTE,
     "{checkpoint} has neither an optimizer nor scheduler.pt nor random states, as save_only_model saves it: a Trainer that resumes from it starts all three from the beginning without a message",
     .check = "optimizer", .help = "to resume exactly, train with save_only_model set to false")
KIND(RESUME_MISSES, resume_misses, INCOMPLETE,
     "for a resume from the view {view}, {checkpoint} has no {found}: {effect}", .check = "resume",
     .cause = "the file was not saved or not copied")
KIND(RESUME_DIFFERS, resume_differs, INCOMPLETE, "a resume of {checkpoint} from the view {view} is not exact: {cause}",
     .check = "resume", .cause = "the checkpoint or the view lacks something, which the message names")
KIND(RESUME_NOTED, resume_noted, NOTE, "before you resume {checkpoint} from the view {view}: {cause}",
     .check = "resume", .help = "read the cause in the message, and decide whether the resume has to be exact")
KIND(RESUME_NO_VIEW, resume_no_view, INCOMPLETE, "the view {view} cannot show {checkpoint}: {cause}", .check = "resume",
     .cause = "the checkpoint lacks something, or is in a form that the view cannot show; the message names it")
KIND(RESUME_UNKNOWN, resume_unknown, NOTE,
     "unshard does not know what the script reads that resumes {checkpoint} from the view {view}", .check = "resume",
     .help = "compare what your script loads with the files that the view shows")
KIND(SAVED_WEIGHTS_ONLY, saved_weights_only, NOTE,
     "{checkpoint} was saved with save_weights_only: trainer.fit cannot resume from it (KeyError 'optimizer_0' or 'optimizer_states', \"contains only the model\")",
     .advice =
	     "resume from a mount, with new optimizer states: from the view full on one device, from full-fsdp with FSDPStrategy",
     .check = "weights_only")
KIND(RNG_FILE_MISSING, rng_file_missing, INCOMPLETE,
     "{file.name} of {checkpoint} is missing: random states of {found} of {expected} ranks were found, and rank {rank} would resume with other ones",
     .advice = COPY_BACK, .check = "rng")
KIND(RNG_MISSING, rng_missing, NOTE,
     "{checkpoint} has no rng_state files: a Trainer that resumes from it shuffles data and drops out differently",
     .advice = "copy them back from the training machine", .check = "rng")
KIND(RNG_OF_FEWER_RANKS, rng_of_fewer_ranks, INCOMPLETE,
     "the shards of {checkpoint} are of {expected} ranks and its random states of {found}",
     .advice = ": copy the other ranks' {prefix}*{suffix} back, or the directory mixes two saves", .check = "rng",
     .cause = "some ranks' random states were not saved or not copied, or the directory mixes two saves")
KIND(RNG_OF_MORE_RANKS, rng_of_more_ranks, NOTE,
     "{checkpoint} has shards of {expected} ranks, and random states of {found}: either some ranks had nothing to write, or the directory mixes two saves",
     .advice = "compare the times of the rng_state files with those of the shards", .check = "rng")
KIND(CONFIG_UNLIKE_WEIGHTS, config_unlike_weights, DAMAGED,
     "config.json does not fit the weights of {checkpoint}: {cause}",
     .advice = "put the config.json that the run was started with beside it, or mount with -o model=DIR",
     .check = "config", .cause = "the config.json is another model's, or was edited")
KIND(EXPERTS_ORDER_UNKNOWN, experts_order_unknown, UNKNOWN,
     "the base model in {where} has {other_tensor} transposed, and {tensor} has the shape {shape}: transformers loads it as it is, and programs that read the base model's order transpose it",
     .advice = "mount with -o names=memory, which shows the tensors as they were saved", .check = "config")
KIND(EXPERTS_NOT_CONVERTED, experts_not_converted, UNKNOWN, "{checkpoint}: the experts cannot be shown {what}: {cause}",
     .advice = "", .help = "mount without -o experts=, which shows the experts as they are published",
     .cause =
	     "the model's family is not known, a layer's tensors are not those of all its experts, or they are an adapter's")
KIND(RESUME_LEAVES_NEW, resume_leaves_new, NOTE,
     "a Trainer that resumes from {checkpoint} itself does not load {n} {n|tensor|tensors} of its weights ({tensor} is one), and only warns: it loads by the names in memory, and the file has those that save_pretrained publishes for model type {found}",
     .advice = "resume from the view full, which has the names in memory", .check = "resume")
KIND(MODEL_BESIDE, model_beside, NOTE,
     "{file.name} of {checkpoint} holds a model too, and no view shows it: the views show {other_file.name}",
     .advice = "; if it is left over, move it away, because other programs may load it", .check = "beside",
     .cause = "two models, or one model in two forms, were saved or copied into one directory")
KIND(CONFIG_MISSING, config_missing, NOTE,
     "no config.json was found for the weights of {checkpoint}, and from_pretrained needs one",
     .advice = "put the model's config.json and tokenizer into the run directory, or mount with -o model=DIR",
     .check = "config")
KIND(STILL_SAVING, still_saving, NOT_YET,
     "still being saved: [{file} is not complete yet|the file that is written last is missing, or older than a shard], and something changed less than {expected} s ago",
     .advice =
	     "nothing to do: what is missing {expected} s after the last change is reported as damaged (-o settle=SECONDS)",
     .check = "saving")
KIND(LINK_NOT_FOLLOWED, link_not_followed, OUTSIDE,
     "{file} is a link that leads out of SOURCE, to {found}, and was not read: {checkpoint} was not judged",
     .advice = "if you trust that directory, add -o follow={expected}", .check = "not_read")
KIND(LINK_LEFT_OUT, link_left_out, NOTE,
     "[{file} and {more} more {more|file|files} are links that lead|{file} is a link that leads] out of SOURCE, to {found}: no view shows its content",
     .advice = "if you trust that directory, add -o follow={expected}", .check = "link")
KIND(PART_OF_CHECKPOINT, part_of_checkpoint, OUTSIDE,
     "{checkpoint} is a part of the checkpoint {found} and holds no weights of its own",
     .advice = "name {found} instead", .check = "not_read")
KIND(SAVE_END_UNKNOWN, save_end_unknown, NOTE,
     "all files of {checkpoint} that were found are complete, but the file that is written last was not found (with veRL latest_checkpointed_iteration.txt, with Accelerate the last random_states_N.pkl)",
     .advice = "if the save may have been interrupted, resume from the checkpoint before it", .check = "unfinished")

SECTION("files that name a run's last checkpoint")
KIND(TRACKER_UNUSABLE, tracker_unusable, DAMAGED,
     "{file.name} of {checkpoint} {cause}: {trainer} fails when it looks there for the last checkpoint",
     .advice =
	     "[set it to {newest}, the newest step that exists, if that one is whole|delete it, there is no step to resume from]",
     .check = "tracker", .cause = "the file was cut or edited, or its last write did not end")
KIND(TRACKER_STALE, tracker_stale, ELSEWHERE,
     "{file.name} of {checkpoint} names step {found}, and global_step_{found} does not exist: {trainer} would start from the beginning",
     .advice =
	     "copy the directory back, or [set it to {newest}, the newest step that exists, if that one is whole|delete it, there is no step to resume from]",
     .check = "tracker")

SECTION("directories without a checkpoint")
KIND(UNREADABLE_DIRECTORY, unreadable_directory, DAMAGED,
     "{file} cannot be read, so nothing in it was checked: {cause}", .check = "unreadable",
     .help = "give the user who runs unshard the right to read it, or look into the storage that fails",
     .cause = "permissions forbid it, or the storage fails")
KIND(NOTHING_FOUND, nothing_found, INCOMPLETE,
     "no checkpoint was found below {file}: nothing was saved yet, or the saves failed (FSDP SHARDED_STATE_DICT with save_only_model leaves nothing before transformers 4.50)",
     .advice = "", .check = "nothing",
     .help = "name the directory that has the checkpoints, or wait for the first save",
     .cause = "nothing was saved yet, the saves failed, or the directory is another one")
KIND(LEFTOVER_UNKNOWN, leftover_unknown, NOTE,
     "{checkpoint} is in a format that unshard does not know ({file}), so it was not checked", .check = "not_read",
     .help = "load it with the program that wrote it, or name another directory")
KIND(LEFTOVER_STAGING, leftover_staging, INCOMPLETE,
     "{checkpoint} is the directory that a Trainer writes to and renames when the save has ended: "
     "this save did not end",
     .advice = "resume from the checkpoint before it and delete this directory", .check = "staging",
     .cause = "the save did not end")
KIND(NO_WEIGHTS_LEFT, no_weights_left, INCOMPLETE,
     "{checkpoint} holds no weights, only files such as {file}: nothing can be recovered from it", .advice = NOT_BEGUN,
     .check = "no_weights", .cause = "the save did not begin, or the shards are on other nodes' disks")
KIND(NOTHING_LEFT, nothing_left, INCOMPLETE, "{checkpoint} is empty: nothing can be recovered from it",
     .advice = NOT_BEGUN, .check = "empty", .cause = "the save did not begin, or the shards are on other nodes' disks")
KIND(NO_WEIGHTS_LEFT_OF_TRAINER, no_weights_left_of_trainer, INCOMPLETE,
     "{checkpoint} holds no weights, only files such as {file}: nothing can be recovered from it",
     .advice = SAVE_ONLY_MODEL, .check = "no_weights",
     .cause =
	     "transformers before 4.50 with FSDP SHARDED_STATE_DICT and save_only_model leaves no weights, or the shards are on other nodes' disks")
KIND(NOTHING_LEFT_OF_TRAINER, nothing_left_of_trainer, INCOMPLETE,
     "{checkpoint} is empty: nothing can be recovered from it", .advice = SAVE_ONLY_MODEL, .check = "empty",
     .cause =
	     "transformers before 4.50 with FSDP SHARDED_STATE_DICT and save_only_model leaves no weights, or the shards are on other nodes' disks")
KIND(NO_WEIGHTS_LEFT_OF_LIGHTNING, no_weights_left_of_lightning, INCOMPLETE,
     "{checkpoint} holds no weights, only files such as {file}: nothing can be recovered from it",
     .advice = SAVE_WEIGHTS_ONLY, .check = "no_weights",
     .cause =
	     "Lightning before 2.2.2 with state_dict_type='sharded' and save_weights_only leaves no weights, or the shards are on other nodes' disks")
KIND(NOTHING_LEFT_OF_LIGHTNING, nothing_left_of_lightning, INCOMPLETE,
     "{checkpoint} is empty: nothing can be recovered from it", .advice = SAVE_WEIGHTS_ONLY, .check = "empty",
     .cause =
	     "Lightning before 2.2.2 with state_dict_type='sharded' and save_weights_only leaves no weights, or the shards are on other nodes' disks")

SECTION("is the model whole?")
KIND(LAYERS_MISSING, layers_missing, INCOMPLETE,
     "{stack} of {checkpoint} has {found} of {expected} layers: all tensors of layers {layers} are missing",
     .advice = GO_BEFORE, .check = "whole",
     .cause = "an exporter or a merge left them out, or the copy is not complete")
KIND(LAYER_LACKS_TENSORS, layer_lacks_tensors, INCOMPLETE,
     "{n} {n|tensor is|tensors are} missing from {checkpoint} that other layers of {stack} have, in layers {layers}: {names}[ and {more} more]",
     .advice = "copy or save the model again: a program that loads it would fill in random values", .check = "whole",
     .cause = "an exporter or a merge left them out, or the copy is not complete")
KIND(MODEL_PART_MISSING, model_part_missing, INCOMPLETE,
     "{checkpoint} has no {tensor}, which models of type {found} have",
     .advice = "copy or save the model again: a program that loads it would fill in random values", .check = "whole",
     .cause = "an exporter or a merge left them out, or the copy is not complete")
KIND(SHAPE_UNLIKE_SIBLINGS, shape_unlike_siblings, DAMAGED,
     "{tensor}[ and {more} more {more|tensor|tensors} have| has] another shape than in other layers: it is {found}, and {sibling} is {expected}",
     .advice = "copy or save the model again", .check = "whole",
     .cause = "the model was put together of parts that do not belong together, or an export or a merge went wrong")
KIND(DTYPE_UNLIKE_SIBLINGS, dtype_unlike_siblings, NOTE,
     "{tensor}[ and {more} more {more|tensor|tensors} have| has] another dtype than in other layers: it is {found}, and {sibling} is {expected}",
     .check = "whole", .help = "nothing, if the model is meant to have both dtypes")

SECTION("against the base model (check --base)")
KIND(BASE_TENSORS_MISSING, base_tensors_missing, INCOMPLETE,
     "{checkpoint} lacks {n} {n|tensor|tensors} of the base model: {names}[ and {more} more]",
     .advice = "copy or save the model again: a program that loads it would fill in random values", .check = "base",
     .cause = "an exporter or a merge left them out, or the copy is not complete")
KIND(BASE_MTP_MISSING, base_mtp_missing, INCOMPLETE,
     "{checkpoint} lacks {n} {n|tensor|tensors} of the base model's layers for multi-token prediction: {names}[ and {more} more]",
     .advice = "copy them from the base model if the model is used for speculative decoding; others do not load them",
     .check = "base", .cause = "the training or the exporter dropped them, as programs do that do not load them")
KIND(BASE_SHAPES_DIFFER, base_shapes_differ, DAMAGED,
     "{n} {n|tensor|tensors} of {checkpoint} {n|has|have} another shape than in the base model: {names}[ and {more} more]",
     .advice = "compare with the right base model, or save the model again", .check = "base",
     .cause = "the base model is another one, or an export or a merge went wrong")
KIND(BASE_LACKS_TENSORS, base_lacks_tensors, NOTE,
     "{checkpoint} has {n} {n|tensor|tensors} that the base model lacks: {names}[ and {more} more]", .check = "base",
     .help = "nothing, if the training added them; otherwise compare with the right base model")
KIND(BASE_DTYPES_DIFFER, base_dtypes_differ, NOTE,
     "{n} {n|tensor|tensors} of {checkpoint} {n|has|have} another dtype than in the base model: {names}[ and {more} more]",
     .check = "base", .help = "nothing, if the save was meant to convert them")
KIND(BASE_VALUES_EQUAL, base_values_equal, NOTE,
     "{n} of {total} tensors of {checkpoint} equal the base model's, bit for bit[; all of: {names}[ and {more} more]]",
     .advice = ": a part that was to be trained or merged, and is among them, was not", .check = "base")
KIND(TRAINED_EQUALS_BASE, trained_equals_base, DAMAGED,
     "{n} {n|tensor|tensors} of {checkpoint} {n|equals the base model's|equal the base model's}, bit for bit, though the optimizer has trained {n|it|them}: {names}[ and {more} more]",
     .advice = "find out which step put the base model's weights in their place", .check = "base",
     .cause = "an export or a merge wrote the base model's tensors in place of the trained ones")
KIND(BASE_OF_ADAPTER, base_of_adapter, NOTE,
     "{checkpoint} is an adapter: its tensors were not compared with those of the base model", .check = "base",
     .help = "to compare weights, merge the adapter first and check the merged model")

SECTION("a file whose end was never written")
KIND(SHARDS_EQUAL, shards_equal, NOTE,
     "{file} and {other_file} hold the same bytes, and should hold other elements: one was probably copied over the other",
     .advice = "compare both with those on the training machine, for example with sha256sum", .check = "mixed",
     .cause = "a shard was copied or linked to under another's name; or all that both hold is constant")
KIND(FILE_ENDS_IN_HOLE, file_ends_in_hole, NOTE,
     "{file.name}: the last {bytes} of its {total} bytes were never written, and are read as zeros (a hole): a copy that was interrupted leaves such a file",
     .advice = "compare it with the one on the training machine, for example with sha256sum", .check = "hole",
     .cause = "a copy was interrupted, or the power went before the data was written")

SECTION("what only reading all bytes shows (check --deep)")
KIND(BYTES_UNREADABLE, bytes_unreadable, DAMAGED,
     "{cause}[; {more} more {more|item|items} of this file cannot be read: it is another rank's, of another save, or damaged]",
     .advice = COPY_BACK OR_BEFORE, .check = "unreadable",
     .cause = "the storage cannot read the bytes, or they are not what the file's own format asks for")
KIND(RECORD_CRC_DIFFERS, record_crc_differs, DAMAGED,
     "{file}[ (rank {rank})]: record {record}[ of tensor {tensor}], {bytes} bytes at {at}, has CRC {found}, the archive says {expected}[; so {more|is|are} {more} more {more|record|records}: {names}]: it was damaged after it was saved",
     .advice = COPY_BACK OR_BEFORE, .check = "crc",
     .cause = "bytes of the file changed after the save: the storage or a copy damaged them, or the file was edited")
KIND(ITEM_CRC_DIFFERS, item_crc_differs, DAMAGED,
     "{file}[ (rank {rank})]: tensor {tensor}, decompressed, has CRC {found}, its item says {expected}[; so {more|is|are} {more} more {more|tensor|tensors}: {names}]: it was damaged after it was saved",
     .advice = COPY_BACK OR_BEFORE, .check = "crc",
     .cause = "bytes of the file changed after the save: the storage or a copy damaged them, or the file was edited")
KIND(FILE_SAVED_AS, file_saved_as, DAMAGED, "{file.name} was saved as {found}: it was renamed, or is another rank's",
     .advice = "give each file back its own name, or " COPY_AGAIN, .check = "mixed",
     .cause = "files of two ranks, or two states of a parameter, were exchanged or copied over each other")
KIND(FILE_HOLDS_OTHER, file_holds_other, DAMAGED, "{file.name} holds {found}: it is another file under this name",
     .advice = "give each file back its own name, or " COPY_AGAIN, .check = "mixed",
     .cause = "files were exchanged or copied over each other")
KIND(FILE_ENDS_IN_ZEROS, file_ends_in_zeros, NOTE,
     "{file.name}: the last {bytes} of its {total} bytes are zeros, from tensor {tensor} on: a copy that was interrupted leaves such a file, and its format records no checksum",
     .advice = "compare it with the one on the training machine, for example with sha256sum", .check = "hole",
     .cause = "a copy was interrupted, the power went before the data was written, or the tensors are really zero")
KIND(NOT_FINITE, not_finite, DAMAGED,
     "{what} has [{nans} {nans|NaN|NaNs}[{?infs} and ]][{infs} {infs|infinity|infinities}] among its {n} elements, the first is element {first}, in {file.name}[ (rank {rank})][; so {more|has|have} {more} more {more|tensor|tensors}: {names}]: training diverged, or the file was damaged",
     .advice = "resume from a checkpoint before that", .check = "not_finite",
     .cause = "the training diverged, or the file was damaged")
KIND(FP32_COPY_DIFFERS, fp32_copy_differs, DAMAGED,
     "weight {tensor} is not its fp32 copy rounded to {dtype} in {n} of {total} elements: element {first} is {found} in {file.name}[ (rank {rank})], and {exact} of {other_file.name}[ (rank {other_rank})] rounds to {expected}[; so {more|is|are} {more} more {more|weight|weights}: {names}]; one of the files is of another save or was changed",
     .advice =
	     ": copy both back from the training machine, or take the fp32 copies alone (view weights-fp32), unless megatron-core 0.16.1 moved them (docs/megatron-core.md)",
     .check = "master")
KIND(NO_CRCS, no_crcs, NOTE,
     "{n} {n|file|files} {n|records|record} no CRCs of data, as safetensors do and torch with set_crc32_options(False), the first is {file}: damage in {n|it|them} cannot be found without a seal",
     .check = "no_crc", .help = "seal the checkpoint (unshard seal) while it is sound")

SECTION("files that changed places since the last look")
KIND(FILES_CHANGED_PLACES, files_changed_places, DAMAGED,
     "{file}[ (rank {rank})] is the file that was {other_file}[ (rank {other_rank})] when unshard opened the checkpoint before: files changed places",
     .advice = "give each file back its own name, or " COPY_AGAIN
	       "; if each has its own name now, seal the checkpoint: unshard seal --again",
     .check = "mixed", .cause = "files were renamed; the metadata store remembers inodes, sizes and times")

SECTION("what a seal disproves (unshard seal)")
KIND(SEALED_FILE_MISSING, sealed_file_missing, INCOMPLETE,
     "{file} is missing: it was there when the checkpoint was sealed[, with[ rank {rank}'s] {tensor}[ and {more} more {more|piece|pieces}]]",
     .advice = COPY_BACK, .check = "seal")
KIND(SEALED_FILE_RESIZED, sealed_file_resized, DAMAGED,
     "{file}[ (rank {rank})] has {found} bytes, and had {expected} when the checkpoint was sealed[: expected {tensor}[ and {more} more {more|piece|pieces}] in it]",
     .advice = COPY_AGAIN OR_BEFORE, .check = "seal")
KIND(SEALED_FILES_EXCHANGED, sealed_files_exchanged, DAMAGED,
     "{file}[ (rank {rank})] holds what {other_file}[ (rank {other_rank})] held when the checkpoint was sealed: files were renamed or copied over each other[; expected {tensor}[ and {more} more {more|piece|pieces}] in it]",
     .advice = "give each file back its own name, or " COPY_AGAIN, .check = "seal")
KIND(SEALED_FILE_DIFFERS, sealed_file_differs, DAMAGED,
     "{file}[ (rank {rank})] does not hold what it held when the checkpoint was sealed: damage, or a file of another save[; {tensor}[ and {more} more {more|piece|pieces}] {more|is|are} not the sealed bytes]",
     .advice = COPY_AGAIN OR_BEFORE
     "; if the file was changed on purpose, seal the checkpoint again: unshard seal --again",
     .check = "seal")
KIND(MORE_SEALED_FILES_DIFFER, more_sealed_files_differ, DAMAGED,
     "{n} more {n|file|files} of {checkpoint} {n|does|do} not hold what {n|it|they} held when the checkpoint was sealed",
     .advice = "", .check = "seal", .help = COPY_ALL)
KIND(SAVED_AFTER_SEAL, saved_after_seal, DAMAGED,
     "{checkpoint} was saved again, or other files were copied over it, after it was sealed: every file is newer than the seal, and every shard holds something else",
     .advice = "if that was a new save, seal it: unshard seal --again", .check = "seal",
     .cause = "a new save was written into the directory, or another checkpoint was copied over it")
KIND(SEALED_AT_OTHER_TIMES, sealed_at_other_times, NOTE,
     "{n} {n|file|files} of {checkpoint} {n|has|have} another time than when it was sealed, as after a restored backup; sizes and samples of the content are as they were",
     .advice = "unshard check --deep compares all of the content", .check = "seal")
KIND(SEALED_FILE_NOT_READ, sealed_file_not_read, NOTE,
     "[{file} and {more} more {more|file|files} are|{file} is] not compared with the seal: not readable, or a link that leads out of the source",
     .advice = "-o follow=DIR lets links lead into DIR", .check = "seal")
KIND(FILES_AFTER_SEAL, files_after_seal, NOTE,
     "{file}[ and {more} more {more|file|files}] came after the checkpoint was sealed, and the seal does not have [{more|them|them}|it]",
     .check = "seal", .help = "nothing, if you put them there; unshard seal --again includes them")
KIND(SEAL_UNUSABLE, seal_unusable, DAMAGED, "the seal cannot be used, and nothing is compared with it: {cause}",
     .advice = "; if the checkpoint is known to be sound, seal it again: unshard seal --again", .check = "seal",
     .cause = "the seal was cut, edited or mixed up, or is of a newer version")

SECTION("what a shared memo says (unshard warm --write)")
KIND(MEMO_DIFFERS, memo_differs, DAMAGED,
     "{memo} is wrong about {checkpoint}: in {what} it differs from what the checkpoint's files say now",
     .advice = "delete it, and write it again: unshard warm --write", .check = "memo",
     .cause =
	     "a file was rewritten with its old size and time after the memo was written, or another program made the memo")
