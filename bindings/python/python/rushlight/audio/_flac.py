"""A reader of FLAC: frames of predicted samples whose residuals are Rice codes.

The bits of a file are one string of digits, in which Python finds the end of a unary code and converts fields quickly.
"""

_FIXED = ((), (1,), (2, -1), (3, -3, 1), (4, -6, 4, -1))


def _error(what):
    return RuntimeError(f"FLAC: {what}; the file is damaged or not FLAC")


class _Bits:
    def __init__(self, data):
        self.text = bin(int.from_bytes(b"\1" + data, "big"))[3:]
        self.at = 0

    def take(self, count):
        """The next bits as a number."""
        end = self.at + count
        if end > len(self.text):
            raise _error("it ends within a frame")
        found = int(self.text[self.at:end], 2) if count else 0
        self.at = end
        return found

    def signed(self, count):
        found = self.take(count)
        return found - (1 << count) if count and found >> (count - 1) else found

    def unary(self):
        """The number of zeros before the next one."""
        end = self.text.find("1", self.at)
        if end < 0:
            raise _error("it ends within a frame")
        found = end - self.at
        self.at = end + 1
        return found

    def align(self):
        self.at = (self.at + 7) // 8 * 8


def _residuals(bits, size, order):
    """The residuals of a subframe of ``size`` samples."""
    method = bits.take(2)
    if method > 1:
        raise _error(f"unknown residual coding {method}")
    width, escape = (4, 15) if method == 0 else (5, 31)
    parts = 1 << bits.take(4)
    if size % parts:
        raise _error("partitions do not divide a block")
    found = []
    text = bits.text
    for part in range(parts):
        count = size // parts - (order if part == 0 else 0)
        if count < 0:
            raise _error("a partition is shorter than its predictor")
        low = bits.take(width)
        if low == escape:
            plain = bits.take(5)
            found.extend(bits.signed(plain) for _ in range(count))
            continue
        at = bits.at
        for _ in range(count):
            end = text.find("1", at)
            stop = end + 1 + low
            if end < 0 or stop > len(text):
                raise _error("it ends within a frame")
            value = (end - at) << low | (int(text[end + 1:stop], 2) if low else 0)
            found.append(-(value >> 1) - 1 if value & 1 else value >> 1)
            at = stop
        bits.at = at
    return found


def _predicted(samples, residuals, weights, shift):
    """Appends samples: each the prediction from those before it plus a residual."""
    order = len(weights)
    reversed_weights = weights[::-1]
    for residual in residuals:
        total = 0
        for weight, sample in zip(reversed_weights, samples[len(samples) - order:]):
            total += weight * sample
        samples.append((total >> shift) + residual)
    return samples


def _subframe(bits, size, depth):
    if bits.take(1):
        raise _error("a subframe does not start with 0")
    kind = bits.take(6)
    wasted = bits.unary() + 1 if bits.take(1) else 0
    depth -= wasted
    if depth <= 0:
        raise _error("a subframe has no bits")
    if kind == 0:
        samples = [bits.signed(depth)] * size
    elif kind == 1:
        samples = [bits.signed(depth) for _ in range(size)]
    elif 8 <= kind <= 12:
        order = kind - 8
        samples = [bits.signed(depth) for _ in range(order)]
        samples = _predicted(samples, _residuals(bits, size, order), list(_FIXED[order]), 0)
    elif kind >= 32:
        order = kind - 31
        samples = [bits.signed(depth) for _ in range(order)]
        precision = bits.take(4) + 1
        shift = bits.signed(5)
        if precision == 16 or shift < 0:
            raise _error("a predictor is not valid")
        weights = [bits.signed(precision) for _ in range(order)]
        samples = _predicted(samples, _residuals(bits, size, order), weights, shift)
    else:
        raise _error(f"unknown subframe {kind}")
    return [s << wasted for s in samples] if wasted else samples


def _number(bits):
    """Skips the frame's or sample's number, coded like UTF-8."""
    first = bits.take(8)
    mask = 0x80
    count = 0
    while first & mask:
        count += 1
        mask >>= 1
    for _ in range(count - 1):
        bits.take(8)


_SIZES = {1: 192, **{n: 576 << (n - 2) for n in range(2, 6)}, **{n: 256 << (n - 8) for n in range(8, 16)}}
_DEPTHS = {1: 8, 2: 12, 4: 16, 5: 20, 6: 24, 7: 32}


def _frame(bits, stream_depth):
    """The channels of the next frame."""
    if bits.take(15) != 0b111111111111100:
        raise _error("a frame does not start where it should")
    bits.take(1)
    size_code, rate_code, assignment, depth_code = bits.take(4), bits.take(4), bits.take(4), bits.take(3)
    bits.take(1)
    _number(bits)
    size = bits.take(8) + 1 if size_code == 6 else bits.take(16) + 1 if size_code == 7 else _SIZES.get(size_code)
    if rate_code in (12, 13, 14):
        bits.take(8 if rate_code == 12 else 16)
    bits.take(8)
    depth = _DEPTHS.get(depth_code, stream_depth)
    if size is None or assignment > 10:
        raise _error("a frame's head is not valid")
    if assignment < 8:
        channels = [_subframe(bits, size, depth) for _ in range(assignment + 1)]
    else:
        first = _subframe(bits, size, depth + (assignment == 9))
        second = _subframe(bits, size, depth + (assignment != 9))
        if assignment == 8:
            channels = [first, [a - b for a, b in zip(first, second)]]
        elif assignment == 9:
            channels = [[a + b for a, b in zip(first, second)], second]
        else:
            mids = [(m << 1) | (s & 1) for m, s in zip(first, second)]
            channels = [[(m + s) >> 1 for m, s in zip(mids, second)], [(m - s) >> 1 for m, s in zip(mids, second)]]
    bits.align()
    bits.take(16)
    return channels


def decode(data):
    """The channels of a FLAC file as lists of numbers, its rate and its bits per sample."""
    at, last, stream = 4, False, None
    while not last:
        if at + 4 > len(data):
            raise _error("it ends within its head")
        last, kind, size = data[at] >> 7, data[at] & 127, int.from_bytes(data[at + 1:at + 4], "big")
        if kind == 0:
            if size < 34 or at + 4 + size > len(data):
                raise _error("the stream's description is too short")
            stream = int.from_bytes(data[at + 14:at + 22], "big")
        at += 4 + size
    if stream is None:
        raise _error("it has no description of the stream")
    rate, count, depth, total = stream >> 44, (stream >> 41 & 7) + 1, (stream >> 36 & 31) + 1, stream & (1 << 36) - 1
    channels = [[] for _ in range(count)]
    bits = _Bits(data[at:])
    while bits.at + 16 <= len(bits.text) and (not total or len(channels[0]) < total):
        found = _frame(bits, depth)
        if len(found) != count:
            raise _error("a frame has another number of channels")
        for channel, part in zip(channels, found):
            channel.extend(part)
    if len(channels[0]) < total:
        raise _error(f"it has {len(channels[0])} of {total} samples")
    return channels, rate, depth
