"""LitGPT's `GPT` of what its `pretrain` state becomes by `fabric.save` with FSDP in two ranks, one forward pass; the other directory is Fabric's own consolidation."""

PACKAGE, EQUAL = "litgpt", "logits"
REQUIRES = ["docstring_parser==0.18.0", "jsonargparse==4.41.0", "litgpt==0.5.13", "typeshed_client==2.14.0"]


def gpt():
    from litgpt.model import GPT, Config

    return GPT(Config(block_size=32, n_layer=2, n_head=2, n_embd=32, vocab_size=64, padded_vocab_size=64, intermediate_size=48,
                      mlp_class_name="LLaMAMLP", norm_class_name="RMSNorm", bias=False, rotary_percentage=1.0,
                      parallel_residual=False))


def fsdp(fabric_run):
    from litgpt.model import Block

    return fabric_run.Fsdp(state_dict_type="sharded", auto_wrap_policy={Block})


def rank(n, out, port, strategy_of=fsdp):
    import os
    import pathlib
    import sys

    os.environ.update(RANK=str(n), LOCAL_RANK=str(n), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", GROUP_RANK="0", NODE_RANK="0",
                      MASTER_ADDR="localhost", MASTER_PORT=port, TORCHELASTIC_RUN_ID="here")
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "make"))
    import fabric_run
    import torch
    from leaving import leave
    from lightning.fabric import Fabric
    from lightning.fabric.utilities.load import _load_distributed_checkpoint
    from safetensors.torch import save_file

    fabric = Fabric(accelerator=fabric_run.Accelerator(), devices=2, strategy=strategy_of(fabric_run))
    fabric.launch()
    torch.manual_seed(1)
    model = fabric.setup(gpt())
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-2))
    fabric.backward(model(torch.arange(16)[None] + n).pow(2).mean())
    optimizer.step()
    fabric.save(f"{out}/run/checkpoint-1", {"model": model, "optimizer": optimizer, "iter_num": 3, "step_count": 1})
    if n == 0:
        os.makedirs(f"{out}/native")
        whole = _load_distributed_checkpoint(pathlib.Path(f"{out}/run/checkpoint-1"))["model"]
        save_file({k: v.contiguous() for k, v in whole.items()}, f"{out}/native/model.safetensors")
    leave()


def read(directory, scratch):
    import torch
    from safetensors.torch import load_file

    model = gpt()
    model.load_state_dict(load_file(f"{directory}/model.safetensors"))
    with torch.no_grad():
        return {"logits": model(torch.arange(16)[None])}
