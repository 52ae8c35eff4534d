"""``torchvision``'s names: transforms (tests/goldens/data_transforms.py), files, datasets."""

import gzip
import io
import json
import os
import pickle
import struct

import numpy
import pytest
from goldens import DATA

import rushlight as torch
from rushlight import vision
from rushlight.vision import datasets, transforms, utils
from rushlight.vision._image import Image
from rushlight.vision.transforms import functional as F
from rushlight.vision.transforms import v2

GOLDENS = json.loads((DATA.parent / "data_transforms.json").read_text())


def tensor(entry):
    return torch.tensor(entry["data"], dtype=getattr(torch, entry["dtype"])).reshape(entry["shape"])


FUNCTIONS = {
    "brightness": lambda image, factor: F.adjust_brightness(image, factor),
    "contrast": lambda image, factor: F.adjust_contrast(image, factor),
    "saturation": lambda image, factor: F.adjust_saturation(image, factor),
    "hue": lambda image, shift: F.adjust_hue(image, shift),
    "grayscale": lambda image: F.rgb_to_grayscale(image),
    "normalize": lambda image, mean, std: F.normalize(image, mean, std),
    "to_tensor": lambda image: F.to_tensor(Image(image)),
    "resize": lambda image, size, antialias: F.resize(image, size, antialias=antialias),
    "center_crop": lambda image, size: F.center_crop(image, size),
}


@pytest.mark.parametrize("number, case", list(enumerate(GOLDENS["cases"])), ids=lambda c: c["op"] if isinstance(c, dict) else str(c))
def test_transforms_are_torchvisions(number, case):
    image, expected = tensor(case["image"]), tensor(case["out"])
    found = FUNCTIONS[case["op"]](image, **case["args"])
    assert found.dtype == expected.dtype and found.shape == expected.shape
    # Where PyTorch rounds a half, the last bit may differ.
    tolerance = 1 if expected.dtype == torch.uint8 else 2e-5
    assert (found.double() - expected.double()).abs().max().item() <= tolerance
    if image.dtype == torch.uint8 and case["op"] != "to_tensor":
        again = FUNCTIONS[case["op"]](Image(image), **case["args"])
        assert isinstance(again, Image) and torch.equal(F.pil_to_tensor(again), found)
        if case["op"] != "center_crop":
            both = FUNCTIONS[case["op"]](torch.stack([image, image]), **case["args"])
            assert both.shape[0] == 2 and (both[1].double() - found.double()).abs().max().item() <= 1


def picture(height=4, width=5, channels=3):
    return torch.arange(channels * height * width).reshape(channels, height, width).to(torch.uint8)


def test_places():
    image = picture()
    assert torch.equal(F.hflip(image), image.flip(-1)) and torch.equal(F.vflip(image), image.flip(-2))
    assert torch.equal(F.crop(image, 1, 2, 2, 3), image[:, 1:3, 2:5])
    outside = F.crop(image, -1, -1, 3, 3)
    assert outside.shape == (3, 3, 3) and outside[0].tolist() == [[0, 0, 0], [0, 0, 1], [0, 5, 6]]
    assert F.crop(image, 3, 4, 2, 2)[0].tolist() == [[19, 0], [0, 0]]
    assert F.pad(image, 1).shape == (3, 6, 7) and F.pad(image, [1, 2]).shape == (3, 8, 7)
    assert F.pad(image, [1, 2, 3, 4], fill=9)[0, 0].tolist() == [9] * 9
    row = torch.tensor([[[1, 2, 3]]])
    assert F.pad(row, [2, 0], padding_mode="reflect")[0, 0].tolist() == [3, 2, 1, 2, 3, 2, 1]
    assert F.pad(row, [2, 0], padding_mode="edge")[0, 0].tolist() == [1, 1, 1, 2, 3, 3, 3]
    assert F.pad(row, [2, 0], padding_mode="symmetric")[0, 0].tolist() == [2, 1, 1, 2, 3, 3, 2]
    assert [c.shape for c in F.five_crop(image, 2)] == [(3, 2, 2)] * 5 and len(F.ten_crop(image, 2)) == 10
    assert torch.equal(F.erase(image, 0, 0, 2, 2, 7)[:, :2, :2], torch.full((3, 2, 2), 7, dtype=torch.uint8))
    assert F.resize(image, 8).shape == (3, 8, 10) and F.resize(image, [2, 3]).shape == (3, 2, 3)
    assert F.resize(image, 8, max_size=9).shape == (3, 7, 9)
    assert F.resize(image, [2, 2], F.InterpolationMode.NEAREST)[0].tolist() == [[0, 2], [10, 12]]
    assert F.resize(picture().float(), [9, 7], F.InterpolationMode.BICUBIC).shape == (3, 9, 7)


