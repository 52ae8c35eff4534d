"""Filters, convolutions and measures of waveforms: parts of ``torchaudio.functional``."""

import math

import rushlight as torch
from rushlight.nn import functional as F

from ._spectral import resample

__all__ = [
    "add_noise", "allpass_biquad", "band_biquad", "bandpass_biquad", "bandreject_biquad", "bass_biquad", "biquad", "contrast", "convolve", "dcshift",
    "deemphasis", "edit_distance", "equalizer_biquad", "fftconvolve", "filtfilt", "frechet_distance", "gain", "highpass_biquad", "lfilter", "loudness",
    "lowpass_biquad", "overdrive", "preemphasis", "speed", "treble_biquad",
]

#: Samples that one step of a recursive filter computes.
_BLOCK = 128


def _recursion(x, a):
    """``y`` with ``y[t] + a[1] y[t-1] + ... = x[t]``: block by block, each from the samples before it. x: [batch, filters, time], a: [filters, order + 1]."""
    order, count = a.shape[1] - 1, x.shape[-1]
    if order == 0 or count == 0:
        return x
    size = min(_BLOCK, count)
    steps = torch.arange(size, device=x.device).unsqueeze(1) - torch.arange(-order, size, device=x.device).unsqueeze(0)
    inside = (steps >= 0) & (steps <= order)
    band = torch.where(inside, a[:, steps.clamp(0, order)], torch.zeros((), dtype=a.dtype, device=a.device))
    before, within = band[..., :order], band[..., order:]
    solved = torch.linalg.solve_triangular(within, torch.cat([torch.eye(size, dtype=a.dtype, device=a.device).expand(within.shape), before], -1), upper=False)
    own, past = solved[..., :size], solved[..., size:]
    state = x.new_zeros((*x.shape[:-1], order))
    found = []
    for start in range(0, count, size):
        part = x[..., start:start + size]
        n = part.shape[-1]
        made = torch.einsum("fij,bfj->bfi", own[:, :n, :n], part) - torch.einsum("fij,bfj->bfi", past[:, :n], state)
        found.append(made)
        state = torch.cat([state, made], -1)[..., -order:]
    return torch.cat(found, -1)


def lfilter(waveform, a_coeffs, b_coeffs, clamp=True, batching=True):
    """The difference equation with numerators ``b_coeffs`` and denominators ``a_coeffs``, lowest delay first."""
    if a_coeffs.size() != b_coeffs.size():
        raise ValueError(f"Expected coeffs to be the same size. Found a_coeffs size: {a_coeffs.size()}, b_coeffs size: {b_coeffs.size()}")
    if a_coeffs.ndim > 2:
        raise ValueError(f"Expected coeffs to have dimension less than or equal to 2. Found: {a_coeffs.ndim}")
    if a_coeffs.ndim > 1:
        if batching:
            if waveform.ndim <= 0 or waveform.shape[-2] != a_coeffs.shape[0]:
                raise ValueError(f"Expected number of batches in waveform and coeffs to be the same. Found: waveform {waveform.size()}, coeffs {a_coeffs.size()}")
        else:
            waveform = torch.stack([waveform] * a_coeffs.shape[0], -2)
    else:
        a_coeffs, b_coeffs = a_coeffs.unsqueeze(0), b_coeffs.unsqueeze(0)
    shape = waveform.size()
    x = waveform.reshape(-1, a_coeffs.shape[0], shape[-1])
    a, b = a_coeffs / a_coeffs[:, :1], b_coeffs / a_coeffs[:, :1]
    order = a.shape[1] - 1
    moved = F.conv1d(F.pad(x, (order, 0)), b.flip(1).unsqueeze(1), groups=b.shape[0])
    found = _recursion(moved, a)
    found = torch.clamp(found, min=-1.0, max=1.0) if clamp else found
    return found.reshape(shape[:-1] + found.shape[-1:])


def filtfilt(waveform, a_coeffs, b_coeffs, clamp=True):
    """A filter forward and backward in time, without delay."""
    forward = lfilter(waveform, a_coeffs, b_coeffs, clamp=False, batching=True)
    return lfilter(forward.flip(-1), a_coeffs, b_coeffs, clamp=clamp, batching=True).flip(-1)


def biquad(waveform, b0, b1, b2, a0, a1, a2):
    """A filter of second order."""
    device, dtype = waveform.device, waveform.dtype
    a, b = (torch.stack([torch.as_tensor(c, dtype=dtype, device=device).view(1) for c in part]).view(3) for part in ((a0, a1, a2), (b0, b1, b2)))
    return lfilter(waveform, a, b)


