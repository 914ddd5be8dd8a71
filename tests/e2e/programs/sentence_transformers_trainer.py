"""`SentenceTransformer` of what `SentenceTransformerTrainer` with FSDP saved (a Transformer, Pooling, Dense and Normalize): the embeddings of two texts."""

PACKAGE, EQUAL = "sentence-transformers", "embeddings"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "cloudpickle==3.1.2", "datasets==5.2.0",
            "dill==0.4.1", "joblib==1.6.0", "multiprocess==0.70.19", "narwhals==2.29.0", "pandas==3.1.1",
            "pyarrow==26.0.1", "python-dateutil==4.0.0", "pytz==2026.6", "requests==2.34.2", "scikit-learn==1.9.1",
            "scipy==1.17.1", "sentence-transformers==6.2.0", "six==1.17.0", "threadpoolctl==3.8.0", "tzdata==2026.6",
            "urllib3==2.8.0", "xxhash==4.1.0"]


def rank(n, out, port):
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
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, TrainerCallback

    base = f"{out}/base"
    torch.manual_seed(7)
    BertModel(BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                         max_position_embeddings=32)).save_pretrained(base)
    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, **{f"w{i}": i + 2 for i in range(30)}}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(base)
    dist.barrier()
    torch.manual_seed(8)
    model = SentenceTransformer(modules=[Transformer(base), Pooling(16, "cls"), Dense(16, 8), Normalize()], device="cpu")
    if n == 0:
        model.save_pretrained(f"{out}/untrained")
    dist.barrier()

    class Witness(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            live = oracle.full_tensors(trainer.model)
            if n == 0:
                plain = SentenceTransformer(f"{out}/untrained", device="cpu")
                plain.load_state_dict(live)
                plain.save_pretrained(f"{out}/native")

    texts = {"one": [f"w{i} w{i + 1}" for i in range(8)], "other": [f"w{i + 1} w{i + 2}" for i in range(8)],
             "score": [i / 8 for i in range(8)]}
    args = SentenceTransformerTrainingArguments(
        f"{out}/run", max_steps=1, save_steps=1, per_device_train_batch_size=2, use_cpu=True, report_to="none",
        learning_rate=1e-2, disable_tqdm=True, dataloader_pin_memory=False, fsdp=True,
        # torch 2.13's FSDP2 cannot wrap their Normalize.
        fsdp_config={"version": 1, "state_dict_type": "SHARDED_STATE_DICT", "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                     "transformer_layer_cls_to_wrap": ["BertLayer"], "use_orig_params": "true",
                     "reshard_after_forward": "full_shard", "sync_module_states": "false"})
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=Dataset.from_dict(texts), callbacks=[Witness()])
    trainer.train()
    dist.barrier()
    if n == 0:  # what a user has: the model's own directory, whose weights are those of before
        for path in pathlib.Path(f"{out}/untrained").rglob("*"):
            if path.is_file() and path.suffix != ".safetensors":
                target = pathlib.Path(f"{out}/run") / path.relative_to(f"{out}/untrained")
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(path.read_bytes())


def read(directory, scratch):
    from sentence_transformers import SentenceTransformer

    return {"embeddings": SentenceTransformer(directory, device="cpu").encode(["w1 w2 w3", "w4"], convert_to_tensor=True)}
