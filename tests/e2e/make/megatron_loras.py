"""LoRAs as Megatron-Bridge trains and saves them with Megatron-Core, several cases in one launch:

    torchrun --nproc_per_node=2 megatron_loras.py OUT CASE...

Each makes OUT/CASE/hf, the base model; OUT/CASE/run/iter_0000002, what Bridge saves of the adapter alone, with its
run_config.yaml; OUT/CASE/merged.safetensors, the model that Bridge itself exports with the adapter merged, in fp64; and
OUT/CASE/lora.safetensors, the adapter's matrices as it exports them. Both are of the live model, on all its ranks.

Bridge does not merge DoRA: its own layer says what the weight is. Experts one by one (not of Transformer Engine) are merged by
Bridge's LoRAMerge and put together for its export, which has no names for them. Its experts of Transformer Engine are made of the same
adapters, without what computes them."""

import dataclasses
import os
import re
import sys
import types
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
import yaml

import megatron_bridge
import torch_dist

MODULES = ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
PARTS = ["linear_q", "linear_k", "linear_v", "linear_proj", "linear_fc1_up", "linear_fc1_gate", "linear_fc2"]
LATENT = ["linear_q_proj", "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj"]
MOE = {"moe": True, "qk_norm": True}

# case -> the case of torch_dist.py, method, its settings, Megatron's sizes
CASES = {
    "llama-tp2": ("llama-tp2", "LoRA", {"target_modules": MODULES, "dim": 4, "alpha": 6}, {"tp": 2}),
    "qwen3-pp2-bf16": ("qwen3-tp2-bf16", "LoRA", {"target_modules": MODULES, "dim": 8, "alpha": 32}, {"pp": 2}),
    "canonical-tp2": ("llama-tp2", "CanonicalLoRA", {"target_modules": PARTS, "dim": 4, "alpha": 6}, {"tp": 2}),
    "canonical-dp2-bf16": ("qwen3-tp2-bf16", "CanonicalLoRA", {"target_modules": PARTS, "dim": 2, "alpha": 5}, {}),
    "dora-dp2": ("llama-tp2", "DoRA", {"target_modules": MODULES, "dim": 4, "alpha": 6}, {}),
    "dora-tp2": ("llama-tp2", "DoRA", {"target_modules": ["linear_qkv", "linear_fc1"], "dim": 4, "alpha": 6}, {"tp": 2}),
    "dora-rows-tp2": ("llama-tp2", "DoRA", {"target_modules": MODULES, "dim": 4, "alpha": 6}, {"tp": 2}),
    "by-layer-pp2": ("qwen3-by-layer", "LoRA", {"target_modules": ["*.layers.0.*.linear_qkv", "*.layers.1.*.linear_fc1"],
                                                "dim": 4, "alpha": 4}, {"pp": 2}),
    "grouped-latent-pp2": ("deepseek_v3-tp2-pp2-ep2", "LoRA",
                           {"target_modules": [*MODULES[1:], *LATENT, "router"], "dim": 4, "alpha": 6}, {"pp": 2}),
    "nemo-tp2": ("llama-tp2", "LoRA", {"target_modules": MODULES, "dim": 4, "alpha": 6}, {"tp": 2}),
    "experts-dp2": ("qwen3_moe-dp2", "LoRA", {"target_modules": MODULES, "dim": 4, "alpha": 6}, {}),
    "grouped-dp2": ("qwen3_moe-dp2", "LoRA", {"target_modules": MODULES, "dim": 4, "alpha": 6}, {}),
    "grouped-ep2": ("qwen3_moe-dp2", "LoRA", {"target_modules": MODULES, "dim": 4, "alpha": 6}, {"ep": 2}),
    "gpt_oss-dp2": ("gpt_oss-dp2", "LoRA", {"target_modules": MODULES[:2], "dim": 4, "alpha": 6}, {}),
    "gpt_oss-experts-dp2": ("gpt_oss-dp2", "LoRA", {"target_modules": MODULES, "dim": 4, "alpha": 6}, {}),
}


def import_bridge():
    """megatron_bridge.py's, with the adapters; Transformer Engine is not there, but for the names in annotations."""
    megatron_bridge.CONVERTS = re.compile(megatron_bridge.CONVERTS.pattern + r"|megatron\.bridge\.(peft\.\w+|utils\."
                                          r"import_utils)")
    import megatron.core.extensions.transformer_engine  # noqa: F401
    from megatron.core.transformer import attention

    attention.HAVE_TE = False  # it says so whether there is one or not

    engine = types.ModuleType("transformer_engine.pytorch")
    engine.Linear = type("Linear", (torch.nn.Module,), {})
    engine.ops = types.SimpleNamespace(Sequential=None, Linear=None)
    sys.modules |= {"transformer_engine": types.ModuleType("transformer_engine"), "transformer_engine.pytorch": engine}
    sys.modules["transformer_engine"].pytorch = engine
    megatron_bridge.import_bridges()
    from megatron.bridge.peft import module_matcher, utils

    utils.HAVE_TE = module_matcher.HAVE_TE = False