def test_turning():
    image = picture(4, 4)
    assert torch.equal(F.rotate(image, 90), image.rot90(1, (-2, -1)))
    assert torch.equal(F.rotate(image, 180), image.flip((-2, -1)))
    wide = picture(2, 6)
    assert torch.equal(F.rotate(wide, 90, expand=True), wide.rot90(1, (-2, -1)))
    assert F.rotate(wide, 30, expand=True).shape[-2:] == (5, 7)
    assert F.rotate(picture(8, 8).float(), 45, F.InterpolationMode.BILINEAR, fill=5.0)[0, 0, 0].item() == 5.0
    assert torch.equal(F.affine(image, 0, (1, 0), 1.0, 0.0)[:, :, 1:], image[:, :, :-1])
    assert torch.equal(F.affine(image, 90, (0, 0), 1.0, 0.0), image.rot90(-1, (-2, -1)))
    blurred = F.gaussian_blur(torch.ones(1, 6, 6), 3)
    assert torch.allclose(blurred, torch.ones(1, 6, 6))


def test_kinds_of_values():
    array = numpy.arange(24, dtype="u1").reshape(2, 4, 3)
    assert F.to_tensor(array).shape == (3, 2, 4) and F.to_tensor(array)[1, 0, 0].item() == pytest.approx(1 / 255)
    assert F.to_tensor(numpy.ones((2, 2), "f4")).max().item() == 1.0
    image = F.to_pil_image(torch.tensor([[[0.0, 1.0]]]))
    assert image.mode == "L" and image.size == (2, 1) and numpy.asarray(image).tolist() == [[0, 255]]
    assert F.convert_image_dtype(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, 1.0]
    assert F.convert_image_dtype(torch.tensor([0.0, 1.0]), torch.uint8).tolist() == [0, 255]
    for call, kind, message in [
        (lambda: F.to_tensor(3), TypeError, "pic should be PIL Image or ndarray"),
        (lambda: F.normalize(picture(), [0.5], [0.5]), TypeError, "should be a float tensor"),
        (lambda: F.normalize(picture().float(), [0.5], [0.0]), ValueError, "division by zero"),
        (lambda: F.hflip("x"), TypeError, "img should be PIL Image or Tensor"),
        (lambda: F.pad(picture(), [1, 2, 3]), ValueError, "1, 2, or 4 element tuple"),
        (lambda: transforms.RandomCrop(9)(picture()), ValueError, "larger than input image size"),
        (lambda: transforms.ColorJitter(hue=0.7), ValueError, "hue values should be between"),
    ]:
        with pytest.raises(kind, match=message):
            call()


