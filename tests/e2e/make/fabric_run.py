"""Lightning Fabric on CPU over gloo, several jobs in one launch:

    torchrun --nproc_per_node=W fabric_run.py OUT JOB...       (or without torchrun, for "one")

JOB is one of
    save:STRATEGY[:own]          three batches; OUT/STRATEGY[-own]/run/state, and OUT/STRATEGY[-own]/live.safetensors
                                 with model and optimizers as they were
    load:STRATEGY:NAME:PATH[:own]  fabric.load from PATH into a model with other weights: OUT/NAME.safetensors, as
                                 above, and OUT/NAME.json with the plain values; then two more batches:
                                 OUT/NAME.after.safetensors
    fail:STRATEGY:NAME:PATH      the same, which must not work: OUT/NAME.txt, the error

STRATEGY is fsdp, mp (ModelParallelStrategy, FSDP2), tp (ModelParallelStrategy, tensor parallel), z2 (DeepSpeed), z2u (DeepSpeed, load_universal) or one (a single device).
"own": keys of the user's own, a second module that is not sharded, and two optimizers. A path holds no ":".
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.accelerators import CUDAAccelerator
from lightning.fabric.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import lightning_run
import oracle
from leaving import leave
from lightning_net import Layer, Net

of_fsdp = sys.modules["lightning.fabric.strategies.fsdp"]
of_deepspeed = sys.modules["lightning.fabric.strategies.deepspeed"]


class Accelerator(CUDAAccelerator):
    """Lightning refuses FSDP without one of these; this one works on the CPU."""

    setup_device = lightning_run.Accelerator.setup_device
    teardown = lightning_run.Accelerator.teardown
    parse_devices = staticmethod(lightning_run.Accelerator.parse_devices)
    get_parallel_devices = staticmethod(lightning_run.Accelerator.get_parallel_devices)
    auto_device_count = staticmethod(lightning_run.Accelerator.auto_device_count)
    is_available = staticmethod(lightning_run.Accelerator.is_available)
    name = staticmethod(lightning_run.Accelerator.name)


class Fsdp(lightning_run.OnCpu, FSDPStrategy):
    def setup_module(self, module):
        return FullyShardedDataParallel(module, device_id=torch.device("cpu"), **self._fsdp_kwargs)


class Parallel(lightning_run.OnCpu, ModelParallelStrategy):
    pass


class DeepSpeed(lightning_run.OnCpu, DeepSpeedStrategy):
    root_device = property(lambda self: torch.device("cpu", 0))


def sharded(model, mesh):
    for layer in model.fc:
        fully_shard(layer, mesh=mesh["data_parallel"])
    return fully_shard(model, mesh=mesh["data_parallel"])


def cut(model, mesh):
    """Every trained parameter: torch's AdamW takes DTensors or plain tensors, not both."""
    return parallelize_module(model, mesh["tensor_parallel"], {
        "emb": RowwiseParallel(input_layouts=Replicate()), "fc.0": ColwiseParallel(), "fc.1": RowwiseParallel(),
        "head": ColwiseParallel(output_layouts=Replicate())})


def strategy_of(name):
    if name == "fsdp":
        return Fsdp(state_dict_type="sharded", auto_wrap_policy={Layer})
    if name == "mp":
        return Parallel(parallelize_fn=sharded, data_parallel_size=dist.get_world_size(), tensor_parallel_size=1,
                        save_distributed_checkpoint=True)
    if name == "tp":
        return Parallel(parallelize_fn=cut, data_parallel_size=1, tensor_parallel_size=dist.get_world_size(),
                        save_distributed_checkpoint=True)
    if name.startswith("z"):
        import lightning_deepspeed

        return DeepSpeed(config=lightning_deepspeed.config(name))
    return "auto"


def fabric_of(name):
    one = name == "one"
    fabric = Fabric(accelerator="cpu" if one else Accelerator(), strategy=strategy_of(name),
                    devices=1 if one else dist.get_world_size())
    fabric.launch()
    return fabric


def beside():
    """What is saved beside model and optimizers: plain values, a tensor, an object with a state."""
    return {"iter_num": 3, "hparams": {"lr": 0.01, "names": ["a", "b"]}, "mean": torch.arange(3.0),
            "schedule": {"last": [0.1, 0.2]}}


def trained(net, names=("",)):
    return [p for n, p in net.named_parameters() if p.requires_grad and any(x in n for x in names)]


def optimizers_of(net, own):
    """FSDP1 saves states of whole units alone, and Layer is one."""
    if not own:
        return {"optimizer": torch.optim.AdamW(trained(net), lr=1e-2)}
    return {"adam": torch.optim.AdamW(trained(net, ("emb", "fc.0", "head")), lr=1e-2),
            "sgd": torch.optim.SGD(trained(net, ("fc.1",)), 0.1, momentum=0.9)}


