"""`from_pretrained` of what TRL's `SFTTrainer` saved with FSDP2 in two ranks, one forward pass."""

PACKAGE, EQUAL = "trl", "logits"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "datasets==5.2.0", "dill==0.4.1",
            "multiprocess==0.70.19", "pandas==3.1.1", "pyarrow==26.0.1", "python-dateutil==4.0.0", "pytz==2026.6",
            "requests==2.34.2", "six==1.17.0", "trl==1.16.0", "tzdata==2026.6", "urllib3==2.8.0", "xxhash==4.1.0"]


def sft(args, model, tokenizer, callbacks):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    return SFTTrainer(model=model, args=SFTConfig(**args, max_length=16), processing_class=tokenizer, callbacks=callbacks,
                      train_dataset=Dataset.from_dict({"text": [f"w{i} w{i + 1} w{i + 2}" for i in range(8)]}))


def rank(n, out, port, make_trainer=sft):
    import os
    import pathlib
    import sys

    os.environ.update(RANK=str(n), LOCAL_RANK=str(n), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port,
                      ACCELERATE_USE_CPU="true")
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "make"))
    import cpu_fsdp  # noqa: F401
    import oracle
    import program_source
    import torch
    import torch.distributed as dist
    from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback

    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=2)

    class Witness(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            live = oracle.full_tensors(trainer.model)
            plain = LlamaForCausalLM(config)
            plain.load_state_dict(live)
            plain.save_pretrained(f"{out}/native")  # of rank 0 alone, as transformers does it

    args = {"output_dir": f"{out}/run", "max_steps": 1, "save_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True,
            "report_to": "none", "learning_rate": 1e-2, "disable_tqdm": True, "bf16": False, "gradient_checkpointing": False,
            "dataloader_pin_memory": False, "fsdp": True,
            "fsdp_config": {"version": 2, "state_dict_type": "SHARDED_STATE_DICT", "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                            "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}
    trainer = make_trainer(args, LlamaForCausalLM(config), program_source.tokenizer(), [Witness()])
    trainer.train()
    dist.barrier()
    if n == 0:
        config.save_pretrained(f"{out}/run")


def read(directory, scratch):
    import torch
    from transformers import AutoModelForCausalLM

    model, told = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    with torch.no_grad():
        return {"logits": model.eval()(torch.arange(12)[None]).logits}
