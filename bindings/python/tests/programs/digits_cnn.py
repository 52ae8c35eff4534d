"""A convolutional network for small images, with arguments, a schedule, evaluation and a saved model."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.bn = nn.BatchNorm2d(16)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(16 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.bn(self.conv2(x))), 2)
        x = self.dropout(x)
        x = torch.flatten(x, 1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def images(count):
    """Bright quarters of noisy images; the class is which."""
    labels = torch.randint(0, 4, (count,))
    x = 0.3 * torch.randn(count, 1, 8, 8)
    for i, label in enumerate(labels.tolist()):
        row, column = divmod(label, 2)
        x[i, 0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1
    return TensorDataset(x, labels)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            done = 100.0 * batch_idx / len(loader)
            print(f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(loader.dataset)} ({done:.0f}%)]\tLoss: {loss.item():.6f}")


def test(model, device, loader):
    model.eval()
    loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    accuracy = correct / len(loader.dataset)
    print(f"\nTest set: Average loss: {loss / len(loader.dataset):.4f}, Accuracy: {correct}/{len(loader.dataset)} ({100 * accuracy:.0f}%)\n")
    return accuracy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=4)
    parser.add_argument("--save-model", default="")
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if use_cuda else "cpu")
    kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
    train_loader = DataLoader(images(256), batch_size=args.batch_size, shuffle=True, **kwargs)
    test_loader = DataLoader(images(64), batch_size=64, **kwargs)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        accuracy = test(model, device, test_loader)
        scheduler.step()
    if args.save_model:
        torch.save(model.state_dict(), args.save_model)
        again = Net()
        again.load_state_dict(torch.load(args.save_model, map_location=device))
        assert test(again, device, test_loader) == accuracy
    assert accuracy > 0.9


if __name__ == "__main__":
    main()
