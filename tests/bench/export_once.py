"""One copy, measured: export_once.py TOOL SOURCE OUT converts a checkpoint by a framework's own tool; export_once.py run
COMMAND... runs a command. Prints one line of JSON: seconds, imports excluded, the most memory that the process or one of
its children had, and what was written."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mounts


def merge_fsdp_weights():
    from accelerate.utils import merge_fsdp_weights as merge
    return merge


def dcp_to_torch_save():
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save as convert
    return lambda source, out: convert(source, f"{out}/model.pt")


def zero_to_fp32():
    from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict as convert
    return lambda source, out: convert(source, out, safe_serialization=True)


def ds_to_universal():
    from deepspeed.checkpoint import ds_to_universal as tool

    def convert(source, out):
        tag = Path(source, "latest").read_text()
        sys.argv[1:] = ["--input_folder", f"{source}/{tag}", "--output_folder", f"{out}/{tag}", "--inject_missing_state"]
        tool.main(tool.parse_arguments())
    return convert


def warm_up():
    """What save_pretrained imports when it is first called."""
    from transformers import LlamaConfig, LlamaForCausalLM
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
                           "num_attention_heads", "num_key_value_heads"), 1)
    with tempfile.TemporaryDirectory() as tiny:
        LlamaForCausalLM(LlamaConfig(**sizes, head_dim=2)).save_pretrained(tiny)


def verl_model_merger():
    sys.path.insert(0, str(Path(__file__).parents[1] / "e2e/make"))
    import verl_merge
    merger = verl_merge.merger()
    warm_up()
    return lambda source, out: merger.FSDPModelMerger(verl_merge.config(
        operation="merge", local_dir=source, target_dir=out, hf_model_config_path=f"{source}/huggingface")).merge_and_save()


def by_tool(name, source, out):
    convert = globals()[name]()
    Path(out).mkdir()
    began = time.monotonic()
    convert(source, out)
    return time.monotonic() - began


def by_command(*command):
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def main():
    what, *arguments = sys.argv[1:]
    before = mounts.written_bytes("self")
    seconds = by_command(*arguments) if what == "run" else by_tool(what, *arguments)
    # What a child had counts from what its parent had: for a command, nothing but the standard library is imported.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    if what != "run":
        peak = max(peak, mounts.status_bytes("self", "VmHWM"))
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "written_bytes": mounts.written_bytes("self") - before}))


main()
