"""One step of the example `snapshot` by PyTorch, for bench/launch: the same model, data and optimizer over Gloo."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.rand(2048, 20), torch.rand(2048, 1))
model = DistributedDataParallel(nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = 2048 // int(os.environ["WORLD_SIZE"])
for source, targets in DataLoader(data, batch_size=batch, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(source), targets).backward()
    optimizer.step()
if dist.get_rank() == 0:
    print("Epoch 0", flush=True)
dist.destroy_process_group()
