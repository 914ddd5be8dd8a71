"""What veRL's own model merger makes of per-rank files, as one safetensors file:

    python verl_merge.py VERL ACTOR OUT

VERL is a directory with the package verl, 0.9.1. Only the merger is imported of it: the package itself wants
Ray and much else, and the merger uses of it what loads configs and tokenizers, which is not called here."""

import sys
import types
from pathlib import Path

from safetensors.torch import save_file

verl, actor, out = sys.argv[1:]
for name in ("verl", "verl.utils", "verl.model_merger"):
    package = types.ModuleType(name)
    package.__path__ = [str(Path(verl, *name.split(".")))]
    sys.modules[name] = package
sys.modules["verl.utils"].hf_processor = sys.modules["verl.utils"].hf_tokenizer = None

from verl.model_merger.base_model_merger import ModelMergerConfig  # noqa: E402
from verl.model_merger.fsdp_model_merger import FSDPModelMerger  # noqa: E402

merger = object.__new__(FSDPModelMerger)  # without a huggingface/ to read
merger.config = ModelMergerConfig(operation="test", backend="fsdp", local_dir=actor)
world = merger._get_world_size()
mesh, names = merger._extract_device_mesh_info(merger._load_rank_zero_state_dict(world), world)
shards, shape = merger._calculate_shard_configuration(mesh, names)
merged = merger._load_and_merge_state_dicts(world, shards, shape, names)
save_file({name: tensor.clone() for name, tensor in merged.items()}, out)
