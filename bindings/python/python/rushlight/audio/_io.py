"""Files of sound: WAV is read and written, FLAC is read."""

import os
import struct
from typing import NamedTuple

import rushlight as torch

from ._flac import decode as _decode_flac


class AudioMetaData(NamedTuple):
    """What ``info`` says of a file."""

    sample_rate: int
    num_frames: int
    num_channels: int
    bits_per_sample: int
    encoding: str


class _Sound(NamedTuple):
    """Samples of shape (frames, channels), as the file has them."""

    samples: torch.Tensor
    sample_rate: int
    bits: int
    encoding: str


def _bytes(uri):
    if hasattr(uri, "read"):
        return uri.read()
    with open(os.fspath(uri), "rb") as file:
        return file.read()


def _read(uri):
    data = _bytes(uri)
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _read_wav(data)
    if data[:4] == b"fLaC":
        frames, rate, bits = _decode_flac(data)
        return _Sound(torch.tensor(frames, dtype=torch.int32).t().contiguous(), rate, bits, "FLAC")
    raise RuntimeError(f"Failed to open the input: {getattr(uri, 'name', uri)!r} is neither WAV nor FLAC, the formats that are read here; convert it")


def _read_wav(data):
    at, form, rest = 12, None, None
    while at + 8 <= len(data):
        kind, size = data[at:at + 4], struct.unpack_from("<I", data, at + 4)[0]
        if kind == b"fmt ":
            if size < 16 or at + 8 + size > len(data):
                raise RuntimeError("WAV: the format chunk is too short")
            code, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", data, at + 8)
            if code == 0xFFFE and size >= 40:
                code = struct.unpack_from("<H", data, at + 8 + 24)[0]
            form = (code, channels, rate, bits)
        elif kind == b"data":
            # Writers to pipes leave the size at its largest.
            rest = data[at + 8:at + 8 + min(size, len(data) - at - 8)]
        at += 8 + size + size % 2
    if form is None or rest is None:
        raise RuntimeError("WAV: the file has no format or no data chunk")
    code, channels, rate, bits = form
    if channels == 0 or rate == 0:
        raise RuntimeError(f"WAV: {channels} channels at {rate} Hz")
    width = bits // 8
    if (code, bits) not in ((1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)):
        raise RuntimeError(f"WAV: samples of format {code} with {bits} bits are not supported; PCM of 8 to 32 bits and floats are")
    count = len(rest) // (width * channels)
    rest = bytearray(rest[: count * width * channels])
    if not rest:
        samples = torch.zeros(0, dtype=torch.float32 if code == 3 else torch.int16)
    elif (code, bits) == (1, 24):
        parts = torch.frombuffer(bytearray(rest), dtype=torch.uint8).reshape(-1, 3).to(torch.int32)
        samples = parts[:, 0] * 256 + parts[:, 1] * 65536 + (parts[:, 2] - 256 * (parts[:, 2] > 127).to(torch.int32)) * 16777216
    else:
        dtype = {(1, 8): torch.uint8, (1, 16): torch.int16, (1, 32): torch.int32, (3, 32): torch.float32, (3, 64): torch.float64}[code, bits]
        samples = torch.frombuffer(bytearray(rest), dtype=dtype)
    return _Sound(samples.reshape(count, channels), rate, bits, "PCM_F" if code == 3 else "PCM_U" if bits == 8 else "PCM_S")


def info(uri, format=None, buffer_size=4096, backend=None):
    """The rate, the length and the encoding of a file."""
    found = _read(uri)
    return AudioMetaData(found.sample_rate, found.samples.shape[0], found.samples.shape[1], found.bits, found.encoding)