def test_random_transforms():
    image = Image(picture(16, 20))
    train = transforms.Compose([
        transforms.RandomResizedCrop(12), transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip(0.2), transforms.ColorJitter(0.2, 0.2, 0.2, 0.1),
        transforms.RandomRotation(10), transforms.RandomAffine(5, (0.1, 0.1), (0.9, 1.1), 5), transforms.RandomGrayscale(), transforms.GaussianBlur(3),
        transforms.RandomApply([transforms.RandomInvert(1.0)], 0.5), transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3),
        transforms.RandomErasing(value="random"), transforms.Lambda(lambda x: x * 2),
    ])
    torch.manual_seed(4)
    first, second = train(image), train(image)
    torch.manual_seed(4)
    assert torch.equal(train(image), first) and not torch.equal(first, second)
    assert first.shape == (3, 12, 12) and first.dtype == torch.float32
    assert transforms.RandomCrop(16, padding=4)(picture(16, 16)).shape == (3, 16, 16)
    assert transforms.RandomCrop(24, pad_if_needed=True)(image).size == (24, 24)
    assert repr(transforms.Resize(4)) == "Resize(size=4, interpolation=bilinear, max_size=None, antialias=True)"
    newer = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Resize((4, 4))])
    assert newer(image).shape == (3, 4, 4) and newer(image).max() <= 1


def test_grids_and_files(tmp_path):
    images = torch.rand(5, 1, 4, 4)
    grid = utils.make_grid(images, nrow=3, padding=1, pad_value=0.5)
    assert grid.shape == (3, 11, 16) and grid[0, 0, 0].item() == 0.5
    assert torch.equal(grid[0, 1:5, 6:10], images[1, 0])
    assert utils.make_grid(torch.tensor([[[[-1.0, 3.0]]]]), normalize=True).tolist()[0] == [[0.0, 1.0]]
    path = str(tmp_path / "grid.png")
    utils.save_image(images, path, nrow=3, padding=1)
    back = vision.io.read_image(path)
    expected = utils.make_grid(images, nrow=3, padding=1).mul(255).add(0.5).to(torch.uint8)
    assert torch.equal(back, expected)
    buffer = io.BytesIO()
    utils.write_png(picture(), buffer)
    assert buffer.getvalue().startswith(b"\x89PNG")


def idx(path, array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + b"".join(struct.pack(">I", n) for n in array.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + array.tobytes())


@pytest.mark.parametrize("kind", ["MNIST", "FashionMNIST"])
def test_mnist(tmp_path, kind):
    raw = tmp_path / kind / "raw"
    raw.mkdir(parents=True)
    images = numpy.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype="u1")
    labels = numpy.arange(6, dtype="u1")
    for part in ("train", "t10k"):
        idx(raw / f"{part}-images-idx3-ubyte.gz", images)
        idx(raw / f"{part}-labels-idx1-ubyte.gz", labels)
    cls = getattr(datasets, kind)
    data = cls(str(tmp_path), train=True, download=True, transform=transforms.ToTensor())
    image, label = data[2]
    assert len(data) == 6 and label == 2 and image.shape == (1, 28, 28)
    assert numpy.array_equal((image[0] * 255).round().to(torch.uint8).numpy(), images[2])
    assert data.data.shape == (6, 28, 28) and data.targets.tolist() == list(range(6)) and len(data.classes) == 10
    x, y = next(iter(torch.utils.data.DataLoader(data, batch_size=4)))
    assert x.shape == (4, 1, 28, 28) and y.dtype == torch.int64
    with pytest.raises(RuntimeError, match="Dataset not found. You can use download=True"):
        cls(str(tmp_path / "elsewhere"))


def test_cifar(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    pixels = numpy.random.default_rng(0).integers(0, 256, (4, 3072), dtype="u1")
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "labels": [0, 1, 2, 9]}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    data = datasets.CIFAR10(str(tmp_path), train=True, transform=transforms.ToTensor())
    assert len(data) == 20 and data.classes[9] == "j" and data[3][1] == 9 and data.class_to_idx["b"] == 1
    assert numpy.array_equal(data.data[1], pixels[1].reshape(3, 32, 32).transpose(1, 2, 0))
    assert data[1][0].shape == (3, 32, 32)
    assert len(datasets.CIFAR10(str(tmp_path), train=False)) == 4
    (folder / "test_batch").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(pickle.UnpicklingError, match="has no place"):
        datasets.CIFAR10(str(tmp_path), train=False)
    binary = tmp_path / "binary" / "cifar-100-binary"
    binary.mkdir(parents=True)
    for name in ("train.bin", "test.bin"):
        (binary / name).write_bytes(bytes([1, 7]) + pixels[0].tobytes())
    hundred = datasets.CIFAR100(str(tmp_path / "binary"), train=False)
    assert hundred.targets == [7] and hundred[0][0].size == (32, 32)
    with pytest.raises(RuntimeError, match="Dataset not found or corrupted"):
        datasets.CIFAR10(str(tmp_path / "elsewhere"))


