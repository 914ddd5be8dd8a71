"""What a model of transformers computes of a view, beside what Megatron's own model computed before it saved."""

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def assert_equal(folder, shown):
    """folder: of a case whose generator kept logits.safetensors; shown: a directory of its weights."""
    model, info = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True, experts_implementation="eager")
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    want = load_file(folder / "logits.safetensors")["logits"]
    with torch.no_grad():
        got = model(torch.arange(want.shape[1]).repeat(2, 1) % 17).logits
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)
