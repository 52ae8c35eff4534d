"""Networks by torchvision's names: their layers, counts of parameters, keys of their state dicts."""

import pytest

import rushlight as torch
from rushlight.vision import models

# Counts that torchvision's documentation gives for 1000 classes.
COUNTS = {
    "resnet18": 11689512, "resnet34": 21797672, "resnet50": 25557032, "resnext50_32x4d": 25028904,
    "mobilenet_v2": 3504872,
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    model = models.get_model(name)
    assert sum(p.numel() for p in model.parameters()) == COUNTS[name]


def test_resnet_keys_and_training():
    model = models.resnet18(num_classes=3)
    keys = list(model.state_dict())
    assert keys[:6] == ["conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"]
    assert "layer2.0.downsample.0.weight" in keys and "layer4.1.bn2.running_var" in keys and keys[-2:] == ["fc.weight", "fc.bias"]
    assert len(keys) == 122
    x, y = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_others_run():
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert models.mobilenet_v2(num_classes=5).eval()(x).shape == (1, 5)
        assert models.resnet50(num_classes=5, replace_stride_with_dilation=[False, True, True]).eval()(x).shape == (1, 5)
    assert "features.0.weight" in models.alexnet(num_classes=2).state_dict()
    assert "features.1.running_mean" in models.vgg11_bn(num_classes=2).state_dict()


def test_trained_weights_come_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match="Put torchvision's file resnet18-"):
        models.resnet18(weights=models.ResNet18_Weights.DEFAULT)
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    saved = models.resnet18()
    torch.save(saved.state_dict(), str(folder / "resnet18-f37072fd.pth"))
    loaded = models.resnet18(pretrained=True)
    assert torch.equal(loaded.fc.weight, saved.fc.weight)
    with pytest.raises(ValueError, match="Unknown model"):
        models.get_model("resnet19")