def _angle(waveform, sample_rate, frequency, Q):
    device, dtype = waveform.device, waveform.dtype
    frequency, Q = torch.as_tensor(frequency, dtype=dtype, device=device), torch.as_tensor(Q, dtype=dtype, device=device)
    w0 = 2 * math.pi * frequency / sample_rate
    return w0, torch.sin(w0) / 2 / Q


def highpass_biquad(waveform, sample_rate, cutoff_freq, Q=0.707):
    """A high pass of two poles."""
    w0, alpha = _angle(waveform, sample_rate, cutoff_freq, Q)
    c = torch.cos(w0)
    return biquad(waveform, (1 + c) / 2, -1 - c, (1 + c) / 2, 1 + alpha, -2 * c, 1 - alpha)


def lowpass_biquad(waveform, sample_rate, cutoff_freq, Q=0.707):
    """A low pass of two poles."""
    w0, alpha = _angle(waveform, sample_rate, cutoff_freq, Q)
    c = torch.cos(w0)
    return biquad(waveform, (1 - c) / 2, 1 - c, (1 - c) / 2, 1 + alpha, -2 * c, 1 - alpha)


def allpass_biquad(waveform, sample_rate, central_freq, Q=0.707):
    """An all pass of two poles."""
    w0, alpha = _angle(waveform, sample_rate, central_freq, Q)
    c = torch.cos(w0)
    return biquad(waveform, 1 - alpha, -2 * c, 1 + alpha, 1 + alpha, -2 * c, 1 - alpha)


def bandpass_biquad(waveform, sample_rate, central_freq, Q=0.707, const_skirt_gain=False):
    """A band pass of two poles."""
    w0, alpha = _angle(waveform, sample_rate, central_freq, Q)
    top = torch.sin(w0) / 2 if const_skirt_gain else alpha
    return biquad(waveform, top, 0.0, -top, 1 + alpha, -2 * torch.cos(w0), 1 - alpha)


def bandreject_biquad(waveform, sample_rate, central_freq, Q=0.707):
    """A band stop of two poles."""
    w0, alpha = _angle(waveform, sample_rate, central_freq, Q)
    c = torch.cos(w0)
    return biquad(waveform, 1.0, -2 * c, 1.0, 1 + alpha, -2 * c, 1 - alpha)


def equalizer_biquad(waveform, sample_rate, center_freq, gain, Q=0.707):
    """A peak of a gain in decibels around a frequency."""
    w0, alpha = _angle(waveform, sample_rate, center_freq, Q)
    A, c = torch.exp(torch.as_tensor(gain, dtype=waveform.dtype, device=waveform.device) / 40.0 * math.log(10)), torch.cos(w0)
    return biquad(waveform, 1 + alpha * A, -2 * c, 1 - alpha * A, 1 + alpha / A, -2 * c, 1 - alpha / A)


def band_biquad(waveform, sample_rate, central_freq, Q=0.707, noise=False):
    """A band pass of two poles, as SoX has it."""
    w0, _ = _angle(waveform, sample_rate, central_freq, Q)
    width = torch.as_tensor(central_freq, dtype=waveform.dtype, device=waveform.device) / Q
    a2 = torch.exp(-2 * math.pi * width / sample_rate)
    a1 = -4 * a2 / (1 + a2) * torch.cos(w0)
    b0 = torch.sqrt(1 - a1 * a1 / (4 * a2)) * (1 - a2)
    if noise:
        b0 = b0 * torch.sqrt(((1 + a2) * (1 + a2) - a1 * a1) * (1 - a2) / (1 + a2)) / b0
    return biquad(waveform, b0, 0.0, 0.0, 1.0, a1, a2)


def _shelf(waveform, sample_rate, gain, central_freq, Q, sign):
    w0, alpha = _angle(waveform, sample_rate, central_freq, Q)
    A, c = torch.exp(torch.as_tensor(gain, dtype=waveform.dtype, device=waveform.device) / 40.0 * math.log(10)), sign * torch.cos(w0)
    root = 2 * torch.sqrt(A) * alpha
    less, more = (A - 1) * c, (A + 1) * c
    b = (A * (A + 1 + less + root), -2 * sign * A * (A - 1 + more), A * (A + 1 + less - root))
    a = (A + 1 - less + root, 2 * sign * (A - 1 - more), A + 1 - less - root)
    return biquad(waveform, *b, *a)


def treble_biquad(waveform, sample_rate, gain, central_freq=3000, Q=0.707):
    """High frequencies by a gain in decibels."""
    return _shelf(waveform, sample_rate, gain, central_freq, Q, 1)


