"""The view ema: the moving mean of the weights that a training saved beside them, against what it saved."""

import json

import lightning as L
import pytest
import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import trees


def trained():
    """A model and torch's moving mean of it."""
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                                         num_key_value_heads=2, vocab_size=40))
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    for _ in range(2):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        mean.update_parameters(model)
    return model, mean


@pytest.mark.parametrize("key", ["ema", "model_ema"])
def test_distributed_checkpoints(mount, command, tmp_path, key):
    model, mean = trained()
    where = tmp_path / "runs/run/checkpoint-3"
    dcp.save({"model": model.state_dict(), key: mean.state_dict()}, checkpoint_id=where, no_dist=True)
    model.config.save_pretrained(where)
    m = mount(tmp_path / "runs")
    trees.assert_same(trees.weights(m / "ema/run/checkpoint-3"), mean.module.state_dict())
    trees.assert_same(trees.weights(m / "weights/run/checkpoint-3"), model.state_dict())
    loaded, said = AutoModelForCausalLM.from_pretrained(m / "ema/run/checkpoint-3", output_loading_info=True)
    assert not any(said[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    trees.assert_same(loaded.state_dict(), mean.module.state_dict())
    view = json.loads(command("show", where, "--json", "-o", "view=ema").stdout)["info"]["views"]["ema"]
    assert view["state"] == "ok" and "from_pretrained" in view["usage"]


def test_memory_does_not_grow_with_the_model(mount, tmp_path):
    """Of a model of 96 MB the mount needs less than 16 MB more than of one of 8 MB, when all has been read."""
    memory = []
    for n in (2, 24):
        weights = {f"layers.{i}.weight": torch.zeros(1024, 1024) for i in range(n)}
        dcp.save({"model": weights, "ema": weights}, checkpoint_id=tmp_path / f"{n}/run/checkpoint-3", no_dist=True)
        m = mount(tmp_path / str(n), "store=none")
        with open(m / "ema/run/checkpoint-3/model.safetensors", "rb", buffering=0) as file:
            assert sum(len(part) for part in iter(lambda: file.read(1 << 20), b"")) > n * 4_000_000
        memory.append(m.rss_bytes())
    assert memory[1] < memory[0] + 16e6, memory


@pytest.mark.parametrize("name, keys", [("step-3.pt", ("model", "model_ema")), ("last.pth", ("state_dict", "state_dict_ema"))])
def test_one_file(mount, tmp_path, name, keys):
    model, mean = trained()
    bare = {n: t.clone() for n, t in mean.module.state_dict().items()}  # as timm saves it
    (tmp_path / "runs/run").mkdir(parents=True)
    torch.save({keys[0]: model.state_dict(), keys[1]: bare if "state" in keys[1] else mean.state_dict(), "epoch": 3},
               tmp_path / "runs/run" / name)
    m = mount(tmp_path / "runs")
    trees.assert_same(trees.tensors(m / "ema/run" / name / "model.safetensors"), bare)
    trees.assert_same(trees.tensors(m / "weights/run" / name / "model.safetensors"), model.state_dict())


def test_none(command, mount, tmp_path):
    model, _ = trained()
    where = tmp_path / "runs/run/checkpoint-3"
    dcp.save({"model": model.state_dict()}, checkpoint_id=where, no_dist=True)
    view = json.loads(command("show", where, "--json", "-o", "view=ema,settle=0", check=False).stdout)["info"]["views"]["ema"]
    assert view["state"] == "none" and view["why_id"] == "no_ema"
    assert not (mount(tmp_path / "runs") / "ema/run/checkpoint-3").exists()


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def training_step(self, batch, _):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def test_lightning_saves_the_mean_as_the_model(mount, tmp_path):
    """Its callback puts the mean in the model's place: the view weights has it."""
    averaging = EMAWeightAveraging(decay=0.5)
    trainer = L.Trainer(max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, callbacks=[averaging])
    module = Module()
    saved = tmp_path / "runs/run/step=3.ckpt"
    save = L.pytorch.callbacks.LambdaCallback(on_train_batch_end=lambda t, *_: t.global_step == 3 and t.save_checkpoint(saved))
    trainer.callbacks.append(save)
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(8, 3), batch_size=2))
    state = torch.load(saved, weights_only=False)
    shown = trees.tensors(mount(tmp_path / "runs") / "weights/run/step=3/model.safetensors")
    trees.assert_same(shown, state["state_dict"])
    assert not torch.equal(shown["layer.weight"], state["current_model_state"]["layer.weight"])
