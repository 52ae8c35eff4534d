"""A variational autoencoder with its two losses."""

import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 32)
        self.fc21 = nn.Linear(32, 2)
        self.fc22 = nn.Linear(32, 2)
        self.fc3 = nn.Linear(2, 32)
        self.fc4 = nn.Linear(32, 16)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 16))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 16), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


model = VAE()
optimizer = optim.Adam(model.parameters(), lr=1e-2)
patterns = (torch.rand(4, 1, 4, 4) > 0.5).float()
data = patterns[torch.randint(0, 4, (256,))]
loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
losses = []
for epoch in range(30):
    total = 0
    for x in loader:
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        loss = loss_function(recon, x, mu, logvar)
        loss.backward()
        total += loss.item()
        optimizer.step()
    losses.append(total / len(data))
with torch.no_grad():
    sample = model.decode(torch.randn(8, 2)).cpu().view(8, 1, 4, 4)
assert sample.min() >= 0 and sample.max() <= 1
print(f"{losses[0]:.3f} -> {losses[-1]:.3f}")
assert losses[-1] < 0.6 * losses[0]