def bass_biquad(waveform, sample_rate, gain, central_freq=100, Q=0.707):
    """Low frequencies by a gain in decibels."""
    return _shelf(waveform, sample_rate, gain, central_freq, Q, -1)


def preemphasis(waveform, coeff=0.97):
    """Samples minus a part of the one before."""
    made = waveform.clone()
    made[..., 1:] -= coeff * waveform[..., :-1]
    return made


def deemphasis(waveform, coeff=0.97):
    """The inverse of ``preemphasis``."""
    return lfilter(
        waveform, torch.tensor([1.0, -coeff], dtype=waveform.dtype, device=waveform.device), torch.tensor([1.0, 0.0], dtype=waveform.dtype, device=waveform.device)
    )


def gain(waveform, gain_db=1.0):
    """Amplitudes by a gain in decibels."""
    return waveform if gain_db == 0 else waveform * 10 ** (gain_db / 20)


def dcshift(waveform, shift, limiter_gain=None):
    """Samples plus a constant, limited near the ends of the range if ``limiter_gain`` is given."""
    made = waveform
    limit = 1.0 - (abs(shift) - limiter_gain) if limiter_gain is not None else 0.0
    if limiter_gain is not None and shift > 0:
        mask = waveform > limit
        made = torch.where(mask, (waveform - limit) * limiter_gain / (1 - limit), waveform)
        made = torch.where(mask, made.clamp(max=limit), made)
        return torch.where(~mask & (waveform < limit), (waveform + shift).clamp(min=-1.0, max=1.0), made)
    if limiter_gain is not None and shift < 0:
        mask = waveform < -limit
        made = torch.where(mask, (waveform + limit) * limiter_gain / (1 - limit), waveform)
        made = torch.where(mask, made.clamp(min=-limit), made)
        return torch.where(~mask & (waveform > -limit), (waveform + shift).clamp(min=-1.0, max=1.0), made)
    return (waveform + shift).clamp(min=-1.0, max=1.0)


def contrast(waveform, enhancement_amount=75.0):
    """Louder quiet parts, as SoX has it."""
    if not 0 <= enhancement_amount <= 100:
        raise ValueError("Allowed range of values for enhancement_amount : 0-100")
    shaped = waveform * (math.pi / 2)
    return torch.sin(shaped + enhancement_amount / 750.0 * torch.sin(shaped * 4))


def overdrive(waveform, gain=20, colour=20):
    """Distortion, as SoX has it."""
    shape = waveform.size()
    x = waveform.reshape(-1, shape[-1])
    amount, offset = torch.exp(torch.tensor(gain / 20.0 * math.log(10), dtype=x.dtype)), colour / 200
    bent = x * amount + offset
    bent = torch.where(bent < -1, torch.tensor(-2.0 / 3.0, dtype=x.dtype), torch.where(bent > 1, torch.tensor(2.0 / 3.0, dtype=x.dtype), bent - bent ** 3 * (1.0 / 3)))
    steps = torch.cat([bent[:, :1], bent[:, 1:] - bent[:, :-1]], 1)
    moved = lfilter(steps, torch.tensor([1.0, -0.995], dtype=x.dtype), torch.tensor([1.0, 0.0], dtype=x.dtype), clamp=False)
    return (x * 0.5 + moved * 0.75).clamp(-1.0, 1.0).reshape(shape)


def _check_operands(x, y, mode):
    if x.ndim != y.ndim:
        raise ValueError(f"The operands must be the same dimension (got {x.ndim} and {y.ndim}).")
    if any(a != b and 1 not in (a, b) for a, b in zip(x.shape[:-1], y.shape[:-1])):
        raise ValueError(f"Leading dimensions of x and y are not broadcastable (got {x.shape} and {y.shape}).")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"Unrecognized mode value '{mode}'. Please specify one of ['full', 'valid', 'same'].")


def _part(found, first, second, mode):
    if mode == "full":
        return found
    if mode == "valid":
        size = max(first, second) - min(first, second) + 1
        start = (found.size(-1) - size) // 2
        return found[..., start:start + size]
    start = (found.size(-1) - first) // 2
    return found[..., start:start + first]


def fftconvolve(x, y, mode="full"):
    """The convolution along the last dimension, by Fourier transforms."""
    _check_operands(x, y, mode)
    n = x.size(-1) + y.size(-1) - 1
    return _part(torch.fft.irfft(torch.fft.rfft(x, n=n) * torch.fft.rfft(y, n=n), n=n), x.size(-1), y.size(-1), mode)


