"""Images of different sizes in one batch."""


class ImageList:
    """A batch of padded images and their sizes without padding."""

    def __init__(self, tensors, image_sizes):
        self.tensors, self.image_sizes = tensors, image_sizes

    def to(self, device):
        return ImageList(self.tensors.to(device), self.image_sizes)
