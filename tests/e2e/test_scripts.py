"""Plain torch distributed checkpoints as scripts save them: without a scheduler, under keys of their own."""

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_optimizer_state_dict

import trees


def trained(steps=2):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2))
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    train(model, optimizer, steps)
    return model, optimizer


def train(model, optimizer, steps):
    for _ in range(steps):
        model(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def states(optimizer):
    return {f"{i}.{k}": v for i, s in optimizer.state_dict()["state"].items() for k, v in s.items()}


KEYS = {"model and optimizer": lambda w, o: {"model": w, "optimizer": o},
        "app": lambda w, o: {"app": {"model": w, "optim": o}},
        "net and opt": lambda w, o: {"net": w, "opt": o},
        "composer": lambda w, o: {"state": {"model": w, "optimizers": {"AdamW": o}}}}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
def test_a_script_resumes_in_one_process(mount, command, tmp_path, keys, flat):
    """With the lines that `show` prints; the next steps are those of who never stopped."""
    if keys == "composer" and flat:
        keys = "net and opt"
    model, optimizer = trained()
    weights, optim = get_state_dict(model, optimizer, options=StateDictOptions(
        flatten_optimizer_state_dict=flat))
    source = tmp_path / "source/step-2"
    dist_cp.save(KEYS[keys](weights, optim), checkpoint_id=source, no_dist=True)
    m = mount(tmp_path / "source")
    trees.assert_same(trees.tensors(m / "weights/step-2/model.safetensors"), weights)
    said = command("show", source).stdout
    assert "optimizer.load_state_dict(torch.load(" in said and "trainer.train" not in said

    again, fresh = trained(steps=1)
    again.load_state_dict(trees.tensors(m / "full/step-2/model.safetensors"))
    if flat:  # which parameters share a group is not recorded
        saved = torch.load(m / "full-fsdp/step-2/optimizer.bin", weights_only=True)
        set_optimizer_state_dict(again, fresh, saved, options=StateDictOptions(full_state_dict=True))
    else:
        fresh.load_state_dict(torch.load(m / "full/step-2/optimizer.pt", weights_only=True))
    trees.assert_same(states(fresh), states(optimizer))
    train(model, optimizer, 2)
    train(again, fresh, 2)
    trees.assert_same(again.state_dict(), model.state_dict())


def test_no_state_among_weights(mount, command, tmp_path):
    """An averaged model beside the one that is trained: both are weights, under names of their own."""
    weights = {"a.w": torch.ones(2)}
    dist_cp.save({"net": weights, "ema": weights, "opt": {
        "state": {"a.w": {"exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 0.1, "params": ["a.w"]}]}},
        checkpoint_id=tmp_path / "source/ckpt", no_dist=True)
    shown = mount(tmp_path / "source") / "weights/ckpt/model.safetensors"
    assert set(trees.tensors(shown)) == {"net.a.w", "ema.a.w"}
    for verb in ("check", "show"):
        said = command(verb, tmp_path / "source/ckpt").stdout
        assert said.count('"net" and "ema" among them') == 1 and "-o weights_key=net" in said
    chosen = mount(tmp_path / "source", "weights_key=ema") / "weights/ckpt/model.safetensors"
    trees.assert_same(trees.tensors(chosen), weights)
