"""LoRAs as torchtune 0.6.1 saves them under its own names: torchtune_loras.py OUT CASE...

OUT/CASE/base is the model as transformers saves it; OUT/CASE/run/epoch_0/adapter_model.pt is what torchtune's own checkpointer
writes with `save_adapter_weights_only`, below torchtune_config.yaml, and OUT/llama/later/dist_epoch_0 what its
distributed one writes (model and LoRA). OUT/CASE/merged.safetensors is torchtune's get_merged_lora_ckpt in fp64, under transformers' names by
torchtune's converters.
"""

import sys

import torch
import transformers

from torchtune_run import FullModelHFCheckpointer, FullModelTorchTuneCheckpointer, convert_weights, trained  # first: it installs

from torchtune.models.gemma import lora_gemma
from torchtune.models.llama3 import lora_llama3
from torchtune.models.mistral import lora_mistral
from torchtune.models.qwen2 import lora_qwen2
from torchtune.models.qwen2._convert_weights import qwen2_tune_to_hf
from torchtune.modules.peft import get_adapter_params, get_adapter_state_dict, get_merged_lora_ckpt
from torchtune.training.checkpointing import DistributedCheckpointer

import oracle

HEADS = {"num_heads": 4, "num_kv_heads": 2}
SIZES = dict(HEADS, vocab_size=64, num_layers=2, embed_dim=32, max_seq_len=64, intermediate_dim=48)
ALL = ["q_proj", "k_proj", "v_proj", "output_proj"]
# name -> (model_type of torchtune, class of transformers, builder, what it is built with, dtype)
CASES = {
    "llama": ("LLAMA3", transformers.LlamaForCausalLM, lora_llama3, dict(apply_lora_to_output=True), torch.bfloat16),
    "llama-dora": ("LLAMA3", transformers.LlamaForCausalLM, lora_llama3, dict(use_dora=True), torch.float32),
    "mistral": ("MISTRAL", transformers.MistralForCausalLM, lora_mistral, dict(), torch.float32),
    "gemma": ("GEMMA", transformers.GemmaForCausalLM, lora_gemma, dict(head_dim=16), torch.bfloat16),
    "qwen2": ("QWEN2", transformers.Qwen2ForCausalLM, lora_qwen2, dict(), torch.bfloat16),
}


def save(out, case):
    kind, base, builder, settings, dtype = CASES[case]
    torch.manual_seed(7)
    head_dim = settings.get("head_dim", 8)
    base(base.config_class(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                           num_key_value_heads=2, max_position_embeddings=64, head_dim=head_dim,
                           tie_word_embeddings=case == "gemma")).to(dtype).save_pretrained(f"{out}/base")
    hf = FullModelHFCheckpointer(checkpoint_dir=f"{out}/base", checkpoint_files=["model.safetensors"], model_type=kind,
                                 output_dir=f"{out}/unused")
    model = builder(ALL, apply_lora_to_mlp=True, lora_rank=4, lora_alpha=6, **SIZES, **settings).to(dtype)
    model.load_state_dict(hf.load_checkpoint()["model"], strict=False)
    with torch.no_grad():
        for name, p in get_adapter_params(model).items():
            p.copy_(torch.randn(p.shape) * 0.2 + ("magnitude" in name))
    state = {n: t.detach().clone() for n, t in model.state_dict().items()}
    native = FullModelTorchTuneCheckpointer(checkpoint_dir=f"{out}/base", checkpoint_files=["model.safetensors"],
                                            model_type=kind, output_dir=f"{out}/run")
    native.save_checkpoint({"model": {}, "adapter": get_adapter_state_dict(state)}, epoch=0, adapter_only=True)
    optimizer = trained(model, get_adapter_params(model).values()) if case == "llama" else None
    if optimizer:  # the run goes on, and its last step is saved by the other checkpointer
        state = {n: t.detach().clone() for n, t in model.state_dict().items()}
        DistributedCheckpointer(f"{out}/base", f"{out}/later").save_checkpoint(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, epoch=0)
        merge(f"{out}/merged-later.safetensors", case, state, head_dim)
    for run in {"run", "later" if optimizer else "run"}:
        with open(f"{out}/{run}/torchtune_config.yaml", "w") as file:  # as save_config writes it
            file.write(f"model:\n  _component_: torchtune.models.{case}\n  lora_rank: 4\n  lora_alpha: 6\n")
    adapter = torch.load(f"{out}/run/epoch_0/adapter_model.pt", weights_only=True)
    merge(f"{out}/merged.safetensors", case, {**state, **adapter}, head_dim)


def merge(path, case, state, head_dim):
    merged = get_merged_lora_ckpt({n: t.double() for n, t in state.items()}, rank=4, alpha=6)
    convert = qwen2_tune_to_hf if case == "qwen2" else convert_weights.tune_to_hf
    oracle.write(convert(merged, **HEADS, dim=32, head_dim=head_dim), path)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        save(f"{sys.argv[1]}/{name}", name)
