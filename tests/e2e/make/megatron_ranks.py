"""Hugging Face models as Megatron-LM saves them with --ckpt-format torch, several cases in one launch:

    torchrun --nproc_per_node=W megatron_ranks.py OUT CASE...

Each makes OUT/CASE/hf and the model of megatron-core as torch_dist.py does. OUT/CASE/run/iter_0000002 has the state dicts
that its state_dict_for_save_checkpoint() gives on each rank, in the files and under the keys that Megatron-LM's
save_checkpoint and generate_state_dict have them.
"""

import argparse
import os

import torch
import torch.distributed as dist

import torch_dist
from torch_dist import GPT_OSS, MOE, ROUTED, STEP

# case -> model_type, changes to torch_dist.TEXT, sizes of parallelism, and more (see torch_dist.build)
CASES = {
    "llama-tp2": ("llama", {"attention_bias": True, "mlp_bias": True, "num_hidden_layers": 3}, {"tp": 2}, {"bias": True}),
    "qwen2-pp2-bf16": ("qwen2", {"head_dim": 4, "num_hidden_layers": 3, "tie_word_embeddings": True},
                       {"pp": 2, "first": 1}, {"qkv_bias": True}),
    "qwen3-tp1": ("qwen3", {}, {}, {"qk_norm": True}),
    "gemma3-tp2": ("gemma3_text", {"tie_word_embeddings": True, "vocab_size": 37}, {"tp": 2},
                   {"norms": torch_dist.GEMMA_NORMS, "qk_norm": True, "padded": 48}),
    "qwen3_moe-ep2": ("qwen3_moe", MOE, {"ep": 2}, {"moe": True, "qk_norm": True}),
    "qwen3_moe-tp2": ("qwen3_moe", MOE | {"mlp_only_layers": [0]}, {"tp": 2}, {"moe": [0, 1], "qk_norm": True}),
    "llama-pp2-vpp2": ("llama", {"num_hidden_layers": 4}, {"pp": 2, "vpp": 2}, {}),
    "glm4_moe-mtp-tp2": ("glm4_moe", ROUTED | {"attention_bias": True, "use_qk_norm": True}, {"tp": 2},
                         {"moe": [0, 1, 1], "qkv_bias": True, "qk_norm": True, "router_bias": True, "mtp": 1}),
    "gpt_oss-ep2": ("gpt_oss", GPT_OSS, {"ep": 2}, {"moe": True, "bias": True, "sinks": True}),
    "qwen3_moe-tp2-pp2-ep2": ("qwen3_moe", MOE | {"num_hidden_layers": 4}, {"tp": 2, "pp": 2, "ep": 2},
                              {"moe": True, "qk_norm": True}),
}


def args_of(text, sizes):
    """Those of Megatron-LM's that say how ranks share a model, among others."""
    return argparse.Namespace(
        tensor_model_parallel_size=sizes.get("tp", 1), pipeline_model_parallel_size=sizes.get("pp", 1),
        virtual_pipeline_model_parallel_size=sizes.get("vpp"), expert_model_parallel_size=sizes.get("ep", 1),
        expert_tensor_parallel_size=sizes.get("etp", sizes.get("tp", 1)), num_layers=text.num_hidden_layers,
        num_experts=getattr(text, "num_experts", getattr(text, "num_local_experts", getattr(text, "n_routed_experts", None))),
        num_attention_heads=text.num_attention_heads, num_query_groups=text.num_key_value_heads, group_query_attention=True,
        untie_embeddings_and_output_weights=not text.tie_word_embeddings, world_size=dist.get_world_size(),
        iteration=STEP, swiglu=True, apply_layernorm_1p=text.model_type.startswith("gemma"), params_dtype=torch.bfloat16, position_embedding_type="rope")


def rank_file(out, sizes):
    """The name of this rank's file, or None if another rank writes it."""
    from megatron.core import parallel_state as mpu

    if mpu.get_data_parallel_rank() and mpu.get_expert_data_parallel_rank():
        return None
    name = f"mp_rank_{mpu.get_tensor_model_parallel_rank():02d}"
    name += f"_{mpu.get_pipeline_model_parallel_rank():03d}" if "pp" in sizes else ""
    name += f"_{mpu.get_expert_model_parallel_rank():03d}" if "ep" in sizes else ""
    return f"{out}/run/iter_{STEP:07}/{name}/model_optim_rng.pt"


def run(case, out):
    import mbridge  # noqa: F401
    from megatron.core import parallel_state
    from safetensors.torch import load_file

    model_type, changes, sizes, more = CASES[case]
    dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
    published = torch_dist.hf_model(model_type, changes, None, more.get("mtp", 0), dtype).to(dtype)
    if dist.get_rank() == 0:
        torch_dist.save_published(published, more.get("mtp"), f"{out}/hf")
    dist.barrier()
    parallel_state.initialize_model_parallel(
        sizes.get("tp", 1), sizes.get("pp", 1), sizes.get("vpp"), expert_model_parallel_size=sizes.get("ep", 1),
        expert_tensor_parallel_size=sizes.get("etp"))
    weights = torch_dist.text_weights(load_file(f"{out}/hf/model.safetensors"))
    state = {"args": args_of(published.config, sizes), "checkpoint_version": 3.0, "iteration": STEP}
    for stage in range(sizes["vpp"]) if "vpp" in sizes else [None]:
        config, model = torch_dist.build(published.config, sizes, more, dtype, stage)
        torch_dist.fill(model, published.config, torch_dist.bridge_of(published.config, config, dtype, more), weights)
        state["model" if stage is None else f"model{stage}"] = model.state_dict_for_save_checkpoint()
    state |= {"optimizer": {"optimizer": {"param_groups": [{"lr": 1.0, "params": [0]}], "state": {}}},
              "opt_param_scheduler": {"max_lr": 1.0, "num_steps": STEP}, "rng_state": [{"torch_rng_state": torch.get_rng_state()}],
              "num_floating_point_operations_so_far": 0}
    file = rank_file(out, sizes)
    if file:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        torch.save(state, file)
    dist.barrier()
    if dist.get_rank() == 0:
        with open(f"{out}/run/latest_checkpointed_iteration.txt", "w") as f:
            f.write(str(STEP))
    parallel_state.destroy_model_parallel()
    dist.barrier()


if __name__ == "__main__":
    torch_dist.run_all(run)
