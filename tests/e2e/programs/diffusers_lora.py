"""A UNet with the LoRA that `add_adapter` put into it, from an Accelerate state with FSDP2 in two ranks, one forward pass: diffusers loads its own adapter, `PeftModel.from_pretrained` the view `adapter`, and a pipeline's `load_lora_weights` what `save_lora_weights` made of that view. The view `merged` gives the same within 1e-5."""

PACKAGE, EQUAL = "diffusers", "logits"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "diffusers==0.42.1", "importlib_metadata==10.2.0",
            "lazy-importer==0.1.0", "pillow==13.0.0", "requests==2.34.2", "urllib3==2.8.0", "zipp==4.1.2"]


def unet():
    import torch
    from diffusers import UNet2DConditionModel

    torch.manual_seed(3)
    return UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8)


def rank(n, out, port):
    """As train_text_to_image_lora.py of diffusers trains; its LoraConfig is saved beside."""
    import os
    import pathlib
    import sys

    os.environ.update(RANK=str(n), LOCAL_RANK=str(n), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port,
                      ACCELERATE_USE_CPU="true")
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "make"))
    import cpu_fsdp  # noqa: F401
    import oracle
    import torch
    import torch.distributed as dist
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from leaving import leave
    from peft import LoraConfig

    config = LoraConfig(r=4, lora_alpha=8, init_lora_weights="gaussian", target_modules=["to_k", "to_q", "to_v", "to_out.0"])
    model = unet()
    if n == 0:
        model.save_pretrained(f"{out}/base")
        model.save_config(f"{out}/run")
        config.save_pretrained(f"{out}/run")
    model.requires_grad_(False)
    model.add_adapter(config)
    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type="SHARDED_STATE_DICT", auto_wrap_policy="NO_WRAP", cpu_ram_efficient_loading=False))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2))
    accelerator.backward(model(torch.ones(1, 4, 8, 8), 3, torch.ones(1, 12, 32) * (n + 1)).sample.pow(2).mean())
    optimizer.step()
    live = oracle.full_tensors(model)
    accelerator.save_state(f"{out}/run/checkpoint-1")
    if n == 0:
        plain = unet()
        plain.add_adapter(config)
        plain.load_state_dict(live)
        plain.save_lora_adapter(f"{out}/native")
    dist.barrier()
    leave()


def with_lora_weights(unet, adapter, scratch):
    """By load_lora_weights of a pipeline, as docs/adapters.md has it."""
    import json

    from diffusers import DiffusionPipeline
    from diffusers.loaders import StableDiffusionLoraLoaderMixin
    from safetensors.torch import load_file

    class Pipeline(DiffusionPipeline, StableDiffusionLoraLoaderMixin):
        text_encoder = None

        def __init__(self, unet):
            super().__init__()
            self.register_modules(unet=unet)

    tensors = load_file(adapter / "adapter_model.safetensors")
    settings = json.loads((adapter / "adapter_config.json").read_text())
    pipeline = Pipeline(unet)
    pipeline.save_lora_weights(scratch, {n.removeprefix("base_model.model."): t for n, t in tensors.items()},
                               unet_lora_adapter_metadata=settings)
    pipeline.load_lora_weights(scratch)
    return unet


def read(directory, scratch):
    import pathlib

    import torch
    from diffusers import UNet2DConditionModel
    from peft import PeftModel

    def run(model):
        with torch.no_grad():
            return model(torch.linspace(0, 1, 256).reshape(1, 4, 8, 8), 3, torch.ones(1, 12, 32)).sample

    def loaded(where):
        model, told = UNet2DConditionModel.from_pretrained(where, output_loading_info=True)
        assert not told["missing_keys"] and not told["unexpected_keys"]
        return model

    directory = pathlib.Path(directory)
    if (directory / "pytorch_lora_weights.safetensors").exists():
        model = unet()
        model.load_lora_adapter(directory, weight_name="pytorch_lora_weights.safetensors", prefix=None)
        return {"logits": run(model)}
    views, name = directory.parents[1], directory.name
    adapted = run(PeftModel.from_pretrained(loaded(directory), views / "adapter" / name))
    assert torch.equal(run(with_lora_weights(loaded(directory), views / "adapter" / name, scratch)), adapted)
    assert torch.allclose(run(loaded(views / "merged" / name)), adapted, atol=1e-5, rtol=0)
    return {"logits": adapted}
