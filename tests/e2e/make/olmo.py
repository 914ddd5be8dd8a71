"""What OLMo-core 3.0.0 saves of a model and its optimizer, by its own function: olmo.py OUT, by any number of ranks.
OUT/live.safetensors is what they held: NAME, and NAME|STATE. Of what the package imports for clouds nothing is there."""

import os
import sys
from unittest import mock

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from installed import installed

sys.path.append(str(installed("olmo-core-3.0.0", "ai2-olmo-core==3.0.0", "dataclass-extensions==0.5.0", "bettermap==1.3.1",
                              "dill==0.4.1", "requests==2.34.2", "certifi==2026.10.18", "charset-normalizer==3.5.2",
                              "idna==3.20", "urllib3==2.8.0")))
CLIENT = type("Client", (), {"recoverable_errors": ()})
for name in ("cached_path", "cached_path.schemes"):
    sys.modules[name] = mock.MagicMock(S3Client=CLIENT, SchemeClient=CLIENT)
from olmo_core.distributed.checkpoint import save_model_and_optim_state  # noqa: E402


def whole(t):
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().contiguous()


def main():
    out = sys.argv[1]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 63))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.arange(8)).square().mean().backward()
    optimizer.step()
    save_model_and_optim_state(f"{out}/run/step1/model_and_optim", model, optimizer)
    live = {name: whole(t) for name, t in model.state_dict().items()}
    live |= {f"{name}|{key}": whole(t) for name, p in model.named_parameters() for key, t in optimizer.state[p].items()}
    if os.environ.get("RANK", "0") == "0":
        save_file(live, f"{out}/live.safetensors")
    if dist.is_initialized():
        dist.destroy_process_group()


main()
