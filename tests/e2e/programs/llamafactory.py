"""`from_pretrained` of what LLaMA-Factory's `run_exp` (sft, full) saved with FSDP in two ranks, one forward pass."""

PACKAGE, EQUAL = "llamafactory", "logits"
REQUIRES = ["accelerate==1.11.0", "certifi==2026.10.18", "charset-normalizer==3.5.2", "datasets==4.0.0", "dill==0.3.8",
            "docstring_parser==0.18.0", "fire==0.7.1", "fsspec==2025.3.0", "httpcore==1.0.9", "httpx==0.28.1",
            "huggingface_hub==1.33.0", "llamafactory==0.9.5", "multiprocess==0.70.16", "omegaconf==2.4.0", "pandas==3.1.1",
            "peft==0.18.1", "pillow==11.3.0", "pyarrow==26.0.1", "python-dateutil==4.0.0", "pytz==2026.6",
            "requests==2.34.2", "shtab==1.13.0", "six==1.17.0", "sse-starlette==3.7.0", "termcolor==3.3.0",
            "tokenizers==0.22.2", "torchdata==0.11.0", "transformers==5.6.0",
            "trl==0.24.0", "tyro==0.8.14", "tzdata==2026.6", "urllib3==2.8.0", "xxhash==4.1.0"]


def base(where):
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "make"))
    import program_source
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=2)
    LlamaForCausalLM(config).save_pretrained(where)
    program_source.tokenizer().save_pretrained(where)


def rank(n, out, port):
    import json
    import os
    import pathlib
    import shutil
    import sys

    os.environ.update(RANK=str(n), LOCAL_RANK=str(n), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port,
                      ACCELERATE_USE_CPU="true", DISABLE_VERSION_CHECK="1")
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "make"))
    import cpu_fsdp  # noqa: F401
    import oracle
    import torch.distributed as dist
    from absent import stand_in

    stand_in("torchaudio", "av")  # for sound and pictures; the registry's torchaudio needs CUDA's libraries
    from llamafactory.train.tuner import run_exp
    from transformers import LlamaForCausalLM, TrainerCallback

    if n == 0:
        base(f"{out}/base")
        os.makedirs(f"{out}/data")
        rows = [{"instruction": f"w{i}", "input": "", "output": f"w{i + 1} w{i + 2}"} for i in range(8)]
        pathlib.Path(f"{out}/data/rows.json").write_text(json.dumps(rows))
        pathlib.Path(f"{out}/data/dataset_info.json").write_text('{"rows": {"file_name": "rows.json"}}')
    dist.barrier()

    class Witness(TrainerCallback):
        def on_save(self, args, state, control, model, **kwargs):
            live = oracle.full_tensors(model)
            plain = LlamaForCausalLM.from_pretrained(f"{out}/base")
            plain.load_state_dict(live)
            plain.save_pretrained(f"{out}/native")  # of rank 0 alone, as transformers does it

    run_exp({"model_name_or_path": f"{out}/base", "stage": "sft", "do_train": True, "finetuning_type": "full",
             "dataset": "rows", "dataset_dir": f"{out}/data", "template": "default", "cutoff_len": 32,
             "output_dir": f"{out}/run", "max_steps": 1, "save_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True,
             "report_to": "none", "learning_rate": 1e-2, "disable_tqdm": True, "dataloader_pin_memory": False,
             "fsdp": "full_shard auto_wrap",
             "fsdp_config": {"version": 2, "state_dict_type": "SHARDED_STATE_DICT",
                             "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}, callbacks=[Witness()])
    if n == 0:
        shutil.copy(f"{out}/base/config.json", f"{out}/run/config.json")


def read(directory, scratch):
    import pathlib
    import runpy

    return runpy.run_path(str(pathlib.Path(__file__).with_name("trl_sft.py")))["read"](directory, scratch)
