"""`from_pretrained` of what axolotl's `do_train` (full finetuning) saved with FSDP2 in two ranks, one forward pass. The test makes Accelerate's `build_device_mesh` give axolotl a mesh of the CPU; the other directory is made with torch's `dcp_to_torch_save`."""

PACKAGE, EQUAL = "axolotl", "logits"
REQUIRES = ["accelerate==1.13.0", "addict==2.4.0", "axolotl==0.19.0", "axolotl_contribs_lgpl==0.0.7",
            "axolotl_contribs_mit==0.0.6", "backoff==2.2.1", "bitsandbytes==0.50.2", "certifi==2026.10.19.post1",
            "charset_normalizer==3.5.3", "colorama==0.4.6", "datasets==4.8.4", "deprecated==1.3.1", "dill==0.4.0",
            "distro==1.9.0", "docker==7.2.0", "evaluate==0.4.6", "fastcore==2.2.41", "fire==0.7.1", "fsspec==2026.2.0",
            "gitdb==4.0.12", "gitpython==3.2.1", "hf_xet==1.4.3", "httpcore==1.0.9", "httpx==0.28.1", "huggingface_hub==1.17.0",
            "importlib_metadata==10.2.0", "llvmlite==0.50.0", "multiprocess==0.70.18", "numba==0.68.1",
            "opentelemetry_api==1.45.2", "opentelemetry_sdk==1.45.2", "opentelemetry_semantic_conventions==0.66b2",
            "pandas==3.1.1", "peft==0.20.0", "pillow==13.0.0", "platformdirs==4.14.8", "posthog==6.7.11", "protobuf==7.36.2",
            "pyarrow==26.0.1", "python_dateutil==4.0.0", "python_dotenv==1.2.4", "pytz==2026.6", "requests==2.34.2",
            "scipy==1.17.1", "sentencepiece==0.2.3", "sentry_sdk==2.75.0", "six==1.17.0", "smmap==5.0.3", "termcolor==3.3.0",
            "tokenizers==0.23.1", "transformers==5.16.1", "triton==3.9.0", "trl==1.9.0", "tzdata==2026.6", "urllib3==2.8.0",
            "wandb==0.31.0", "wrapt==2.5.2", "xxhash==4.1.0", "zipp==4.1.2"]


def rank(n, out, port):
    import json
    import os
    import pathlib
    import runpy
    import sys

    os.environ.update(RANK=str(n), LOCAL_RANK=str(n), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port,
                      ACCELERATE_USE_CPU="true", AXOLOTL_DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
    here = pathlib.Path(__file__).parent
    sys.path.insert(0, str(here.parent / "make"))
    import cpu_fsdp  # noqa: F401
    import torch.distributed as dist
    from accelerate import ParallelismConfig
    from axolotl.cli.args import TrainerCliArgs
    from axolotl.cli.config import load_cfg
    from axolotl.cli.train import do_train

    build = ParallelismConfig.build_device_mesh
    ParallelismConfig.build_device_mesh = lambda self, device: build(self, "cpu")  # axolotl asks for CUDA's
    if n == 0:
        runpy.run_path(str(here / "llamafactory.py"))["base"](f"{out}/base")
        rows = [{"instruction": f"w{i}", "input": "", "output": f"w{i + 1} w{i + 2}"} for i in range(8)]
        pathlib.Path(f"{out}/rows.json").write_text(json.dumps(rows))
        pathlib.Path(f"{out}/config.yml").write_text(json.dumps({
            "base_model": f"{out}/base", "datasets": [{"path": f"{out}/rows.json", "ds_type": "json", "type": "alpaca"}],
            "dataset_prepared_path": f"{out}/prepared", "output_dir": f"{out}/run", "sequence_len": 32, "max_steps": 1,
            "save_steps": 1, "micro_batch_size": 2, "gradient_accumulation_steps": 1, "learning_rate": 0.01,
            "optimizer": "adamw_torch", "lr_scheduler": "constant", "bf16": False, "fp16": False, "tf32": False,
            "attn_implementation": "sdpa", "fsdp_version": 2,
            "fsdp_config": {"state_dict_type": "SHARDED_STATE_DICT", "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                            "transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}}))
    dist.barrier()
    do_train(load_cfg(f"{out}/config.yml"), TrainerCliArgs())
    if n == 0:
        consolidate(out)


def consolidate(out):
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from transformers import LlamaForCausalLM

    dcp_to_torch_save(f"{out}/run/checkpoint-1/pytorch_model_fsdp_0", f"{out}/model.pt")
    model = LlamaForCausalLM.from_pretrained(f"{out}/base")
    model.load_state_dict(torch.load(f"{out}/model.pt")["model"])
    model.save_pretrained(f"{out}/native")


def read(directory, scratch):
    import pathlib
    import runpy

    return runpy.run_path(str(pathlib.Path(__file__).with_name("trl_sft.py")))["read"](directory, scratch)
