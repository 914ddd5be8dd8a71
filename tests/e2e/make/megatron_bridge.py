"""What Megatron-Bridge exports of Megatron-Core's checkpoints, several in one launch:

    torchrun --nproc_per_node=1 megatron_bridge.py OUT FOLDER CASE...

FOLDER/CASE is what torch_dist.py made. megatron-core loads it into a model on one rank, whatever the number of ranks that
saved it, and Megatron-Bridge converts that model: OUT/CASE.safetensors. OUT/CASE.json says of each parameter whether
Bridge has a mapping for it. It is null, and there are no tensors, if Bridge has no bridge for such models.

Only what converts is imported of Megatron-Bridge. The rest builds and trains models, with Transformer Engine and much else."""

import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import re
import sys
import types
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from safetensors.torch import save_file

import torch_dist
from installed import installed
from leaving import leave

BRIDGE = "megatron.bridge"
CONVERTS = re.compile(r"megatron\.bridge\.(models\.(conversion\.\w+|decorators\.dispatch|hf_pretrained\.state"
                      r"|\w+\.(\w+_bridge|common))|utils\.(common|slurm)_utils)")


class Stub(types.ModuleType):
    """A module with an empty class under every name. Bridge has them as bases, in annotations and as keys."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (torch.nn.Module,), {})


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds, in place of Bridge's modules that convert nothing and of its packages, stubs."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith(f"{BRIDGE}.") and not CONVERTS.fullmatch(name):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        module = Stub(spec.name)
        module.__path__ = [str(Path(self.folder, *spec.name.split(".")))]
        return module

    def exec_module(self, module):
        pass


def import_bridges():
    """Each registers itself for a class of transformers."""
    import megatron.core  # noqa: F401

    folder = installed("megatron-bridge-0.3.1", "megatron-bridge==0.3.1")
    sys.meta_path.insert(0, Stubs(folder))
    for source in sorted(Path(folder, "megatron/bridge/models").glob("*/*_bridge.py")):
        if source.parent.name != "conversion":
            importlib.import_module(f"{BRIDGE}.models.{source.parent.name}.{source.stem}")


def bridge_for(hf):
    from megatron.bridge.models.conversion.model_bridge import get_model_bridge

    auto = transformers.AutoModelForImageTextToText if hasattr(hf, "vision_config") else transformers.AutoModelForCausalLM
    try:
        return get_model_bridge(auto._model_mapping[type(hf)])
    except NotImplementedError:
        return None


# Transformer Engine's modules of all experts, as far as Bridge looks at them: their names and their parameters.
class TEColumnParallelGroupedLinear(torch.nn.Module):
    pass


class TERowParallelGroupedLinear(torch.nn.Module):
    pass


def group_experts(model):
    """Bridge has mappings for experts as Transformer Engine has them, and for others of one family alone."""
    for experts in [m for m in model.modules() if hasattr(m, "local_experts")]:
        for name, group in (("linear_fc1", TEColumnParallelGroupedLinear()), ("linear_fc2", TERowParallelGroupedLinear())):
            for e, expert in enumerate(experts.local_experts):
                for part, param in getattr(expert, name).named_parameters():
                    group.register_parameter(f"{part}{e}", param)
            experts.add_module(name, group)
        del experts.local_experts


def loaded(case, checkpoint, hf):
    """megatron-core's own reading of it. A tensor that is not read stays NaN."""
    from megatron.core import dist_checkpointing

    model_type, _, _, more = torch_dist.CASES[case]
    dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
    text = hf.get_text_config()
    text.tie_word_embeddings = hf.tie_word_embeddings
    _, model = torch_dist.build(text, {}, more, dtype, None)
    if model_type in torch_dist.TOWER:
        tower = transformers.AutoModelForImageTextToText.from_config(hf).model.visual.to(dtype)
        model = torch_dist.with_tower(model, tower, torch_dist.TOWER[model_type])
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.fill_(float("nan"))
    state = {"model": model.sharded_state_dict(metadata=more.get("metadata"))}
    model.load_state_dict(dist_checkpointing.load(state, checkpoint)["model"])
    return model


def run(case, folder, out):
    from megatron.bridge.models.hf_pretrained.state import SafeTensorsStateSource, StateDict

    hf = transformers.AutoConfig.from_pretrained(f"{folder}/hf")
    bridge, mapped = bridge_for(hf), None
    if bridge:
        model = loaded(case, f"{folder}/run/iter_0000002", hf)
        group_experts(model)
        bridge.hf_config = hf
        published = types.SimpleNamespace(config=hf, state=StateDict(SafeTensorsStateSource(f"{folder}/hf")))
        tasks = bridge.build_conversion_tasks(published, [model])
        mapped = dict(zip(bridge._megatron_global_param_names_all_pp_ranks([model]), map(bool, tasks)))
        exported = bridge.stream_weights_megatron_to_hf([model], published, show_progress=False,
                                                        conversion_tasks=[task for task in tasks if task])
        save_file({name: tensor.detach().clone() for name, tensor in exported}, f"{out}.safetensors")
    Path(f"{out}.json").write_text(json.dumps(mapped))


if __name__ == "__main__":
    from megatron.core import parallel_state

    dist.init_process_group("gloo")
    import_bridges()
    parallel_state.initialize_model_parallel()
    logging.disable(logging.WARNING)  # Bridge's, of each parameter that it does not map
    for one in sys.argv[3:]:
        run(one, f"{sys.argv[2]}/{one}", f"{sys.argv[1]}/{one}")
    leave()
