"""Universal checkpoints by DeepSpeed's own converter: to_universal.py [--inject_missing_state] {TAG OUT}..."""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

from deepspeed.checkpoint import ds_to_universal  # noqa: E402

options = [a for a in sys.argv[1:] if a.startswith("--")]
paths = sys.argv[1 + len(options):]
for tag, out in zip(paths[::2], paths[1::2], strict=True):
    sys.argv[1:] = ["--input_folder", tag, "--output_folder", out, *options,
                    "--num_extract_workers", "1", "--num_merge_workers", "1"]
    ds_to_universal.main(ds_to_universal.parse_arguments())