def test_folders_and_noise(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name / "more").mkdir(parents=True)
        utils.write_png(picture(), str(tmp_path / name / "1.png"))
        utils.write_png(picture(), str(tmp_path / name / "more" / "0.png"))
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    data = datasets.ImageFolder(str(tmp_path), transform=transforms.PILToTensor())
    assert data.classes == ["cat", "dog"] and data.targets == [0, 0, 1, 1] and len(data.imgs) == 4
    assert torch.equal(data[3][0], picture())
    with pytest.raises(FileNotFoundError, match="Couldn't find any class folder"):
        datasets.ImageFolder(str(tmp_path / "cat" / "more"))
    noise = datasets.FakeData(3, (3, 8, 8), 5, transforms.ToTensor())
    assert torch.equal(noise[1][0], noise[1][0]) and not torch.equal(noise[0][0], noise[1][0]) and 0 <= noise[2][1] < 5
    with pytest.raises(IndexError):
        noise[3]


def test_pillow_images():
    pillow = pytest.importorskip("PIL.Image")
    image = pillow.fromarray(numpy.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype="u1"))
    assert F.to_tensor(image).shape == (3, 9, 7)
    flipped = F.hflip(image)
    assert isinstance(flipped, pillow.Image) and flipped.size == (7, 9)
    assert isinstance(datasets.FakeData(1, (3, 8, 8))[0][0], pillow.Image)
    grey = F.rgb_to_grayscale(image)
    assert grey.mode == "L"
    small, expected = F.resize(image, [4, 3]), F.resize(F.pil_to_tensor(image), [4, 3])
    assert (F.pil_to_tensor(small).int() - expected.int()).abs().max() <= 1


def test_modules_by_their_names(tmp_path):
    from rushlight.vision.datasets.folder import ImageFolder, find_classes, has_file_allowed_extension, is_image_file, make_dataset
    from rushlight.vision.io.image import read_image
    from rushlight.vision.models.mobilenet import MobileNetV2, mobilenet_v3_small  # noqa: F401
    from rushlight.vision.ops.focal_loss import sigmoid_focal_loss
    from rushlight.vision.ops.roi_align import roi_align
    from rushlight.vision.transforms.autoaugment import RandAugment

    assert roi_align is vision.ops.roi_align and sigmoid_focal_loss is vision.ops.sigmoid_focal_loss and RandAugment is vision.transforms.RandAugment
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        vision.io.write_png(torch.zeros(3, 2, 2, dtype=torch.uint8), tmp_path / name / f"{name}.PNG")
    (tmp_path / "a" / "notes.txt").write_text("")
    assert find_classes(tmp_path) == (["a", "b"], {"a": 0, "b": 1}) and is_image_file("x.JPG") and not has_file_allowed_extension("x.jpg", ".png")
    assert [(os.path.basename(path), number) for path, number in make_dataset(str(tmp_path), extensions=(".png",))] == [("a.PNG", 0), ("b.PNG", 1)]
    with pytest.raises(FileNotFoundError, match="no valid file for the classes b"):
        make_dataset(str(tmp_path), is_valid_file=lambda path: "a.PNG" in path)

    class Halves(ImageFolder):
        @staticmethod
        def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None, allow_empty=False):
            return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)[::2]

    assert len(ImageFolder(tmp_path)) == 2 and len(Halves(tmp_path)) == 1 and read_image(tmp_path / "a" / "a.PNG").shape == (3, 2, 2)
    with pytest.raises(NotImplementedError, match="PNG and JPEG"):
        vision.io.decode_gif(torch.zeros(1, dtype=torch.uint8))
