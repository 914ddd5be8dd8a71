"""The optimizer of Megatron-Core's torch_dist directories (make/torch_dist_optimizer.py: megatron-core trains and saves;
what it had in memory is converted by mbridge)."""

import pytest

import trees
from launches import LAUNCHES

STEP = "iter_0000002"
CASES = [c for c in LAUNCHES["mo2"][2] if not c.endswith("buckets")]
BUCKETS = [c for c in LAUNCHES["mo2"][2] if c.endswith("buckets")]


def shown(made, mount, case):
    folder = made("mo2", case)
    return folder, mount(folder / "run", f"model={folder}/hf")


@pytest.mark.parametrize("case", CASES + BUCKETS)
def test_weights_fp32_are_the_optimizers_own_copies(made, mount, case):
    folder, mounted = shown(made, mount, case)
    trees.assert_same(trees.weights(mounted / "weights-fp32" / STEP), trees.weights(folder / "live/param"))


@pytest.mark.parametrize("case", BUCKETS)
def test_buckets_are_refused_with_what_to_save_instead(made, mount, command, case):
    folder, mounted = shown(made, mount, case)
    assert (mounted / "weights" / STEP / "model.safetensors").exists()
    for view in ("full", "full-fsdp", "universal"):
        assert not (mounted / view / STEP).exists()
    said = command("show", folder / "run" / STEP).stdout
    assert "dp_reshardable" in said and "--dist-ckpt-optim-fully-reshardable" in said
    assert " ok" in command("ls", folder / "run").stdout
