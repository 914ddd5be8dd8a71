"""The programs whose checkpoints the tests compare, and which tests do it: docs/compatibility.md's first table is made of
WRITERS and of writers.json, which has how many of these tests passed (tests/docs/generate.py).

    UNSHARD_RECORD=1 python -m pytest ... --long tests/e2e/test_X.py   writes the counts of the rows whose tests ran
    python tests/e2e/writers.py                                   prints the files of all these tests

An entry of "bytes", "logits" and "resumed" is how a test's name begins, behind tests/e2e/; * stands for anything.
"resumed": a training that resumes from a view has the losses or parameters of one without it."""

import fnmatch
import importlib.metadata
import json
import re
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "writers.json"
KINDS = ("bytes", "logits", "resumed")

WRITERS = [
    {"does": "Trainer, FSDP1 and FSDP2, `SHARDED_STATE_DICT`", "packages": ["transformers", "torch"],
     "bytes": ["test_weights.py::test_trainer_weights_are", "test_weights.py::test_from_pretrained_of_families"],
     "resumed": ["test_resume.py::test_a_plain_trainer_goes_on_from_full", "test_resume.py::test_fsdp1_goes_on",
                 "test_resume.py::test_fsdp2_goes_on"]},
    {"does": "Trainer, FSDP1", "versions": "transformers 4.46.3, torch 2.4.1",
     "bytes": ["test_older.py::*transformers4.46.3-torch2.4.1"]},
    {"does": "Accelerate `save_state`, FSDP1 and FSDP2; also `use_dcp=False`", "packages": ["accelerate", "torch"],
     "bytes": ["test_weights.py::test_accelerate"], "resumed": ["test_resume.py::test_accelerate_goes_on"]},
    {"does": "Accelerate, FSDP1", "versions": "accelerate 0.29.3, torch 2.2.2",
     "bytes": ["test_older.py::*accelerate0.29.3-torch2.2.2"]},
    {"does": "`torch.distributed.checkpoint`: FSDP1, FSDP2, tensor parallelism, asynchronous, zstd, several files per rank, "
             "one file per tensor, rank-local metadata, `HuggingFaceStorageWriter`", "packages": ["torch"],
     "bytes": ["test_weights.py::test_dcp_weights", "test_dcp.py::test_dcp_loads_what_was_saved"]},
    {"does": "`torch.distributed.checkpoint`, FSDP1", "versions": "torch 2.2.2", "bytes": ["test_older.py::*torch2.2.2_fsdp1"]},
    {"does": "`torch.distributed.checkpoint`, FSDP2", "versions": "torch 2.4.1", "bytes": ["test_older.py::*torch2.4.1_fsdp2"]},
    {"does": "the same from a script: `{\"model\", \"optimizer\"}`, `{\"app\"}`, `{\"net\", \"opt\"}`, without a scheduler",
     "packages": ["torch"], "resumed": ["test_scripts.py::test_a_script_resumes"]},
    {"does": "float8 training of torchao", "packages": ["torchao", "torch"],
     "bytes": ["test_subclasses.py::test_what_float8_wraps_is_served"]},
    {"does": "torchtune: full finetuning, LoRA (merged model and adapter), its own and Meta's names, "
             "`DistributedCheckpointer`", "packages": ["torchtune"], "bytes": ["test_recipes.py::test_torchtune_s"]},
    {"does": "torchtune: a LoRA under its own names, of Llama, Mistral, Gemma and Qwen2, with DoRA", "packages": ["torchtune"],
     "bytes": ["test_torchtune_loras.py::test_it_is_torchtune_s"]},
    {"does": "torchtitan's `CheckpointManager`, FSDP2", "packages": ["torchtitan"],
     "bytes": ["test_recipes.py::test_torchtitan_s"]},
    {"does": "Composer's Trainer, FSDP and DDP", "packages": ["mosaicml"], "bytes": ["test_recipes.py::test_composer_s"]},
    {"does": "OLMo-core's `save_model_and_optim_state`, in one process and with FSDP2", "packages": ["ai2-olmo-core"],
     "bytes": ["test_dcp.py::test_what_olmo_core_saves"]},
    {"does": "transformers' `save_pretrained(distributed_checkpoint=True)`, FSDP and tensor parallelism",
     "packages": ["transformers"], "bytes": ["test_published.py::test_it_is_what_one_process_saves"]},
    {"does": "models with several tied names (T5, BART, Marian, BERT), FSDP1, FSDP2, DeepSpeed 2 and 3",
     "packages": ["transformers", "deepspeed", "torch"], "bytes": ["test_tied.py::test_shards_of_two_ranks"]},
    {"does": "`model.safetensors`, `pytorch_model.bin`", "packages": ["transformers"],
     "bytes": ["test_weights.py::test_plain_directories_pass_through"]},
    {"does": "one file: Lightning's plain `.ckpt`; state dicts in `.pt`, `.pth`, `.bin`, `.ckpt`",
     "packages": ["lightning", "torch"],
     "bytes": ["test_one_file.py::test_a_plain_lightning_file", "test_one_file.py::test_a_state_dict_is_a_directory"]},
    {"does": "PEFT adapters: LoRA, DoRA, LoRA on embeddings, IA3, VeRA, prompt tuning, `modules_to_save`, two adapters; "
             "from Trainer and Accelerate with FSDP2 and DeepSpeed", "packages": ["peft", "deepspeed"],
     "bytes": ["test_adapters.py::test_the_view_is_what_peft_saves"], "resumed": ["test_adapters.py::test_training_goes_on"]},
    {"does": "Lightning, FSDPStrategy and ModelParallelStrategy, sharded", "packages": ["lightning"],
     "bytes": ["test_lightning.py::test_load_from_checkpoint"],
     "resumed": ["test_lightning.py::test_fsdp_goes_on", "test_lightning.py::test_model_parallel_goes_on"]},
    {"does": "Lightning Fabric: FSDPStrategy and ModelParallelStrategy (FSDP2 or tensor parallel) sharded, with keys of "
             "the script's own; DeepSpeedStrategy", "packages": ["lightning", "deepspeed"],
     "bytes": ["test_fabric.py::test_full_is_what_fabric_consolidate_writes"],
     "resumed": ["test_fabric.py::test_fabric_goes_on", "test_fabric.py::test_deepspeed_goes_on"]},
    {"does": "Lightning, DeepSpeedStrategy", "packages": ["lightning", "deepspeed"],
     "bytes": ["test_lightning_deepspeed.py::test_weights_are_the_live_ones"],
     "resumed": ["test_lightning_deepspeed.py::test_another_number_of_ranks_goes_on"]},
    {"does": "DeepSpeed stages 0 to 3, from an engine, a Trainer or Accelerate", "packages": ["deepspeed", "transformers"],
     "bytes": ["test_zero_views.py::test_an_engines_weights", "test_deepspeed.py::test_weights_are_what_zero_to_fp32_makes",
               "test_zero_views.py::test_from_pretrained_gets_the_live_model"],
     "resumed": ["test_deepspeed.py::test_trainer_goes_on", "test_deepspeed.py::test_accelerate_goes_on"]},
    {"does": "DeepSpeed stages 0 to 3 with AutoTP (`tensor_parallel.autotp_size`)", "packages": ["deepspeed"],
     "bytes": ["test_tensor_parallel.py::test_what_was_cut_is_whole"],
     "resumed": ["test_tensor_parallel.py::test_it_is_resumed"]},
    {"does": "DeepSpeed pipelines (`PipelineModule`), stages 0 and 1; stages 0 to 2 with `deepspeed.moe`, experts shared by "
             "1 and by 2 ranks", "packages": ["deepspeed"], "bytes": ["test_model_parallel.py::test_weights_are_the_models"],
     "resumed": ["test_model_parallel.py::test_it_is_resumed"]},
    {"does": "DeepSpeed stages 0 to 3 with AutoEP, experts shared by 1 and by 2 ranks",
     "packages": ["deepspeed", "transformers"], "bytes": ["test_autoep.py::test_weights_are_the_model_without_autoep"],
     "resumed": ["test_autoep.py::test_it_is_resumed"]},
    {"does": "veRL and EasyR1, DTensors and ShardedTensors, 2 to 4 ranks, HSDP, frozen vision towers, tied weights, critics, "
             "LoRA", "versions": "verl 0.9.1, EasyR1 b44b311",
     "bytes": ["test_ranks.py::test_weights_are_the_live_ones", "test_rank_models.py::test_from_pretrained_gets",
               "test_rank_models.py::test_the_merger_of_verl_itself_agrees"]},
    {"does": "Megatron-Core `torch_dist`, also as models of Hugging Face (FAMILIES)",
     "packages": ["megatron-core", "mbridge", "megatron-bridge"],
     "bytes": ["test_megatron.py::test_a_config_makes_them", "test_megatron_bridge.py::test_megatron_bridge_exports"],
     "logits": ["test_megatron.py::test_logits_are_those_of_megatrons_own_model"],
     "resumed": ["test_megatron_optimizer.py::test_torchs_optimizer_goes_on",
                 "test_megatron_optimizer.py::test_a_trainer_resumes"]},
    {"does": "Megatron-Core `torch_dist` of Nemotron-H: Mamba layers, experts (with `--long`)",
     "packages": ["megatron-core", "megatron-bridge"],
     "bytes": ["test_megatron_hybrid.py::test_a_config_makes_them"],
     "logits": ["test_megatron_hybrid.py::test_logits_are_those_of_megatrons_own_model"]},
    {"does": "Megatron-Bridge and NeMo 2: LoRA, canonical LoRA and DoRA in `torch_dist`, merged", "packages": ["megatron-core", "megatron-bridge"],
     "bytes": ["test_megatron_loras.py::test_it_is_bridge_s"]},
    {"does": "Megatron-Core `torch_dist` of llama4, phi3, InternVL, GLM-4.7-Flash and DeepSeek-V2-Lite (with `--long`)",
     "packages": ["megatron-core", "mbridge"],
     "bytes": ["test_megatron_families.py::test_a_config_makes_them"],
     "logits": ["test_megatron_families.py::test_logits_are_those_of_megatrons_own_model"]},
    {"does": "Megatron-LM's files of model-parallel ranks (`--ckpt-format torch`): weights", "packages": ["megatron-core"],
     "bytes": ["test_megatron_ranks.py::test_weights_are_what_save_pretrained_wrote"]},
    {"does": "Megatron-FSDP `fsdp_dtensor`, tensor and expert parallelism too", "packages": ["megatron-core"],
     "bytes": ["test_megatron_fsdp.py::test_weights_are_what_save_pretrained_writes"],
     "resumed": ["test_megatron_optimizer.py::test_torchs_optimizer_goes_on*mf?-",
                 "test_megatron_optimizer.py::test_a_trainer_resumes*mf?-"]},
]