class Training:
    """A model and its optimizers under Fabric; `state` is what fabric.save and fabric.load get."""

    def __init__(self, name, own, seed):
        torch.manual_seed(seed)
        self.fabric, net = fabric_of(name), Net(10, False)
        if name.startswith("z"):
            net, optimizer = self.fabric.setup(net, torch.optim.AdamW(trained(net), lr=1e-2))
            optimizers = {"optimizer": optimizer}
        else:
            net = self.fabric.setup_module(net)
            optimizers = {k: self.fabric.setup_optimizers(o) for k, o in optimizers_of(net, own).items()}
        self.net, self.optimizers = net, optimizers
        # Ranks that share a model's tensors by tensor parallelism read the same batch.
        self.replica = getattr(self.fabric.strategy, "distributed_sampler_kwargs", {"rank": 0})["rank"]
        self.state = {"net" if own else "model": net, **optimizers, **beside()}
        if own:
            torch.manual_seed(seed + 100)
            self.state["average"] = self.average = torch.nn.Linear(3, 2)

    def batches(self, numbers):
        for i in numbers:
            ids = (torch.arange(8).reshape(2, 4) + i + self.replica) % 13
            loss = self.net(ids).square().mean()
            self.fabric.backward(loss)
            for optimizer in self.optimizers.values():
                optimizer.step()
                optimizer.zero_grad()

    def held(self):
        """All of model and optimizers, gathered."""
        if isinstance(self.fabric.strategy, DeepSpeed):
            import cpu_deepspeed

            engine = self.fabric.strategy._deepspeed_engine
            return cpu_deepspeed.states(engine)
        out = {}
        for key, value in self.state.items():
            if isinstance(value, torch.nn.Module):
                out |= {f"{key}|{n}": t for n, t in self.whole_model(value).items()}
            elif key in self.optimizers:
                for n, states in self.whole_optimizer(value).items():
                    out |= {f"{key}|{n}|{s}": t for s, t in states.items() if torch.is_tensor(t)}
        return out

    def whole_model(self, module):
        module = getattr(module, "_forward_module", module)
        if isinstance(module, FullyShardedDataParallel):
            with of_fsdp._get_full_state_dict_context(module, dist.get_world_size()):
                return {k: v.clone() for k, v in module.state_dict().items()}
        return {k: oracle.full(v) for k, v in module.state_dict().items()}

    def whole_optimizer(self, optimizer):
        """By names, in torch's own way of gathering."""
        module, optimizer = self.net._forward_module, optimizer.optimizer
        if isinstance(module, FullyShardedDataParallel):
            with of_fsdp._get_full_state_dict_context(module, dist.get_world_size(), rank0_only=False):
                return FullyShardedDataParallel.optim_state_dict(module, optimizer)["state"]
        names = {id(p): n for n, p in module.named_parameters()}
        return {names[id(p)]: {k: oracle.full(v) for k, v in s.items()} for p, s in optimizer.state.items()}


def write(tensors, path):
    lightning_run.write(tensors, path)


def save(out, strategy, own=""):
    where = f"{out}/{strategy}{'-' if own else ''}{own}"
    training = Training(strategy, own, 3)
    training.batches(range(3))
    training.fabric.save(f"{where}/run/state", training.state)
    write(training.held(), f"{where}/live.safetensors")


def plain(state):
    return {k: v.tolist() if torch.is_tensor(v) else v for k, v in state.items()
            if not isinstance(v, torch.nn.Module) and not hasattr(v, "param_groups")}


def load(out, strategy, name, path, own=""):
    training = Training(strategy, own, 4)
    if os.path.isdir(path):  # whence Fabric 2.6 loads one model alone
        training.state.pop("average", None)
    training.state |= {"iter_num": 0, "hparams": {}, "mean": torch.zeros(1), "schedule": {}}
    training.fabric.load(path, training.state)
    write(training.held(), f"{out}/{name}.safetensors")
    if lightning_run.is_first():
        with open(f"{out}/{name}.json", "w") as f:
            json.dump(plain(training.state), f)
    training.batches(range(3, 5))
    write(training.held(), f"{out}/{name}.after.safetensors")


def fail(out, strategy, name, path, own=""):
    training = Training(strategy, own, 4)
    lightning_run.said(out, name, lambda: training.fabric.load(path, training.state))


KINDS = {"save": save, "load": load, "fail": fail}

if __name__ == "__main__":
    lightning_run.on_cpu()
    of_fsdp._get_sharded_state_dict_context = lightning_run.of_fsdp._get_sharded_state_dict_context
    of_fsdp._get_full_state_dict_context = lightning_run.of_fsdp._get_full_state_dict_context
    of_deepspeed._validate_device_index_selection = lambda devices: None
    for job in sys.argv[2:]:
        kind, *rest = job.split(":")
        if "WORLD_SIZE" in os.environ and not dist.is_initialized():
            dist.init_process_group("gloo")
        KINDS[kind](sys.argv[1], *rest)
    leave()