def fill_adapters(model):
    """Each rank has other parts of them, and copies of a part are equal."""
    from megatron.core import parallel_state as ps

    rank = (ps.get_tensor_model_parallel_rank(), ps.get_pipeline_model_parallel_rank())
    for name, param in model.named_parameters():
        if ".adapter." not in name:
            continue
        experts = ps.get_expert_model_parallel_rank() if ".experts." in name else 0
        torch.manual_seed(zlib.crc32(f"{name} {rank} {experts}".encode()))
        if name.endswith("weight_magnitude"):
            if re.search(r"linear_(proj|fc2)", name):
                torch.manual_seed(len(name))  # all tensor-parallel ranks have it
            param.data.mul_(torch.rand(param.shape) + 0.5)
        else:
            param.data.copy_(torch.randn(param.shape) * 0.3)


class Grouped(torch.nn.Module):
    """A matrix for each expert of this rank, as Transformer Engine's module has them."""

    def __init__(self, weights):
        super().__init__()
        for i, weight in enumerate(weights):
            self.register_parameter(f"weight{i}", weight)

    def sharded_state_dict(self, *args, **kwargs):
        return {}  # Bridge saves the adapter alone


class TEColumnParallelGroupedLinear(Grouped):
    pass


class TERowParallelGroupedLinear(Grouped):
    pass


def group(model, settings):
    """What Bridge's LoRA.transform makes of grouped experts."""
    from megatron.bridge.peft.lora import LoRALinear
    from megatron.bridge.peft.utils import ParallelLinearAdapter
    from megatron.core import parallel_state
    from megatron.core.transformer.moe.experts import TEGroupedMLP

    for path, experts in [(n, m) for n, m in model.named_modules() if hasattr(m, "local_experts")]:
        members, ep_group = list(experts.local_experts), experts.ep_group
        for name, kind, parallel in (("linear_fc1", TEColumnParallelGroupedLinear, False),
                                     ("linear_fc2", TERowParallelGroupedLinear, True)):
            weights = [getattr(e, name).weight for e in members]
            ranks = parallel_state.get_expert_tensor_parallel_world_size()
            out, inside = (n * r for n, r in zip(weights[0].shape, (1, ranks) if parallel else (ranks, 1)))
            adapter = ParallelLinearAdapter(
                inside, out, settings["dim"], base_linear_name=f"{path}.{name}",
                activation="identity", column_init_method="xavier", row_init_method="zero", input_is_parallel=parallel,
                model_parallel_config=model.config, alpha=settings["alpha"], is_expert=True)
            experts.add_module(name, LoRALinear(kind(weights), adapter))
        experts.config, experts.num_local_experts, experts.ep_group = model.config, len(members), ep_group
        experts.tp_group = None
        del experts.local_experts
        experts.sharded_state_dict = types.MethodType(TEGroupedMLP.sharded_state_dict, experts)


def adapted(model, method, settings, grouped):
    from megatron.bridge.peft.canonical_lora import CanonicalLoRA
    from megatron.bridge.peft.dora import DoRA
    from megatron.bridge.peft.lora import LoRA

    if grouped:
        group(model, settings)
    peft = {"LoRA": LoRA, "CanonicalLoRA": CanonicalLoRA, "DoRA": DoRA}[method](**settings)
    model = peft(model)
    fill_adapters(model)
    return peft, model


def merge_dora(model):
    """Puts into each layer the weight with which it computes, and takes the adapter off."""
    from megatron.bridge.peft.dora_layers import DoRALinear

    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if not isinstance(layer, DoRALinear):
                continue
            base, adapter = layer.to_wrap, layer.adapter
            torch.manual_seed(5)  # each rank has all inputs
            x = torch.randn(3, base.weight.shape[1], dtype=base.weight.dtype)
            identity = torch.eye(base.weight.shape[1], dtype=base.weight.dtype)
            change = adapter(identity[:, None])[:, 0].T
            weight = (adapter.weight_magnitude / layer._get_weight_norm())[:, None] * (base.weight + change)
            assert torch.allclose(layer(x[:, None])[0][:, 0], x @ weight.T, rtol=1e-12, atol=1e-12)
            base.weight.data.copy_(weight)
            setattr(parent, name, base)


def merge_each(model):
    """Bridge's LoRAMerge of every layer, for experts one by one, which Bridge merges but has no published names of."""
    from megatron.bridge.peft.lora import LoRALinear, LoRAMerge

    LoRAMerge()(model)
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, LoRALinear):
                setattr(parent, name, layer.to_wrap)
    megatron_bridge.group_experts(model)


