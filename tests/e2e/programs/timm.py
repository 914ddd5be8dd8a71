"""`timm.create_model("local-dir:...")` of a vision transformer that Accelerate's `save_state` wrote with FSDP2 in two ranks, one forward pass."""

PACKAGE, EQUAL = "timm", "logits"
REQUIRES = ["pillow==13.0.0", "timm==1.0.31"]


def rank(n, out, port):
    import os
    import pathlib
    import shutil
    import sys

    os.environ.update(RANK=str(n), LOCAL_RANK=str(n), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port,
                      ACCELERATE_USE_CPU="true")
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "make"))
    import cpu_fsdp  # noqa: F401
    import oracle
    import torch
    import torch.distributed as dist
    from absent import stand_in
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from leaving import leave

    stand_in("torchvision")  # for pictures; the registry's does not load beside torch for the CPU
    import timm
    from timm.models import save_for_hf

    def vit():
        return timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5)

    torch.manual_seed(3)
    model = vit()
    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type="SHARDED_STATE_DICT", auto_wrap_policy="NO_WRAP", cpu_ram_efficient_loading=False))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    accelerator.backward(model(torch.ones(2, 3, 32, 32) * (n + 1)).pow(2).mean())
    optimizer.step()
    live = oracle.full_tensors(model)
    accelerator.save_state(f"{out}/run/checkpoint-1")
    if n == 0:
        plain = vit()
        plain.load_state_dict(live)
        save_for_hf(plain, f"{out}/native", model_args={"img_size": 32, "depth": 2}, safe_serialization=True)
        shutil.copy(f"{out}/native/config.json", f"{out}/run/config.json")
    dist.barrier()
    leave()


def read(directory, scratch):
    import pathlib
    import sys

    import torch

    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "make"))
    from absent import stand_in

    stand_in("torchvision")
    import timm

    model = timm.create_model(f"local-dir:{directory}", pretrained=True).eval()
    with torch.no_grad():
        return {"logits": model(torch.linspace(0, 1, 3 * 32 * 32).reshape(1, 3, 32, 32))}
