"""Networks of videos: ``torchvision.models.video``."""

from .resnet import *  # noqa: F403
