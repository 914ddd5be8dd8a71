"""Megatron-Core loads checkpoints at another parallelism, several in one launch:

    torchrun --nproc_per_node=2 torch_dist_load.py OUT NAME:CASE:FOLDER:SHOWN:SIZES...

FOLDER is what torch_dist_optimizer.py, _parallel.py, _model_space.py or megatron_fsdp.py made of CASE, SHOWN the directory that
is loaded, SIZES the parallelism ("tp2,ep1"). The model and Megatron's distributed optimizer are made anew, with other values,
and load SHOWN as Megatron-LM 0.16.1 does (training/checkpointing.py, _load_global_dist_base_checkpoint and load_checkpoint):
it asks for the names that content_metadata in common.pt says. OUT/NAME has what the ranks then have in memory, as FOLDER has
what they had when it was saved: live/STATE/ and live/groups.json. OUT/NAME/weights.safetensors has the model's weights and
OUT/NAME/stepped/ the states after one more step, whose gradients are GRADIENT everywhere.
"""

import json
import os
import shutil
import sys

import torch
import torch.distributed as dist

import megatron_fsdp
import torch_dist
import torch_dist_optimizer
import torch_dist_parallel
from leaving import leave
from torch_dist_optimizer import OnCpu, STATES

GRADIENT = 0.25
SPACE = {"llama-tp2-space": {"padded": 128}, "qwen3_moe-ep2-space-bf16": {"moe": True, "qk_norm": True},
         "qwen2-pp2-space-bf16": {"qkv_bias": True}}  # torch_dist_model_space.py imports another megatron-core
DESIGN = ("moe", "qk_norm", "qkv_bias", "bias", "sinks", "padded", "norms", "router_bias", "mtp",
          "vision")  # of the model, whatever the parallelism


def design_of(case):
    more = SPACE.get(case) or {**torch_dist_optimizer.CASES, **torch_dist_parallel.CASES, **megatron_fsdp.CASES}[case][3]
    return {k: v for k, v in more.items() if k in DESIGN}


def sizes_of(text):
    return {part[:2]: int(part[2:]) for part in text.split(",") if part}


def optimizer_of(config, model, dtype):
    """Megatron's optimizer as it is before the first step."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    half = {"fp16": True, "initial_loss_scale": 64.0} if dtype == torch.float16 else {}
    wrapped = DistributedDataParallel(
        config, DistributedDataParallelConfig(use_distributed_optimizer=True, grad_reduce_in_fp32=True), model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=0.5, min_lr=0.4, weight_decay=0.3, adam_beta1=0.7, adam_beta2=0.6,
                        adam_eps=0.1, bf16=dtype == torch.bfloat16, params_dtype=dtype, clip_grad=0.0,
                        use_distributed_optimizer=True, **half), [wrapped])
    for one in optimizer.chained_optimizers:  # torch's Adam has no state before a step, and megatron-core asks for it
        one._init_optimizer_states_with_dummy_values()
    return optimizer


def patch_megatron():
    """Without Transformer Engine the state has torch's step, which load_state_dict takes from the param groups. Then
    megatron-core 0.16.1 looks for it among the loaded tensors, too, and fails; and all states share one tensor, which
    each parameter's step would count up."""
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    put = DistributedOptimizer._set_main_param_and_optimizer_states

    def put_with_step(self, param, tensors):
        group, order = self.model_param_group_index_map[param]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        state["step"] = state["step"].clone()
        put(self, param, tensors | {"step": state["step"]})

    DistributedOptimizer._set_main_param_and_optimizer_states = put_with_step


def load(model, optimizer, shown):
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.validation import StrictHandling

    common = dist_checkpointing.load_common_state_dict(shown)
    metadata = dist_checkpointing.load_content_metadata(preloaded_state_dict=common) | {
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    weights = model.sharded_state_dict(metadata=metadata)
    states = optimizer.sharded_state_dict(model.sharded_state_dict(metadata=metadata), is_loading=True, metadata=metadata)
    loaded, missing, unexpected = dist_checkpointing.load({"model": weights, "optimizer": states}, shown,
                                                          strict=StrictHandling.RETURN_ALL)
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    return common, sorted(missing), sorted(unexpected)


def weights_of(model, bridge):
    """Published names -> what this rank has of each, as torch_dist_optimizer.parts gives a state."""
    from megatron.core import parallel_state

    if parallel_state.get_data_parallel_rank() and not bridge.config.num_moe_experts:
        return
    for name, param in model.named_parameters():
        name = torch_dist_parallel.whole_name(model, name)
        yield name, tuple(param.shape), param, 0, {k: param.detach().float().flatten() for k in STATES}, {}


def save_states(live, where):
    from safetensors.torch import save_file

    if dist.get_rank():
        return
    states, groups = live
    for state, tensors in states.items():
        os.makedirs(f"{where}/{state}")
        save_file({n: t.contiguous() for n, t in tensors.items()}, f"{where}/{state}/model.safetensors",
                  metadata={"format": "pt"})
    with open(f"{where}/groups.json", "w") as f:
        json.dump(groups, f)


def run(name, case, folder, shown, sizes, out):
    import mbridge  # noqa: F401
    from megatron.core import parallel_state
    from transformers import AutoConfig, AutoModelForImageTextToText

    whole, sizes = AutoConfig.from_pretrained(f"{folder}/hf"), sizes_of(sizes)
    dtype = torch.bfloat16 if case.endswith("fsdp") else torch_dist_parallel.dtype_of(case)
    parallel_state.initialize_model_parallel(sizes.get("tp", 1), sizes.get("pp", 1),
                                             expert_model_parallel_size=sizes.get("ep", 1),
                                             context_parallel_size=sizes.get("cp", 1))
    torch.manual_seed(5)
    design, hf = design_of(case), whole.get_text_config()
    hf.tie_word_embeddings = whole.tie_word_embeddings
    config, model = torch_dist.build(hf, sizes, design, dtype, None)
    if "vision" in design:
        model = torch_dist_parallel.with_vision(model, AutoModelForImageTextToText.from_config(whole).to(dtype), design)
    bridge = torch_dist_parallel.bridge_of(hf, config, dtype, design)
    optimizer = optimizer_of(config, model, dtype)
    common, missing, unexpected = load(model, optimizer, shown)
    of_states = torch_dist_optimizer.live(torch_dist_parallel.parts([model], optimizer), bridge, 0)
    of_weights = torch_dist_optimizer.live(weights_of(model, bridge), bridge, 0)
    save_states(of_states, f"{out}/{name}/live")
    save_states(of_weights, f"{out}/{name}/weights")
    for param in model.parameters():
        param.main_grad.fill_(GRADIENT * optimizer.get_loss_scale().item())
    optimizer.step()
    save_states(torch_dist_optimizer.live(torch_dist_parallel.parts([model], optimizer), bridge, 0),
                f"{out}/{name}/stepped")
    if dist.get_rank() == 0:
        with open(f"{out}/{name}/said.json", "w") as f:
            json.dump({"iteration": common["iteration"], "args": vars(common["args"]), "missing": missing,
                       "unexpected": unexpected}, f)
    torch_dist.end_groups()


if __name__ == "__main__":
    with OnCpu():
        dist.init_process_group("gloo")
        patch_megatron()
        for one in sys.argv[2:]:
            run(*one.split(":"), sys.argv[1])
        leave()
