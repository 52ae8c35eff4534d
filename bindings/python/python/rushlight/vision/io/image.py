"""``torchvision.io.image``: image files and tensors."""

import enum
import os

from ... import _C

__all__ = [
    "ImageReadMode", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg", "encode_png", "read_file", "read_image", "write_file", "write_jpeg", "write_png",
]


class ImageReadMode(enum.Enum):
    """The channels of an image that is read."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4
    RGBA = 4


def _mode(mode):
    if isinstance(mode, ImageReadMode):
        return mode.name
    name = str(mode).upper()
    if name not in ImageReadMode.__members__:
        raise KeyError(mode)
    return ImageReadMode[name].name


def read_file(path):
    """A file's bytes as a tensor."""
    with open(os.fspath(path), "rb") as file:
        return _C.frombuffer(bytearray(file.read()), dtype=_C.uint8)


def write_file(filename, data):
    """Writes a tensor of bytes to a file."""
    with open(os.fspath(filename), "wb") as file:
        file.write(_C._to_bytes(data.contiguous()))


def decode_image(input, mode=ImageReadMode.UNCHANGED, apply_exif_orientation=False):
    """An image ``[channels, height, width]`` of uint8 from a tensor of a PNG or JPEG file's bytes, or from a file's path."""
    if apply_exif_orientation:
        raise NotImplementedError("decode_image: EXIF orientation is not supported; rotate the image with transforms, or use Pillow's ImageOps.exif_transpose")
    if not isinstance(input, _C.Tensor):
        input = read_file(input)
    if input.dtype != _C.uint8 or input.dim() != 1 or not input.numel():
        raise RuntimeError(f"decode_image: expects bytes [n] of uint8, got {tuple(input.shape)} of {input.dtype}")
    data, mode = _C._to_bytes(input.contiguous()), _mode(mode)
    if mode.startswith("GRAY") and data[:4] == b"\x89PNG":
        image = _C._vision.decode(data, "UNCHANGED")
        if image.shape[0] > 2:
            # libpng's weights, without rounding.
            red, green, blue = image[:3].to(_C.int32)
            gray = ((red * 9794 + green * 19235 + blue * 3739) >> 15).to(_C.uint8)[None]
            if mode == "GRAY":
                return gray
            alpha = image[3:] if image.shape[0] == 4 else _C._torch.full_like(gray, 255)
            return _C._torch.cat([gray, alpha])
    return _C._vision.decode(data, mode)


def decode_png(input, mode=ImageReadMode.UNCHANGED, apply_exif_orientation=False):
    """``decode_image`` of a PNG file's bytes. 16 bits a channel become 8."""
    return decode_image(input, mode, apply_exif_orientation)


def decode_jpeg(input, mode=ImageReadMode.UNCHANGED, device="cpu", apply_exif_orientation=False):
    """``decode_image`` of a JPEG file's bytes, or of each of a list of them."""
    if isinstance(input, (list, tuple)):
        return [decode_jpeg(one, mode, device, apply_exif_orientation) for one in input]
    return decode_image(input, mode, apply_exif_orientation).to(device)


def read_image(path, mode=ImageReadMode.UNCHANGED, apply_exif_orientation=False):
    """A PNG or JPEG file as ``[channels, height, width]`` of uint8."""
    return decode_image(read_file(path), mode, apply_exif_orientation)


def _bytes(data):
    return _C.frombuffer(bytearray(data), dtype=_C.uint8)


def encode_png(input, compression_level=6):
    """The bytes of a PNG file of an image ``[channels, height, width]`` of uint8."""
    return _bytes(_C._vision.encode_png(input, compression_level))


def encode_jpeg(input, quality=75):
    """The bytes of a JPEG file of an image ``[1 or 3, height, width]`` of uint8, or of each of a list of them."""
    if isinstance(input, (list, tuple)):
        return [encode_jpeg(one, quality) for one in input]
    return _bytes(_C._vision.encode_jpeg(input, quality))


def _write(data, filename):
    if hasattr(filename, "write"):
        filename.write(data)
    else:
        with open(os.fspath(filename), "wb") as file:
            file.write(data)


def write_png(input, filename, compression_level=6):
    """Writes an image ``[channels, height, width]`` of uint8 to a PNG file, by name or file object."""
    _write(_C._vision.encode_png(input, compression_level), filename)


def write_jpeg(input, filename, quality=75):
    """Writes an image ``[1 or 3, height, width]`` of uint8 to a JPEG file, by name or file object."""
    _write(_C._vision.encode_jpeg(input, quality), filename)
