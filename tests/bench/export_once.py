"""One copy, measured: export_once.py TOOL DIRECTORY OUT converts a DCP directory by torch's or Accelerate's own tool;
export_once.py run COMMAND... runs a command. Prints one line of JSON: seconds, imports excluded, and the most memory
that the tool or the command had."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

tool, *arguments = sys.argv[1:]
if tool == "run":  # what a child had counts from what its parent had: nothing more is imported
    began = time.monotonic()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
else:
    from accelerate.utils import merge_fsdp_weights
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    import mounts

    source, out = arguments
    Path(out).mkdir()
    began = time.monotonic()
    if tool == "merge_fsdp_weights":
        merge_fsdp_weights(source, out)
    else:
        dcp_to_torch_save(source, f"{out}/model.pt")
    peak_bytes = mounts.status_bytes("self", "VmHWM")
print(json.dumps({"seconds": time.monotonic() - began, "peak_bytes": peak_bytes}))