def load(uri, frame_offset=0, num_frames=-1, normalize=True, channels_first=True, format=None, buffer_size=4096, backend=None):
    """The samples of a file and its rate. With ``normalize`` samples are floats in [-1, 1]; otherwise a WAV file's own integers."""
    if frame_offset < 0 or num_frames == 0 or num_frames < -1:
        raise ValueError(f"load: frame_offset must be at least 0 and num_frames positive or -1, got {frame_offset} and {num_frames}")
    found = _read(uri)
    samples = found.samples[frame_offset: None if num_frames == -1 else frame_offset + num_frames]
    if normalize or samples.is_floating_point() or found.encoding == "FLAC":
        if samples.dtype == torch.uint8:
            samples = (samples.to(torch.float32) - 128) / 128
        elif not samples.is_floating_point():
            bits = found.bits if found.encoding == "FLAC" else 16 if samples.dtype == torch.int16 else 32
            samples = samples.to(torch.float32) / float(2 ** (bits - 1))
        else:
            samples = samples.to(torch.float32)
    return (samples.t() if channels_first else samples).contiguous(), found.sample_rate


def save(
    uri, src, sample_rate, channels_first=True, format=None, encoding=None, bits_per_sample=None, buffer_size=4096, backend=None, compression=None
):
    """Writes a WAV file: floats of 32 bits, or PCM of 8 to 32 bits with ``encoding="PCM_S"``; integers as they are."""
    name = (format or os.path.splitext(os.fspath(uri) if not hasattr(uri, "write") else "x.wav")[1][1:]).lower()
    if name != "wav":
        raise RuntimeError(f"save: files of format '{name}' are not written here; use a name that ends in .wav")
    if src.dim() != 2:
        raise ValueError(f"save: expected a tensor of two dimensions, channels and time, got {src.dim()}")
    samples = (src.t() if channels_first else src).detach().cpu()
    if encoding not in (None, "PCM_S", "PCM_F", "PCM_U"):
        raise ValueError(f"save: encodings are PCM_S, PCM_U and PCM_F, got {encoding}")
    if encoding == "PCM_U" or bits_per_sample == 8 and encoding is None:
        bits, code = 8, 1
    elif encoding == "PCM_S" or encoding is None and bits_per_sample in (16, 24):
        bits, code = bits_per_sample or 16, 1
    elif encoding == "PCM_F" or samples.is_floating_point():
        bits, code = bits_per_sample or (64 if samples.dtype == torch.float64 else 32), 3
    else:
        bits, code = {torch.uint8: 8, torch.int16: 16, torch.int32: 32}.get(samples.dtype, 32), 1
    if (code, bits) not in ((1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)):
        raise ValueError(f"save: {bits} bits do not go with encoding {encoding}")
    data = _encoded(samples, code, bits)
    channels = samples.shape[1]
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, code, channels, sample_rate, sample_rate * channels * bits // 8, channels * bits // 8, bits)
    body = head + struct.pack("<4sI", b"data", len(data)) + data + b"\0" * (len(data) % 2)
    whole = struct.pack("<4sI4s", b"RIFF", 4 + len(body), b"WAVE") + body
    if hasattr(uri, "write"):
        uri.write(whole)
        return
    with open(os.fspath(uri), "wb") as file:
        file.write(whole)


def _encoded(samples, code, bits):
    if code == 3:
        return samples.to(torch.float64 if bits == 64 else torch.float32).contiguous().numpy().tobytes()
    if samples.is_floating_point():
        limit = 2.0 ** (bits - 1)
        whole = (samples.to(torch.float64) * limit).round().clamp(-limit, limit - 1).to(torch.int64)
    else:
        given = {torch.uint8: 8, torch.int16: 16}.get(samples.dtype, 32)
        whole = samples.to(torch.int64) - (128 if given == 8 else 0)
        whole = whole << (bits - given) if bits >= given else whole >> (given - bits)
    if bits == 8:
        return (whole + 128).to(torch.uint8).contiguous().numpy().tobytes()
    if bits == 24:
        parts = [(whole >> shift) & 255 for shift in (0, 8, 16)]
        return torch.stack(parts, -1).to(torch.uint8).contiguous().numpy().tobytes()
    return whole.to(torch.int16 if bits == 16 else torch.int32).contiguous().numpy().tobytes()
