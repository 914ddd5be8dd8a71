"""A model of two layers, data for it, and optimizers other than plain Adam."""

import torch
import torch.distributed as dist
import torch.nn as nn
from lion_pytorch import Lion
from schedulefree import AdamWScheduleFree
from transformers.optimization import Adafactor

OPTIMIZERS = {
    "lion": lambda p: Lion(p, lr=1e-3, weight_decay=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True),
    "schedulefree": lambda p: AdamWScheduleFree(p, lr=1e-3),
    "adafactor": lambda p: Adafactor(p, lr=1e-3, relative_step=False, scale_parameter=False),
    "muon": lambda p: torch.optim.Muon([x for x in p if x.dim() == 2], lr=1e-3),
}
WIDTH, OUT = 7, 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, OUT)

    def forward(self, x):
        return self.last(torch.relu(self.first(x))).square().mean()


def batches(each=True):
    """each: of each rank others."""
    g = torch.Generator().manual_seed(10 + (dist.get_rank() if each else 0))
    return [torch.randn(4, WIDTH, generator=g) for _ in range(3)]
