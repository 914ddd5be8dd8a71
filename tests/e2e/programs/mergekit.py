"""A `linear` merge of the model with itself at weights 0.25 and 0.75: the tensors that it writes."""

PACKAGE, EQUAL = "mergekit", "bytes"
REQUIRES = ["datasets==5.2.0", "dill==0.4.1", "immutables==0.21", "mergekit==0.1.5", "multiprocess==0.70.19",
            "pandas==3.1.1", "protobuf==7.36.2", "pyarrow==26.0.1", "python-dateutil==4.0.0", "scipy==1.17.1",
            "sentencepiece==0.2.3", "tzdata==2026.6", "xxhash==4.1.0"]


def read(directory, scratch):
    from pathlib import Path

    from mergekit.config import MergeConfiguration
    from mergekit.merge import MergeOptions, run_merge
    from safetensors.torch import load_file

    for name in ("one", "other"):
        Path(scratch, name).symlink_to(directory)
    models = [{"model": f"{scratch}/{name}", "parameters": {"weight": w}} for name, w in (("one", 0.25), ("other", 0.75))]
    config = MergeConfiguration.model_validate({"merge_method": "linear", "models": models, "dtype": "float32"})
    run_merge(config, f"{scratch}/merged", MergeOptions(copy_tokenizer=False))
    return {n: t for f in sorted(Path(f"{scratch}/merged").glob("*.safetensors")) for n, t in load_file(f).items()}
