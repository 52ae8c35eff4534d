"""The version, as scripts for PyTorch read it: the PyTorch release whose interface this is, then our version after the plus."""

__version__ = "2.15.0+rushlight0.1.0"

#: The same for torchvision.
vision_version = "0.29.2+rushlight0.1.0"

#: The same for torchaudio.
audio_version = "2.11.0+rushlight0.1.0"
