"""The LightningModules that the tests save and load: uneven shapes, buffers, a frozen parameter; "rich"
has tied weights and two optimizers of different kinds, each with a scheduler, as well; Published holds a
model of transformers."""

import lightning.pytorch as pl
import torch
from torch import nn

import models


class Layer(nn.Linear):
    """What is sharded by itself."""


class Net(nn.Module):
    def __init__(self, hidden, tied):
        super().__init__()
        self.emb = nn.Embedding(13, hidden)
        self.fc = nn.ModuleList([Layer(hidden, hidden) for _ in range(2)])
        self.frozen = nn.Parameter(torch.randn(5), requires_grad=False)
        self.head = nn.Linear(hidden, 13, bias=False)
        if tied:
            self.head.weight = self.emb.weight
        self.register_buffer("buf", torch.arange(7.0) / 3)
        self.register_buffer("count", torch.tensor(41))

    def forward(self, x):
        x = self.emb(x)
        for layer in self.fc:
            x = torch.relu(layer(x))
        return self.head(x)


class Module(pl.LightningModule):
    def __init__(self, hidden=10, rich=False):
        super().__init__()
        self.save_hyperparameters()
        self.net = Net(hidden, rich)
        self.automatic_optimization = not rich

    def training_step(self, batch, _):
        loss = self.net(batch).square().mean()
        self.log("loss", loss)
        if self.automatic_optimization:
            return loss
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer, schedule in zip(self.optimizers(), self.lr_schedulers()):
            optimizer.step()
            schedule.step()
        return None

    def configure_optimizers(self):
        def one(optimizer):
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

        if self.automatic_optimization:
            return one(torch.optim.AdamW(self.parameters(), lr=1e-2))
        last = list(self.net.fc[1].parameters())
        rest = [p for p in self.parameters() if not any(p is q for q in last)]
        return [one(torch.optim.AdamW(rest, lr=1e-2)), one(torch.optim.SGD(last, 0.1, momentum=0.9))]

    def train_dataloader(self):
        ids = torch.arange(64 * 4).reshape(64, 4) % 13
        return torch.utils.data.DataLoader(ids, batch_size=2)


class Published(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = models.llama(torch.float32, tie=True)

    def training_step(self, batch, _):
        loss = self.model(input_ids=batch, labels=batch).loss
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.arange(64 * 4).reshape(64, 4) % 90, batch_size=2)
