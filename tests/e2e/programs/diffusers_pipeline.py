"""`DiffusionPipeline.from_pretrained` of an Accelerate state of two models (a UNet and its text encoder, FSDP2 in two ranks) with the UNet's `EMAModel`: all tensors."""

PACKAGE, EQUAL = "diffusers", "bytes"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "diffusers==0.42.1", "importlib_metadata==10.2.0",
            "lazy-importer==0.1.0", "pillow==13.0.0", "requests==2.34.2", "urllib3==2.8.0", "zipp==4.1.2"]


def components():
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(3)
    unet = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8)
    vae = AutoencoderKL(block_out_channels=(8, 16), in_channels=3, out_channels=3, norm_num_groups=4, latent_channels=4,
                        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)
    text = CLIPTextModel(CLIPTextConfig(vocab_size=40, hidden_size=32, intermediate_size=37, num_hidden_layers=2,
                                        num_attention_heads=4, max_position_embeddings=16, bos_token_id=0, eos_token_id=1,
                                        pad_token_id=1))
    words = ["<|startoftext|>", "<|endoftext|>", *(f"w{i}</w>" for i in range(30))]
    return {"unet": unet, "vae": vae, "text_encoder": text, "scheduler": DDIMScheduler(clip_sample=False),
            "tokenizer": CLIPTokenizer(vocab={w: i for i, w in enumerate(words)}, merges=[])}


def rank(n, out, port):
    """As train_text_to_image.py of diffusers trains and saves, with its hook for the EMA."""
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
    from diffusers import StableDiffusionPipeline, UNet2DConditionModel
    from diffusers.training_utils import EMAModel
    from leaving import leave

    parts = components()
    rest = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    if n == 0:  # the script leaves a pipeline in the run's directory; its weights are not those of the checkpoint
        StableDiffusionPipeline(**parts, **rest).save_pretrained(f"{out}/run")
    dist.barrier()
    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type="SHARDED_STATE_DICT", auto_wrap_policy="NO_WRAP", cpu_ram_efficient_loading=False))
    ema = EMAModel(parts["unet"].parameters(), decay=0.5, model_cls=UNet2DConditionModel, model_config=parts["unet"].config)
    trained = []
    for name in ("unet", "text_encoder"):
        trained.append(accelerator.prepare(parts[name], torch.optim.AdamW(parts[name].parameters(), lr=1e-2)))
    words = trained[1][0](torch.arange(12)[None] + n).last_hidden_state
    accelerator.backward(trained[0][0](torch.ones(1, 4, 8, 8), 3, words).sample.pow(2).mean())
    for _, optimizer in trained:
        optimizer.step()
    live = [oracle.full_tensors(model) for model, _ in trained]
    fresh = components()
    for name, tensors in zip(("unet", "text_encoder"), live):
        fresh[name].load_state_dict(tensors)
    ema.step(fresh["unet"].parameters())
    accelerator.register_save_state_pre_hook(
        lambda models, weights, where: ema.save_pretrained(f"{where}/unet_ema") if n == 0 else None)
    accelerator.save_state(f"{out}/run/checkpoint-1")
    if n == 0:
        StableDiffusionPipeline(**fresh, **rest).save_pretrained(f"{out}/native")
        ema.save_pretrained(f"{out}/native/unet_ema")
    dist.barrier()
    leave()


def read(directory, scratch):
    from diffusers import DiffusionPipeline, UNet2DConditionModel
    from diffusers.training_utils import EMAModel

    pipeline = DiffusionPipeline.from_pretrained(directory)
    values = {f"{part}.{name}": tensor for part in ("unet", "text_encoder", "vae")
              for name, tensor in getattr(pipeline, part).state_dict().items()}
    ema = EMAModel.from_pretrained(f"{directory}/unet_ema", UNet2DConditionModel)
    values |= {f"ema.{i}": tensor for i, tensor in enumerate(ema.shadow_params)}
    return {**values, "words": str(pipeline.tokenizer("w1 w2").input_ids), "decay": ema.decay}
