"""transformers' own distributed checkpoints: each rank's safetensors beside one config."""

import pytest
from transformers import AutoModelForCausalLM

import trees


@pytest.mark.parametrize("case", ["fsdp", "fsdp-tied", "tp"])
def test_it_is_what_one_process_saves(made, mount, command, case):
    folder = made("p2", case)
    shown = mount(folder / "run") / "weights/model"
    assert trees.listing(shown) == trees.listing(folder / "plain")
    assert (shown / "model.safetensors").read_bytes() == (folder / "plain/model.safetensors").read_bytes()
    got, want = (AutoModelForCausalLM.from_pretrained(f).state_dict() for f in (shown, folder / "plain"))
    trees.assert_same(got, want)
    command("check", folder / "run")


@pytest.mark.parametrize("case", ["fsdp", "tp"])
def test_a_missing_shard_is_told(made, copied, command, case):
    """The first leaves holes. How many there were is not recorded: the last shows by what config.json says."""
    for shard in ("00001", "00002"):
        source = copied(made("p2", case) / "run", shard)
        next(source.glob(f"model/shard-{shard}-*")).unlink()
        done = command("check", "-o", "settle=0", source, check=False)
        assert done.returncode == 1, done.stdout
        assert ("tensor_has_a_hole" if shard == "00001" else "config") in done.stdout
