"""`UNet2DModel.from_pretrained` of an Accelerate state with FSDP's shards: all tensors."""

PACKAGE, EQUAL = "diffusers", "bytes"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "diffusers==0.42.1", "importlib_metadata==10.2.0",
            "lazy-importer==0.1.0", "pillow==13.0.0", "requests==2.34.2", "urllib3==2.8.0", "zipp==4.1.2"]


def source(out):
    """OUT/native as diffusers saves it, OUT/run/checkpoint-1 in shards."""
    import os
    import shutil

    import torch
    import torch.distributed.checkpoint as dcp
    from diffusers import UNet2DModel

    torch.manual_seed(5)
    model = UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64),
                        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    model.save_pretrained(f"{out}/native")
    os.makedirs(f"{out}/run")
    shutil.copy(f"{out}/native/config.json", f"{out}/run/config.json")
    dcp.save({"model": model.state_dict()}, checkpoint_id=f"{out}/run/checkpoint-1/pytorch_model_fsdp_0", no_dist=True)


def read(directory, scratch):
    from diffusers import AutoModel, UNet2DModel

    assert isinstance(AutoModel.from_pretrained(directory), UNet2DModel)
    model, told = UNet2DModel.from_pretrained(directory, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    return dict(model.state_dict())
