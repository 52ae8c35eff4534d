"""Sub-pixel super resolution on generated pictures, in the manner of pytorch/examples."""

from __future__ import print_function
import argparse
from math import log10
from os import listdir, makedirs
from os.path import join

import torch
import torch.nn as nn
import torch.nn.init as init
import torch.optim as optim
import torch.utils.data as data
from torch.utils.data import DataLoader
from torchvision.transforms import Compose, CenterCrop, ToTensor, Resize
from torchvision.io import read_image
from torchvision.utils import save_image


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super(Net, self).__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 16, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(16, 8, (3, 3), (1, 1), (1, 1))
        self.conv4 = nn.Conv2d(8, upscale_factor ** 2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.conv3(x))
        x = self.pixel_shuffle(self.conv4(x))
        return x

    def _initialize_weights(self):
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv2.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv3.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv4.weight)


class DatasetFromFolder(data.Dataset):
    def __init__(self, image_dir, input_transform=None, target_transform=None):
        super(DatasetFromFolder, self).__init__()
        self.image_filenames = [join(image_dir, x) for x in sorted(listdir(image_dir)) if any(x.endswith(e) for e in [".png", ".jpg"])]
        self.input_transform = input_transform
        self.target_transform = target_transform

    def __getitem__(self, index):
        input = read_image(self.image_filenames[index], mode="GRAY").float() / 255
        target = input.clone()
        if self.input_transform:
            input = self.input_transform(input)
        if self.target_transform:
            target = self.target_transform(target)
        return input, target

    def __len__(self):
        return len(self.image_filenames)


parser = argparse.ArgumentParser(description="PyTorch Super Res Example")
parser.add_argument("--upscale_factor", type=int, default=2)
parser.add_argument("--batchSize", type=int, default=4)
parser.add_argument("--testBatchSize", type=int, default=2)
parser.add_argument("--nEpochs", type=int, default=6)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--seed", type=int, default=123)
opt = parser.parse_args()
torch.manual_seed(opt.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

for folder, count in (("train", 12), ("test", 4)):
    makedirs(folder, exist_ok=True)
    y, x = torch.meshgrid(torch.linspace(0, 6, 24), torch.linspace(0, 6, 24), indexing="ij")
    for i in range(count):
        save_image((0.5 + 0.5 * torch.sin(x * (1 + i / 4) + i) * torch.cos(y)).expand(3, -1, -1), join(folder, f"{i:02}.png"))
crop_size = 24 - (24 % opt.upscale_factor)
shrink = Compose([CenterCrop(crop_size), Resize(crop_size // opt.upscale_factor)])
train_set = DatasetFromFolder("train", input_transform=shrink, target_transform=Compose([CenterCrop(crop_size)]))
test_set = DatasetFromFolder("test", input_transform=shrink, target_transform=Compose([CenterCrop(crop_size)]))
training_data_loader = DataLoader(dataset=train_set, num_workers=opt.threads, batch_size=opt.batchSize, shuffle=True)
testing_data_loader = DataLoader(dataset=test_set, num_workers=opt.threads, batch_size=opt.testBatchSize, shuffle=False)
model = Net(upscale_factor=opt.upscale_factor).to(device)
criterion = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=opt.lr)


def train(epoch):
    epoch_loss = 0
    for iteration, batch in enumerate(training_data_loader, 1):
        input, target = batch[0].to(device), batch[1].to(device)
        optimizer.zero_grad()
        loss = criterion(model(input), target)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()
    print("===> Epoch {} Complete: Avg. Loss: {:.4f}".format(epoch, epoch_loss / len(training_data_loader)))


def test():
    avg_psnr = 0
    with torch.no_grad():
        for batch in testing_data_loader:
            input, target = batch[0].to(device), batch[1].to(device)
            prediction = model(input)
            mse = criterion(prediction, target)
            avg_psnr += 10 * log10(1 / mse.item())
    print("===> Avg. PSNR: {:.4f} dB".format(avg_psnr / len(testing_data_loader)))
    return avg_psnr / len(testing_data_loader)


first = test()
for epoch in range(1, opt.nEpochs + 1):
    train(epoch)
    last = test()
torch.save(model, "model.pth")
again = torch.load("model.pth", weights_only=False)
assert last > first + 3 and again(train_set[0][0].unsqueeze(0).to(device)).shape == (1, 1, crop_size, crop_size)
