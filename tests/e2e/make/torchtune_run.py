"""What torchtune 0.6.1 saves, by its own checkpointers: torchtune_run.py OUT CASE...

full: OUT/full/run/{epoch_0,recipe_state} of the HF checkpointer and OUT/full/run/dist_epoch_0 of the distributed one.
lora: OUT/lora/{run,bin,only,native,meta}/epoch_0: the HF checkpointer (safetensors, .bin, adapter only), torchtune's own
and Meta's. OUT/CASE/live-FORM.safetensors is the model, OUT/lora/adapter-FORM.safetensors its adapter, in the names of each
form, converted by torchtune from the live tensors.
"""

import json
import os
import sys

import torch
import transformers

from absent import stand_in
from installed import installed

sys.path.append(str(installed("torchtune-0.6.1", "torchtune==0.6.1")))
stand_in("torchdata", "datasets", "omegaconf", "sentencepiece", "tiktoken", "blobfile", "kagglehub", "torchao.dtypes.nf4tensor",
         "torchao.quantization.int4_weight_only", "torchao.dtypes.TensorCoreTiledLayout",
         "torchao.quantization.int8_dynamic_activation_int4_weight")

from torchtune.models import convert_weights  # noqa: E402
from torchtune.models.llama3 import llama3, lora_llama3  # noqa: E402
from torchtune.modules.peft import get_adapter_params, get_adapter_state_dict, get_merged_lora_ckpt  # noqa: E402
from torchtune.training.checkpointing import (DistributedCheckpointer, FullModelHFCheckpointer,  # noqa: E402
                                              FullModelMetaCheckpointer, FullModelTorchTuneCheckpointer)

import oracle  # noqa: E402

HEADS = {"num_heads": 4, "num_kv_heads": 2}
SIZES = dict(HEADS, vocab_size=64, num_layers=2, embed_dim=32, max_seq_len=64, intermediate_dim=48)
LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "w1", "w2", "w3"], "peft_type": "LORA"}


def base(folder):
    """What a recipe starts from."""
    torch.manual_seed(6)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64)).save_pretrained(folder)
    with open(f"{folder}/original_repo_id.json", "w") as file:
        json.dump({"repo_id": "someone/base"}, file)


def checkpointer(cls, out, name, **options):
    os.makedirs(f"{out}/{name}", exist_ok=True)
    return cls(checkpoint_dir=f"{out}/base", checkpoint_files=["model.safetensors"], model_type="LLAMA3",
               output_dir=f"{out}/{name}", **options)


def trained(model, parameters):
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    for _ in range(2):
        model(torch.arange(8)[None]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def progress():
    """torchtune.training.checkpointing._checkpoint_client.TrainingProgress.state_dict"""
    return {"seed": 1, "epochs_run": 1, "total_epochs": 3, "max_steps_per_epoch": 4, "dataloader_state_dict": None}


def full(out):
    hf = checkpointer(FullModelHFCheckpointer, out, "run")
    model = llama3(**SIZES)
    model.load_state_dict(hf.load_checkpoint()["model"])
    optimizer = trained(model, model.parameters())
    live = {n: t.detach().clone() for n, t in model.state_dict().items()}
    hf.save_checkpoint({"model": dict(live), "optimizer": optimizer.state_dict(), **progress()}, epoch=0,
                       intermediate_checkpoint=True)
    DistributedCheckpointer(f"{out}/base", f"{out}/run").save_checkpoint(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **progress()}, epoch=0)
    oracle.write(convert_weights.tune_to_hf(dict(live), **HEADS, dim=32), f"{out}/live-hf.safetensors")
    oracle.write(live, f"{out}/live-tune.safetensors")
    oracle.write({f"{i}.{k}": v for i, s in optimizer.state_dict()["state"].items() for k, v in s.items()},
                 f"{out}/states.safetensors")


def lora(out):
    hf = checkpointer(FullModelHFCheckpointer, out, "run")
    model = lora_llama3(["q_proj", "v_proj"], apply_lora_to_mlp=True, lora_rank=4, lora_alpha=8, **SIZES)
    model.load_state_dict(hf.load_checkpoint()["model"], strict=False)
    optimizer = trained(model, get_adapter_params(model).values())
    live = {n: t.detach().clone() for n, t in model.state_dict().items()}
    adapter, merged = get_adapter_state_dict(live), get_merged_lora_ckpt(dict(live), rank=4, alpha=8)

    def state():
        return {"model": dict(merged), "adapter": dict(adapter), "adapter_config": dict(LORA),
                "optimizer": optimizer.state_dict(), **progress()}

    hf.save_checkpoint(state(), epoch=0, intermediate_checkpoint=True)
    for name, cls, options, only in (("bin", FullModelHFCheckpointer, {"safe_serialization": False}, False),
                                     ("only", FullModelHFCheckpointer, {}, True),
                                     ("native", FullModelTorchTuneCheckpointer, {}, False),
                                     ("meta", FullModelMetaCheckpointer, {}, False)):
        one = checkpointer(cls, out, name, **options)
        if cls is FullModelHFCheckpointer:
            one.load_checkpoint()  # says which file has which tensor
        one.save_checkpoint(state(), epoch=0, adapter_only=only)
    oracle.write(convert_weights.tune_to_hf(dict(merged), **HEADS, dim=32), f"{out}/live-hf.safetensors")
    oracle.write(convert_weights.tune_to_meta(dict(merged)), f"{out}/live-meta.safetensors")
    oracle.write(merged, f"{out}/live-native.safetensors")
    oracle.write(adapter, f"{out}/adapter-native.safetensors")
    oracle.write(convert_weights.tune_to_peft_adapter_weights(dict(adapter), **HEADS, dim=32),
                 f"{out}/adapter-hf.safetensors")


if __name__ == "__main__":
    where, cases = sys.argv[1], sys.argv[2:]
    for case in cases:
        base(f"{where}/{case}/base")
        {"full": full, "lora": lora}[case](f"{where}/{case}")
