"""The version, as PyTorch-minded scripts read it: the release of PyTorch whose interface this is, and ours after the plus."""

__version__ = "2.15.0+rushlight0.1.0"

#: The same for torchvision.
vision_version = "0.29.2+rushlight0.1.0"
