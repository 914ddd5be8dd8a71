"""A small Llama for other programs to read, in two ranks' shards and as transformers itself saves it:

    torchrun --nproc_per_node=2 program_source.py OUT llama

OUT/llama/run/checkpoint-1 is a checkpoint of FSDP2; OUT/llama/native has the same weights. Both have a tokenizer."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from leaving import leave

WORDS = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(125))]


def tokenizer():
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
                                   pad_token="</s>")


def main(out):
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    config = LlamaConfig(vocab_size=len(WORDS), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1,
                         eos_token_id=2, pad_token_id=2, tie_word_embeddings=False, architectures=["LlamaForCausalLM"])
    model = LlamaForCausalLM(config)
    run = f"{out}/llama/run"
    if dist.get_rank() == 0:
        for where in (f"{out}/llama/native", run):
            os.makedirs(where)
            tokenizer().save_pretrained(where)
        model.save_pretrained(f"{out}/llama/native")
        model.config.save_pretrained(run)
        model.generation_config.save_pretrained(run)
    dist.barrier()
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=f"{run}/checkpoint-1/pytorch_model_fsdp_0")


if __name__ == "__main__":
    main(sys.argv[1])
    leave()