def convolve(x, y, mode="full"):
    """The convolution along the last dimension."""
    _check_operands(x, y, mode)
    first, second = x.size(-1), y.size(-1)
    if x.shape[-1] < y.shape[-1]:
        x, y = y, x
    if x.shape[:-1] != y.shape[:-1]:
        lead = [max(a, b) for a, b in zip(x.shape[:-1], y.shape[:-1])]
        x, y = x.broadcast_to(lead + [x.shape[-1]]), y.broadcast_to(lead + [y.shape[-1]])
    count = math.prod(x.shape[:-1])
    found = F.conv1d(x.reshape(count, x.size(-1)), y.reshape(count, y.size(-1)).flip(-1).unsqueeze(1), stride=1, groups=count, padding=y.size(-1) - 1)
    return _part(found.reshape(x.shape[:-1] + (-1,)), first, second, mode)


def add_noise(waveform, noise, snr, lengths=None):
    """A waveform with noise of a ratio of energies in decibels."""
    if not (waveform.ndim - 1 == noise.ndim - 1 == snr.ndim and (lengths is None or lengths.ndim == snr.ndim)):
        raise ValueError("Input leading dimensions don't match.")
    if waveform.size(-1) != noise.size(-1):
        raise ValueError(f"Length dimensions of waveform and noise don't match (got {waveform.size(-1)} and {noise.size(-1)}).")
    if lengths is None:
        clean, other = waveform, noise
    else:
        mask = torch.arange(0, lengths.max().item(), device=waveform.device) < lengths.unsqueeze(-1)
        clean, other = waveform * mask, noise * mask
    energy, noise_energy = clean.pow(2).sum(-1), other.pow(2).sum(-1)
    scale = 10 ** ((10 * (torch.log10(energy) - torch.log10(noise_energy)) - snr) / 20.0)
    return waveform + scale.unsqueeze(-1) * noise


def speed(waveform, orig_freq, factor, lengths=None):
    """A waveform played faster, and its lengths."""
    source, target = int(factor * orig_freq), int(orig_freq)
    gcd = math.gcd(source, target)
    source, target = source // gcd, target // gcd
    made = None if lengths is None else torch.ceil(lengths * target / source).to(lengths.dtype)
    return resample(waveform, source, target), made


def loudness(waveform, sample_rate):
    """The loudness in LKFS, by ITU-R BS.1770-4."""
    if waveform.size(-2) > 5:
        raise ValueError("Only up to 5 channels are supported.")
    window = int(round(0.4 * sample_rate))
    step = int(round(window * 0.25))
    filtered = highpass_biquad(treble_biquad(waveform, sample_rate, 4.0, 1500.0, 1 / math.sqrt(2)), sample_rate, 38.0, 0.5)
    energy = torch.square(filtered).unfold(-1, window, step).mean(dim=-1)
    weights = torch.tensor([1.0, 1.0, 1.0, 1.41, 1.41], dtype=waveform.dtype, device=waveform.device)[: energy.size(-2)]

    def level(energies):
        return -0.691 + 10 * torch.log10((weights.unsqueeze(-1) * energies).sum(-2))

    gated = (level(energy) > -70.0).unsqueeze(-2)

    def mean(gated):
        return (gated * energy).sum(-1) / torch.count_nonzero(gated, dim=-1)

    found = mean(gated)
    threshold = -0.691 + 10 * torch.log10((weights * found).sum(-1)) - 10.0
    gated = gated & (level(energy) > threshold.unsqueeze(-1)).unsqueeze(-2)
    return -0.691 + 10 * torch.log10((weights * mean(gated)).sum(-1))


def edit_distance(seq1, seq2):
    """The fewest insertions, deletions and replacements between two sequences."""
    row = list(range(len(seq2) + 1))
    for i, a in enumerate(seq1, 1):
        corner, row[0] = row[0], i
        for j, b in enumerate(seq2, 1):
            corner, row[j] = row[j], corner if a == b else 1 + min(row[j], row[j - 1], corner)
    return row[-1]


def frechet_distance(mu_x, sigma_x, mu_y, sigma_y):
    """The distance of two normal distributions."""
    if mu_x.ndim != 1 or sigma_x.ndim != 2 or sigma_x.shape != sigma_y.shape or mu_x.size() != mu_y.size():
        raise ValueError(f"Input variables must be vectors and matrices of one size, got {mu_x.shape}, {sigma_x.shape}, {mu_y.shape}, {sigma_y.shape}")
    squares = (mu_x - mu_y).square().sum()
    return squares + sigma_x.trace() + sigma_y.trace() - 2 * torch.linalg.eigvals(sigma_x @ sigma_y).sqrt().real.sum()
