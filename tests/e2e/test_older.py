"""What older versions of the frameworks wrote: real checkpoints that ship in tests/golden/older, each
with the tensors that the framework of that time held."""

from pathlib import Path

import pytest

import trees

OLDER = Path(__file__).resolve().parents[1] / "golden/older"


@pytest.mark.parametrize("name", sorted(p.name for p in OLDER.iterdir() if p.is_dir()))
def test_older_checkpoints_are_the_live_tensors(mount, name):
    live = trees.tensors(OLDER / name / "live.safetensors")
    live = {n.removeprefix("model.") if "transformers" not in name else n: t
            for n, t in live.items()}
    trees.assert_same(trees.weights(mount(OLDER / name / "run") / "weights/ckpt"), live)
