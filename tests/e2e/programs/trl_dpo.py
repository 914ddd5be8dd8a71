"""`from_pretrained` of what TRL's `DPOTrainer` saved with FSDP2 in two ranks, one forward pass."""

PACKAGE, EQUAL = "trl", "logits"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "datasets==5.2.0", "dill==0.4.1",
            "multiprocess==0.70.19", "pandas==3.1.1", "pyarrow==26.0.1", "python-dateutil==4.0.0", "pytz==2026.6",
            "requests==2.34.2", "six==1.17.0", "trl==1.16.0", "tzdata==2026.6", "urllib3==2.8.0", "xxhash==4.1.0"]


def sft():
    import pathlib
    import runpy

    return runpy.run_path(str(pathlib.Path(__file__).with_name("trl_sft.py")))


def dpo(args, model, tokenizer, callbacks):
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    rows = {"prompt": [f"w{i}" for i in range(8)], "chosen": [f"w{i + 1} w{i + 2}" for i in range(8)],
            "rejected": [f"w{i + 3}" for i in range(8)]}
    reference = type(model)(model.config)
    reference.load_state_dict(model.state_dict())
    return DPOTrainer(model=model, ref_model=reference, args=DPOConfig(**args, max_length=16), processing_class=tokenizer,
                      callbacks=callbacks, train_dataset=Dataset.from_dict(rows))


def rank(n, out, port):
    sft()["rank"](n, out, port, dpo)


def read(directory, scratch):
    return sft()["read"](directory, scratch)
