"""The LightningModule that the tests save and load: uneven shapes, buffers, a frozen parameter."""

import lightning.pytorch as pl
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.emb = nn.Embedding(13, hidden)
        self.fc = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(2)])
        self.frozen = nn.Parameter(torch.randn(5), requires_grad=False)
        self.head = nn.Linear(hidden, 13, bias=False)
        self.register_buffer("buf", torch.arange(7.0) / 3)
        self.register_buffer("count", torch.tensor(41))

    def forward(self, x):
        x = self.emb(x)
        for layer in self.fc:
            x = torch.relu(layer(x))
        return self.head(x)


class Module(pl.LightningModule):
    def __init__(self, hidden=10):
        super().__init__()
        self.save_hyperparameters()
        self.net = Net(hidden)

    def training_step(self, batch, _):
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return {"optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train_dataloader(self):
        ids = torch.arange(64 * 4).reshape(64, 4) % 13
        return torch.utils.data.DataLoader(ids, batch_size=2)
