"""Models as Megatron-Bridge's own code saves them, several cases in one launch:

    torchrun --nproc_per_node=2 bridge_run.py OUT CASE...

Each makes OUT/CASE/hf, what save_pretrained writes of a tiny model and its tokenizer, and OUT/CASE/run as Megatron-Bridge
0.3.1 saves that model (AutoBridge.save_megatron_model): iter_0000000 with shards, run_config.yaml and tokenizer/.
OUT/CASE/exported.safetensors is what its bridge exports of the model in memory. That is not hf/ in all rows: gloo scatters
what ranks share by columns otherwise than NCCL. The model is made of megatron-core's modules, because Transformer Engine is
not installed.
"""

import importlib.abc
import importlib.machinery
import sys
import types

import torch
import torch.distributed as dist
import transformers.models.auto.modeling_auto  # noqa: F401  before the stubs: what is not installed stays absent to these
import megatron.core.distributed  # noqa: F401
import megatron.core.models.gpt.gpt_layer_specs  # noqa: F401
import megatron.core.optimizer  # noqa: F401
import megatron.core.transformer.moe.experts  # noqa: F401

import torch_dist
from installed import installed

ABSENT = {"datasets", "hydra", "mamba_ssm", "megatron.bridge.data", "megatron.bridge.recipes",
          "megatron.core.inference.contexts.attention_context.triton", "modelopt", "nvidia_resiliency_ext", "omegaconf",
          "torch.utils.tensorboard", "transformer_engine", "wandb"}
# case -> model_type, changes to torch_dist.TEXT, sizes of parallelism
CASES = {
    "llama": ("llama", {}, {"tensor_model_parallel_size": 2}),
    "qwen2": ("qwen2", {"head_dim": 4, "tie_word_embeddings": True}, {"pipeline_model_parallel_size": 2}),
}


class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Anything(name, (torch.nn.Module,), {})


class Stub(types.ModuleType):
    """A module with a class under every name."""

    def __getattr__(self, name):
        return Anything.__getattr__(self, name)


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{one}.") for one in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        module.__path__ = []


torch.cuda.get_rng_state = lambda *args: torch.get_rng_state()  # there is no GPU
sys.meta_path.insert(0, Stubs())
sys.path.insert(0, str(installed("megatron-bridge-0.3.1", "megatron-bridge==0.3.1")))


def layers_of_core(config, vp_stage=None):
    """GPTModelProvider.transformer_layer_spec: what its default asks Transformer Engine for."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec

    return get_gpt_decoder_block_spec(config, use_transformer_engine=False, vp_stage=vp_stage)


# In place of what a GPU or Transformer Engine does.
ON_CPU = dict.fromkeys(("gradient_accumulation_fusion", "masked_softmax_fusion", "bias_activation_fusion",
                        "persist_layer_norm", "apply_rope_fusion", "moe_permute_fusion", "moe_grouped_gemm"), False) | {
    "transformer_layer_spec": layers_of_core, "use_cpu_initialization": True, "params_dtype": torch.float32,
    "pipeline_dtype": torch.float32, "moe_token_dispatcher_type": "allgather"}


def save_tokenizer(where, n):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(n - 2)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>").save_pretrained(where)


def run(case, out):
    from megatron.bridge import AutoBridge
    from megatron.bridge.training import checkpointing
    from megatron.core import parallel_state
    from megatron.core.process_groups_config import ProcessGroupCollection
    from safetensors.torch import save_file

    checkpointing.save_sharded_modelopt_state = lambda *args: None  # of modelopt, which adds nothing to such a model
    model_type, changes, sizes = CASES[case]
    if dist.get_rank() == 0:
        torch_dist.hf_model(model_type, changes, None).save_pretrained(f"{out}/hf")
        save_tokenizer(f"{out}/hf", torch_dist.TEXT["vocab_size"])
    dist.barrier()
    bridge = AutoBridge.from_hf_pretrained(f"{out}/hf", torch_dtype=torch.float32)
    provider = bridge.to_megatron_provider(load_weights=False)
    for name, value in (sizes | ON_CPU).items():
        setattr(provider, name, value)
    parallel_state.initialize_model_parallel(**sizes)
    provider._pg_collection = ProcessGroupCollection.use_mpu_process_groups()
    provider.finalize()
    model = [provider.provide()]
    bridge.load_hf_weights(model)
    exported = {n: t.detach().clone() for n, t in bridge.export_hf_weights(model, show_progress=False)}
    if dist.get_rank() == 0:
        save_file(exported, f"{out}/exported.safetensors", metadata={"format": "pt"})
    bridge.save_megatron_model(model, f"{out}/run", hf_tokenizer_path=f"{out}/hf")
    parallel_state.destroy_model_parallel()
    dist.barrier()


if __name__ == "__main__":
    torch_dist.run_all(run)
