"""One computed view, or the copy in its place, in a process of its own: computed_once.py WAY PROGRAMS WORK. WORK holds
run/checkpoint-N. Prints one line of JSON."""

import json
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import mounts

sys.path.append(str(Path(__file__).parents[1] / "e2e/make"))
from installed import installed  # noqa: E402

MERGEKIT = ["mergekit==0.1.4", "immutables==0.21", "pydantic==2.10.6", "pydantic-core==2.27.2", "annotated-types==0.7.0"]


def load(folder):
    """Every byte of every tensor is read."""
    for file in sorted(folder.glob("*.safetensors")):
        for tensor in load_file(file).values():
            tensor.view(torch.uint8).view(-1).sum()


def source(work):
    with safe_open(work / "run/checkpoint-1/model.safetensors", framework="pt") as file:
        for name in file.keys():
            yield name, file.get_tensor(name)


def by_mergekit(work):
    """Its modules are imported before the clock runs."""
    from mergekit.architecture import base
    from mergekit.config import MergeConfiguration
    from mergekit.merge import run_merge
    from mergekit.options import MergeOptions

    for kind in (base.ConfiguredModuleArchitecture, base.ConfiguredModelArchitecture):
        kind.model_rebuild(_types_namespace={**vars(base), "torch": torch})  # it imports torch only for type checkers
    config = MergeConfiguration.model_validate({
        "merge_method": "linear", "dtype": "bfloat16",
        "models": [{"model": str(work / f"run/checkpoint-{i}"), "parameters": {"weight": 1.0}} for i in (1, 2, 3)]})

    def make():
        run_merge(config, str(work / "made"), MergeOptions(copy_tokenizer=False, quiet=True))
    return make


def by_script(work):
    """The formula's own function, over one matrix after the other."""
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import Fp8Quantize
    quantize = Fp8Quantize(SimpleNamespace(quantization_config=FineGrainedFP8Config()))

    def make():
        made = {}
        for name, tensor in source(work):
            is_linear = name.endswith("_proj.weight")
            made |= quantize.convert({name: tensor}) if is_linear else {name: tensor}
        (work / "made").mkdir()
        save_file({n: t.contiguous() for n, t in made.items()}, work / "made/model.safetensors")
    return make


def by_stack(work):
    def make():
        made, experts = {}, defaultdict(dict)
        for name, tensor in source(work):
            found = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", name)
            if found:
                experts[found[1]][int(found[2]), found[3]] = tensor
            else:
                made[name] = tensor
        for name, of in experts.items():
            n = max(e for e, _ in of) + 1
            made[f"{name}.gate_up_proj"] = torch.stack([torch.cat([of[e, "gate"], of[e, "up"]]) for e in range(n)])
            made[f"{name}.down_proj"] = torch.stack([of[e, "down"] for e in range(n)])
        (work / "made").mkdir()
        save_file(made, work / "made/model.safetensors")
    return make


def copied(work, make):
    """peak_bytes: up to what is saved, without what the program had before it began."""
    before = mounts.status_bytes("self", "VmRSS")
    written, began = mounts.written_bytes("self"), time.monotonic()
    make()
    peak = mounts.status_bytes("self", "VmHWM") - before
    load(work / "made")
    return {"seconds": time.monotonic() - began, "peak_bytes": peak,
            "written_bytes": mounts.written_bytes("self") - written}


def mounted(programs, work, path, *options):
    """peak_bytes: of the mount. The program that loads has the model either way."""
    began = time.monotonic()
    with mounts.unshard(programs, work, work / "mount", *options) as daemon:
        load(work / "mount" / path)
        return {"seconds": time.monotonic() - began, "peak_bytes": mounts.status_bytes(daemon, "VmHWM"),
                "written_bytes": mounts.written_bytes(daemon)}


def main():
    way, programs, work = sys.argv[1:]
    work = Path(work)
    if way == "mergekit":
        sys.path.insert(0, str(installed("mergekit-0.1.4", *MERGEKIT)))
    makers = {"mergekit": by_mergekit, "script": by_script, "stack": by_stack}
    views = {"mean": ["mean-3/run/checkpoint-3"], "fp8": ["weights-fp8/run/checkpoint-1"],
             "fused": ["weights/run/checkpoint-1", "experts=fused"]}
    done = copied(work, makers[way](work)) if way in makers else mounted(Path(programs), work, *views[way])
    print(json.dumps(done))


main()