def save_config(peft, sizes, path):
    """What Bridge's ConfigContainer.to_yaml writes of these two: each field beside the class."""
    fields = {f.name: getattr(peft, f.name) for f in dataclasses.fields(peft) if f.init and f.name != "canonical_mapping"}
    method = {"_target_": f"{type(peft).__module__}.{type(peft).__qualname__}"} | fields
    model = {f"{k}_parallel_size": sizes.get(v, 1)
             for k, v in (("tensor_model", "tp"), ("pipeline_model", "pp"), ("expert_model", "ep"))}
    with open(path, "w") as out:
        yaml.safe_dump({"model": model, "peft": method}, out, default_flow_style=False)


def as_nemo(settings, out):
    """The same checkpoint where NeMo 2 saves it, with the method where its context/model.yaml has it. NeMo is not run."""
    top = Path(f"{out}/run/model--step={torch_dist.STEP}")
    (top / "context").mkdir(parents=True)
    Path(f"{out}/run/iter_{torch_dist.STEP:07}").rename(top / "weights")
    (top / "weights/run_config.yaml").unlink()
    method = yaml.safe_dump({"model_transform": {"_target_": "nemo.collections.llm.peft.lora.LoRA"} | settings})
    text = (Path(__file__).parents[2] / "golden/nemo/llama-tp2.yaml").read_text()
    (top / "context/model.yaml").write_text(text.replace("model_transform: null\n", method))


def export(model, hf, folder, method):
    """-> Bridge's merged model, and the adapter's matrices."""
    from megatron.bridge.models.hf_pretrained.state import SafeTensorsStateSource, StateDict

    bridge = megatron_bridge.bridge_for(hf)
    bridge.hf_config = hf
    published = types.SimpleNamespace(config=hf, state=StateDict(SafeTensorsStateSource(f"{folder}/hf")))
    one_by_one = any(hasattr(m, "local_experts") for m in model.modules())
    loras = {} if method == "DoRA" or one_by_one else {
        n: t.detach().clone() for n, t in bridge.stream_adapter_weights_megatron_to_hf([model], show_progress=False)}
    model = model.double()
    if method == "DoRA":
        merge_dora(model)
    elif one_by_one:
        merge_each(model)
    tasks = [task for task in bridge.build_conversion_tasks(published, [model]) if task]
    merged = {n: t.detach().clone() for n, t in bridge.stream_weights_megatron_to_hf(
        [model], published, show_progress=False, conversion_tasks=tasks)}
    return merged, loras


def run(case, out):
    import mbridge  # noqa: F401
    import megatron.core  # noqa: F401
    from megatron.core import parallel_state
    from safetensors.torch import load_file, save_file

    of, method, settings, sizes = CASES[case]
    model_type, changes, _, more = torch_dist.CASES[of]
    dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
    more = {k: v for k, v in more.items() if k != "padded"}
    hf = torch_dist.hf_model(model_type, changes, None, 0, dtype).to(dtype)
    if dist.get_rank() == 0:
        hf.save_pretrained(f"{out}/hf")
        os.makedirs(f"{out}/run/iter_{torch_dist.STEP:07}")
    dist.barrier()
    parallel_state.initialize_model_parallel(sizes.get("tp", 1), sizes.get("pp", 1), None,
                                             expert_model_parallel_size=sizes.get("ep", 1))
    weights = torch_dist.text_weights(load_file(f"{out}/hf/model.safetensors"))
    config, model = torch_dist.build(hf.config, sizes, more, dtype, None)
    torch_dist.fill(model, hf.config, torch_dist.bridge_of(hf.config, config, dtype, more), weights)
    peft, model = adapted(model, method, settings, case.startswith("grouped"))
    model = model.to(dtype)
    metadata = more.get("metadata", {}) | {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    prefix = "module." if case.startswith("nemo") else ""
    state = {k: v for k, v in model.sharded_state_dict(prefix=prefix, metadata=metadata).items() if peft.adapter_key_filter(k)}
    for part in state.values():
        if isinstance(part.data, torch.Tensor):
            part.data = part.data.clone()  # the model becomes fp64
    merged, loras = {}, {}
    if case not in ("dora-rows-tp2", "grouped-ep2", "gpt_oss-experts-dp2"):
        merged, loras = export(model, hf.config, out, method)
    if dist.get_rank() == 0:
        save_config(peft, sizes, f"{out}/run/iter_{torch_dist.STEP:07}/run_config.yaml")
        save_file(merged, f"{out}/merged.safetensors")
        save_file({n: t.contiguous() for n, t in loras.items()}, f"{out}/lora.safetensors")
    torch_dist.save({"model": state}, out)
    if dist.get_rank() == 0 and prefix:
        as_nemo(settings, out)


if __name__ == "__main__":
    import_bridge()
    torch_dist.run_all(run)
