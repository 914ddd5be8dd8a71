"""`convert_hf_checkpoint`, in a directory of links to the view's files (`cp -rs`): the tensors that it writes."""

PACKAGE, EQUAL = "litgpt", "bytes"
REQUIRES = ["docstring_parser==0.18.0", "jsonargparse==4.41.0", "litgpt==0.5.13", "typeshed_client==2.14.0"]


def read(directory, scratch):
    import subprocess
    from pathlib import Path

    import torch
    from litgpt.scripts.convert_hf_checkpoint import convert_hf_checkpoint

    linked = Path(scratch) / "tiny-llama-1.1b"
    subprocess.run(["cp", "-rs", directory, linked], check=True)
    convert_hf_checkpoint(checkpoint_dir=linked, model_name="tiny-llama-1.1b")
    return torch.load(linked / "lit_model.pth", weights_only=True)