def version_of(package):
    """Of a package in this environment, or of one that a script in make/ asks for."""
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        pinned = (re.search(rf'"{package}==([\w.]+)"', p.read_text()) for p in sorted((HERE / "make").glob("*.py")))
        return next(m[1] for m in pinned if m)


def versions_of(row):
    return row.get("versions") or ", ".join(f"{p} {version_of(p)}" for p in row["packages"])


def belongs(node, pattern):
    return fnmatch.fnmatchcase(node.removeprefix("tests/e2e/"), f"{pattern}*")


def counts(row, outcomes):
    """kind -> how many passed; None if one of its tests failed, or none ran."""
    out = {}
    for kind in KINDS:
        for pattern in row.get(kind, ()):
            ran = [passed for node, passed in outcomes.items() if belongs(node, pattern)]
            if not ran or not all(ran):
                return None
            out[kind] = out.get(kind, 0) + len(ran)
    return out


def record(outcomes):
    """outcomes: a test's id -> did it pass? Of a row whose tests did not all run, what is there stays."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for row in WRITERS:
        found = counts(row, outcomes)
        if found:
            results[row["does"]] = {"versions": versions_of(row), **found}
    kept = {row["does"] for row in WRITERS}
    RESULTS.write_text(json.dumps({k: v for k, v in results.items() if k in kept}, indent=1, sort_keys=True) + "\n")


def files_of(row):
    return sorted({pattern.partition("::")[0] for kind in KINDS for pattern in row.get(kind, ())})


if __name__ == "__main__":
    print(*sorted({f"{HERE}/{name}" for row in WRITERS for name in files_of(row)}))
