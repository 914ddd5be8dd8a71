"""`from_pretrained` of what two workers of Ray Train's `TorchTrainer` saved with FSDP2 and `torch.distributed.checkpoint`, one forward pass."""

PACKAGE, EQUAL = "ray", "logits"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "jsonschema==4.26.0", "jsonschema-specifications==2025.9.1",
            "pandas==3.1.1", "protobuf==7.36.2", "pyarrow==26.0.1", "python-dateutil==4.0.0", "pytz==2026.6", "ray==2.60.0",
            "referencing==0.37.0", "requests==2.34.2", "rpds-py==2026.9.1", "six==1.17.0", "tzdata==2026.6", "urllib3==2.8.0"]


def train(settings):
    """As Ray's guide to FSDP2 does it: each worker reports the directory that has its own shards."""
    import tempfile

    import ray.train
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=2)
    model = LlamaForCausalLM(config)
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids = torch.arange(12)[None] + dist.get_rank()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    live = {name: getattr(t, "full_tensor", lambda t=t: t)() for name, t in model.state_dict().items()}
    if dist.get_rank() == 0:
        plain = LlamaForCausalLM(config)
        plain.load_state_dict(live)
        plain.save_pretrained(f"{settings['out']}/native")
    with tempfile.TemporaryDirectory() as where:
        state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)}
        dcp.save(state, checkpoint_id=where)
        ray.train.report({"loss": 0.0}, checkpoint=ray.train.Checkpoint.from_directory(where))


def source(out):
    import os
    import pathlib
    import shutil

    os.environ.pop("RAY_ADDRESS", None)  # a cluster of its own
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20)
    found = TorchTrainer(train, train_loop_config={"out": out}, torch_config=TorchConfig(backend="gloo"),
                         scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
                         run_config=RunConfig(name="run", storage_path=f"{out}/storage")).fit()
    ray.shutdown()
    pathlib.Path(f"{out}/run").mkdir()
    shutil.copytree(found.checkpoint.path, f"{out}/run/checkpoint-1")  # Ray calls it checkpoint_TIME
    shutil.copy(f"{out}/native/config.json", f"{out}/run/config.json")


def read(directory, scratch):
    import pathlib
    import runpy

    return runpy.run_path(str(pathlib.Path(__file__).with_name("trl_sft.py")))["read"](directory, scratch)
