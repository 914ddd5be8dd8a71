"""`from_pretrained` of what ms-swift's `sft_main` (full) saved with FSDP2 in two ranks, one forward pass."""

PACKAGE, EQUAL = "ms-swift", "logits"
REQUIRES = ["addict==2.4.0", "attrdict==2.0.1", "binpacking==2.0.1", "certifi==2026.10.18", "cffi==2.1.1",
            "charset-normalizer==3.5.2", "cryptography==50.0.2", "dacite==1.9.2", "datasets==4.8.4", "dill==0.4.1",
            "fastapi==0.165.0", "fsspec==2026.2.0", "httpcore==1.0.9", "httpx==0.28.1", "huggingface_hub==1.33.0",
            "importlib_metadata==10.2.0", "json_repair==0.64.6", "modelscope==1.40.2", "modelscope-hub==0.5.1",
            "ms_swift==4.6.0", "multiprocess==0.70.19", "pandas==3.1.1", "peft==0.20.0", "pillow==13.0.0",
            "pyarrow==26.0.1", "pycparser==3.12", "python-dateutil==4.0.0", "pytz==2026.6", "requests==2.34.2",
            "simplejson==4.3.0", "six==1.17.0", "sniffio==1.3.1", "sortedcontainers==2.4.0", "starlette==1.10.0",
            "transformers==5.19.0", "trl==0.29.1", "tzdata==2026.6", "urllib3==2.8.0", "xxhash==4.1.0", "zipp==4.1.2"]


def rank(n, out, port):
    import functools
    import json
    import os
    import pathlib
    import runpy
    import shutil
    import sys

    os.environ.update(RANK=str(n), LOCAL_RANK=str(n), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port,
                      ACCELERATE_USE_CPU="true")
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "make"))
    import cpu_fsdp  # noqa: F401
    import oracle
    import torch.distributed as dist
    from swift import sft_main
    from transformers import LlamaForCausalLM, Trainer, TrainerCallback

    if n == 0:
        runpy.run_path(str(pathlib.Path(__file__).with_name("llamafactory.py")))["base"](f"{out}/base")
        rows = [{"query": f"w{i}", "response": f"w{i + 1} w{i + 2}"} for i in range(8)]
        pathlib.Path(f"{out}/rows.json").write_text(json.dumps(rows))
    dist.barrier()

    class Witness(TrainerCallback):
        def on_save(self, args, state, control, model, **kwargs):
            live = oracle.full_tensors(model)
            plain = LlamaForCausalLM.from_pretrained(f"{out}/base")
            plain.load_state_dict(live)
            plain.save_pretrained(f"{out}/native")  # of rank 0 alone, as transformers does it

    made = Trainer.__init__

    @functools.wraps(made)  # swift looks at its parameters
    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.add_callback(Witness())

    Trainer.__init__ = init
    fsdp = {"fsdp": "full_shard auto_wrap",
            "fsdp_config": {"fsdp_version": 2, "state_dict_type": "SHARDED_STATE_DICT",
                            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                            "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}
    pathlib.Path(f"{out}/fsdp-{n}.json").write_text(json.dumps(fsdp))
    options = {"model": f"{out}/base", "model_type": "llama", "template": "dummy", "tuner_type": "full",
               "dataset": f"{out}/rows.json", "split_dataset_ratio": 0, "load_from_cache_file": "false",
               "output_dir": f"{out}/run", "add_version": "false", "create_checkpoint_symlink": "false", "max_steps": 1,
               "save_steps": 1, "save_only_model": "false", "torch_dtype": "float32", "attn_impl": "eager",
               "per_device_train_batch_size": 2, "use_cpu": "true", "report_to": "none", "learning_rate": 1e-2,
               "gradient_checkpointing": "false", "fsdp": f"{out}/fsdp-{n}.json", "dataset_num_proc": 1,
               "dataloader_num_workers": 0}
    sft_main([part for key, value in options.items() for part in (f"--{key}", str(value))])
    if n == 0:
        shutil.copy(f"{out}/base/config.json", f"{out}/run/config.json")


def read(directory, scratch):
    import pathlib
    import runpy

    return runpy.run_path(str(pathlib.Path(__file__).with_name("trl_sft.py")))["read"](directory, scratch)
