"""veRL's own model merger. What it makes of per-rank files, as one safetensors file:

    python verl_merge.py ACTOR OUT

Only the merger is imported of the package verl: the package itself wants Ray and much else, and the merger uses of it
what loads tokenizers, which are not there."""

import importlib
import sys
import types
from pathlib import Path

from safetensors.torch import save_file

from installed import installed

def merger():
    """The module verl.model_merger.fsdp_model_merger."""
    folder = installed("verl-0.9.1", "verl==0.9.1")
    for name in ("verl", "verl.utils", "verl.model_merger"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")))]
        sys.modules[name] = package
    sys.modules["verl.utils"].hf_processor = sys.modules["verl.utils"].hf_tokenizer = lambda *_, **__: None
    return importlib.import_module("verl.model_merger.fsdp_model_merger")


def config(**values):
    return sys.modules["verl.model_merger.base_model_merger"].ModelMergerConfig(backend="fsdp", **values)


def main():
    actor, out = sys.argv[1:]
    made = object.__new__(merger().FSDPModelMerger)  # without a huggingface/ to read
    made.config = config(operation="test", local_dir=actor)
    world = made._get_world_size()
    mesh, names = made._extract_device_mesh_info(made._load_rank_zero_state_dict(world), world)
    shards, shape = made._calculate_shard_configuration(mesh, names)
    merged = made._load_and_merge_state_dicts(world, shards, shape, names)
    save_file({name: tensor.clone() for name, tensor in merged.items()}, out)


if __name__ == "__main__":
    main()
