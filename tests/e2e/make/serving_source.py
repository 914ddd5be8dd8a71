"""Small models for servers to load, in two ranks' shards and as transformers itself saves them:

    torchrun --nproc_per_node=2 serving_source.py OUT CASE...

OUT/CASE/run/checkpoint-1 and -2 are checkpoints of FSDP2; OUT/CASE/native-1 and -2 have the same weights. Heads and
experts can be dealt out to eight ranks, rows of the vocabulary cannot: they are padded."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers as T
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers.conversion_mapping import get_model_conversion_mapping

from leaving import leave

TEXT = {"vocab_size": 250, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 4, "max_position_embeddings": 128, "tie_word_embeddings": False, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 2}
VISION = {"depth": 2, "hidden_size": 64, "intermediate_size": 96, "num_heads": 8, "out_hidden_size": 64,
          "fullatt_block_indexes": [1], "window_size": 56, "patch_size": 14}


def llama():
    return T.LlamaForCausalLM(T.LlamaConfig(**TEXT, architectures=["LlamaForCausalLM"]))


def mixtral():
    return T.MixtralForCausalLM(T.MixtralConfig(**TEXT, num_local_experts=8, num_experts_per_tok=2,
                                                architectures=["MixtralForCausalLM"]))


def qwen2_5_vl():
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    return T.Qwen2_5_VLForConditionalGeneration(T.Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": rope}, vision_config=VISION, image_token_id=240, video_token_id=241,
        vision_start_token_id=242, vision_end_token_id=243, architectures=["Qwen2_5_VLForConditionalGeneration"]))


def make(out, make_model):
    torch.manual_seed(11)
    model = make_model().to(torch.bfloat16)
    model._weight_conversions = get_model_conversion_mapping(model, add_legacy=False) or None  # saved as published
    values = [{name: torch.randn_like(t) * 0.3 for name, t in model.state_dict().items()} for _ in range(2)]
    for step, state in enumerate(values, 1):
        model.load_state_dict(state)
        if dist.get_rank() == 0:
            model.save_pretrained(f"{out}/native-{step}")
            model.config.save_pretrained(f"{out}/run")
    dist.barrier()
    for step, state in enumerate(values, 1):
        model = make_model().to(torch.bfloat16)
        model.load_state_dict(state)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=f"{out}/run/checkpoint-{step}/pytorch_model_fsdp_0")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for case in sys.argv[2:]:
        make(f"{sys.argv[1]}/{case}", globals()[case])
    leave()
