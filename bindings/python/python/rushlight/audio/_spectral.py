"""Spectrograms, mel scales, cepstra and resampling: parts of ``torchaudio.functional``."""

import math
import warnings

import rushlight as torch
from rushlight.nn import functional as F

__all__ = [
    "DB_to_amplitude", "amplitude_to_DB", "compute_deltas", "create_dct", "griffinlim", "inverse_spectrogram", "linear_fbanks", "mask_along_axis",
    "mask_along_axis_iid", "melscale_fbanks", "mu_law_decoding", "mu_law_encoding", "phase_vocoder", "pitch_shift", "resample", "sliding_window_cmn",
    "spectral_centroid", "spectrogram",
]


def _normalization(normalized):
    """Whether frames are divided by the root of their length, and whether by the norm of the window."""
    if isinstance(normalized, str):
        if normalized not in ("frame_length", "window"):
            raise ValueError(f"Invalid normalized parameter: {normalized}")
        return normalized == "frame_length", normalized == "window"
    return False, bool(normalized)


def spectrogram(
    waveform, pad, window, n_fft, hop_length, win_length, power, normalized, center=True, pad_mode="reflect", onesided=True, return_complex=None
):
    """Magnitudes (to a power) of short-time Fourier transforms, or the transforms themselves if ``power`` is None."""
    if return_complex is not None:
        warnings.warn("`return_complex` argument is now deprecated and is not effective; use power=None for complex values", stacklevel=2)
    if pad > 0:
        waveform = F.pad(waveform, (pad, pad), "constant")
    by_length, by_window = _normalization(normalized)
    shape = waveform.shape
    found = torch.stft(
        waveform.reshape(-1, shape[-1]), n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window, center=center, pad_mode=pad_mode,
        normalized=by_length, onesided=onesided, return_complex=True,
    )
    found = found.reshape(shape[:-1] + found.shape[-2:])
    if by_window:
        found = found / window.pow(2.0).sum().sqrt()
    if power is None:
        return found
    return found.abs() if power == 1.0 else found.abs().pow(power)


def inverse_spectrogram(
    spectrogram, length, pad, window, n_fft, hop_length, win_length, normalized, center=True, pad_mode="reflect", onesided=True
):
    """The waveform of a complex spectrogram."""
    if not spectrogram.is_complex():
        raise ValueError("Expected `spectrogram` to be complex dtype.")
    by_length, by_window = _normalization(normalized)
    if by_window:
        spectrogram = spectrogram * window.pow(2.0).sum().sqrt()
    shape = spectrogram.shape
    found = torch.istft(
        spectrogram.reshape(-1, shape[-2], shape[-1]), n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window, center=center,
        normalized=by_length, onesided=onesided, length=length + 2 * pad if length is not None else None, return_complex=False,
    )
    if length is not None and pad > 0:
        found = found[:, pad:-pad]
    return found.reshape(shape[:-2] + found.shape[-1:])


def griffinlim(specgram, window, n_fft, hop_length, win_length, power, n_iter, momentum, length, rand_init):
    """A waveform for magnitudes, by alternating projections."""
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must be in range [0, 1). Found: {momentum}")
    momentum = momentum / (1 + momentum)
    shape = specgram.shape
    specgram = specgram.reshape(-1, shape[-2], shape[-1]).pow(1 / power)
    dtype = torch.complex128 if specgram.dtype == torch.float64 else torch.complex64
    angles = torch.rand(specgram.size(), dtype=dtype, device=specgram.device) if rand_init else torch.full(
        specgram.size(), 1, dtype=dtype, device=specgram.device
    )
    before = None
    options = dict(n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window)
    for _ in range(n_iter):
        inverse = torch.istft(specgram * angles, length=length, **options)
        rebuilt = torch.stft(inverse, center=True, pad_mode="reflect", normalized=False, onesided=True, return_complex=True, **options)
        angles = rebuilt
        if momentum and before is not None:
            angles = angles - before * momentum
        angles = angles / (angles.abs() + 1e-16)
        before = rebuilt
    found = torch.istft(specgram * angles, length=length, **options)
    return found.reshape(shape[:-2] + found.shape[-1:])


def amplitude_to_DB(x, multiplier, amin, db_multiplier, top_db=None):
    """Decibels, at most ``top_db`` below the largest of each sample."""
    found = multiplier * torch.log10(torch.clamp(x, min=amin)) - multiplier * db_multiplier
    if top_db is None:
        return found
    shape = found.size()
    packed = found.reshape(-1, shape[-3] if len(shape) > 2 else 1, shape[-2], shape[-1])
    return torch.max(packed, (packed.amax(dim=(-3, -2, -1)) - top_db).view(-1, 1, 1, 1)).reshape(shape)


def DB_to_amplitude(x, ref, power):
    """The inverse of ``amplitude_to_DB``."""
    return ref * torch.pow(torch.pow(10.0, 0.1 * x), power)


_LOG_STEP = math.log(6.4) / 27.0


def _hz_to_mel(freq, mel_scale="htk"):
    if mel_scale not in ("slaney", "htk"):
        raise ValueError('mel_scale should be one of "htk" or "slaney".')
    if mel_scale == "htk":
        return 2595.0 * math.log10(1.0 + freq / 700.0)
    return 15.0 + math.log(freq / 1000.0) / _LOG_STEP if freq >= 1000.0 else freq * 3 / 200.0


def _mel_to_hz(mels, mel_scale="htk"):
    if mel_scale == "htk":
        return 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    return torch.where(mels >= 15.0, 1000.0 * torch.exp(_LOG_STEP * (mels - 15.0)), 200.0 / 3 * mels)


def _triangles(frequencies, points):
    """Triangular filters between neighbours of neighbours of ``points``."""
    gaps = points[1:] - points[:-1]
    slopes = points.unsqueeze(0) - frequencies.unsqueeze(1)
    down, up = (-1.0 * slopes[:, :-2]) / gaps[:-1], slopes[:, 2:] / gaps[1:]
    return torch.max(torch.zeros(1), torch.min(down, up))


def melscale_fbanks(n_freqs, f_min, f_max, n_mels, sample_rate, norm=None, mel_scale="htk"):
    """Filters from frequencies to mels, of shape (n_freqs, n_mels)."""
    if norm is not None and norm != "slaney":
        raise ValueError('norm must be one of None or "slaney"')
    frequencies = torch.linspace(0, sample_rate // 2, n_freqs)
    points = _mel_to_hz(torch.linspace(_hz_to_mel(f_min, mel_scale), _hz_to_mel(f_max, mel_scale), n_mels + 2), mel_scale)
    found = _triangles(frequencies, points)
    if norm == "slaney":
        found = found * (2.0 / (points[2:n_mels + 2] - points[:n_mels])).unsqueeze(0)
    if bool((found.max(dim=0).values == 0.0).any()):
        warnings.warn(
            f"At least one mel filterbank has all zero values. The value for `n_mels` ({n_mels}) may be set too high. Or, the value for `n_freqs` ({n_freqs}) "
            "may be set too low.", stacklevel=2,
        )
    return found


def linear_fbanks(n_freqs, f_min, f_max, n_filter, sample_rate):
    """Triangular filters at equal distances."""
    return _triangles(torch.linspace(0, sample_rate // 2, n_freqs), torch.linspace(f_min, f_max, n_filter + 2))


def create_dct(n_mfcc, n_mels, norm):
    """The matrix of a discrete cosine transform, of shape (n_mels, n_mfcc)."""
    if norm is not None and norm != "ortho":
        raise ValueError('norm must be either "ortho" or None')
    n, k = torch.arange(float(n_mels)), torch.arange(float(n_mfcc)).unsqueeze(1)
    found = torch.cos(math.pi / float(n_mels) * (n + 0.5) * k)
    if norm is None:
        return (found * 2.0).t()
    found[0] *= 1.0 / math.sqrt(2.0)
    return (found * math.sqrt(2.0 / float(n_mels))).t()


def mu_law_encoding(x, quantization_channels):
    """Samples in [-1, 1] as integers, by the mu law."""
    mu = quantization_channels - 1.0
    if not x.is_floating_point():
        warnings.warn("The input Tensor must be of floating type. This will be an error in the v0.12 release.", stacklevel=2)
        x = x.to(torch.float)
    mu = torch.tensor(mu, dtype=x.dtype)
    found = torch.sign(x) * torch.log1p(mu * torch.abs(x)) / torch.log1p(mu)
    return ((found + 1) / 2 * mu + 0.5).to(torch.int64)


def mu_law_decoding(x_mu, quantization_channels):
    """The inverse of ``mu_law_encoding``."""
    mu = quantization_channels - 1.0
    x_mu = x_mu if x_mu.is_floating_point() else x_mu.to(torch.float)
    mu = torch.tensor(mu, dtype=x_mu.dtype)
    x = x_mu / mu * 2 - 1.0
    return torch.sign(x) * (torch.exp(torch.abs(x) * torch.log1p(mu)) - 1.0) / mu


def compute_deltas(specgram, win_length=5, mode="replicate"):
    """Derivatives along time, by regression over a window."""
    shape = specgram.size()
    specgram = specgram.reshape(1, -1, shape[-1])
    if win_length < 3:
        raise ValueError(f"Window length should be greater than or equal to 3. Found win_length {win_length}")
    n = (win_length - 1) // 2
    divisor = n * (n + 1) * (2 * n + 1) / 3
    kernel = torch.arange(-n, n + 1, 1, device=specgram.device, dtype=specgram.dtype).repeat(specgram.shape[1], 1, 1)
    return (F.conv1d(F.pad(specgram, (n, n), mode=mode), kernel, groups=specgram.shape[1]) / divisor).reshape(shape)


def phase_vocoder(complex_specgrams, rate, phase_advance):
    """A spectrogram stretched in time by ``1 / rate`` at the same pitch."""
    if rate == 1.0:
        return complex_specgrams
    shape = complex_specgrams.size()
    specgrams = complex_specgrams.reshape([-1, *shape[-2:]])
    real = torch.real(specgrams).dtype
    steps = torch.arange(0, specgrams.size(-1), rate, device=specgrams.device, dtype=real)
    alphas = steps % 1.0
    first_phase = specgrams[..., :1].angle()
    padded = F.pad(torch.view_as_real(specgrams), [0, 0, 0, 2])
    padded = torch.view_as_complex(padded.contiguous())
    low, high = padded.index_select(-1, steps.long()), padded.index_select(-1, (steps + 1).long())
    phase = high.angle() - low.angle() - phase_advance
    phase = phase - 2 * math.pi * torch.round(phase / (2 * math.pi))
    phase = torch.cumsum(torch.cat([first_phase, (phase + phase_advance)[..., :-1]], dim=-1), -1)
    found = torch.polar(alphas * high.abs() + (1 - alphas) * low.abs(), phase)
    return found.reshape(shape[:-2] + found.shape[1:])


def _stretched(waveform, n_steps, bins_per_octave, n_fft, win_length, hop_length, window):
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    window = torch.hann_window(win_length, device=waveform.device) if window is None else window
    shape = waveform.size()
    waveform = waveform.reshape(-1, shape[-1])
    rate = 2.0 ** (-float(n_steps) / bins_per_octave)
    options = dict(n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window)
    found = torch.stft(waveform, center=True, pad_mode="reflect", normalized=False, onesided=True, return_complex=True, **options)
    advance = torch.linspace(0, math.pi * hop_length, found.shape[-2], device=found.device)[..., None]
    return torch.istft(phase_vocoder(found, rate, advance), length=int(round(shape[-1] / rate)), **options)


def pitch_shift(waveform, sample_rate, n_steps, bins_per_octave=12, n_fft=512, win_length=None, hop_length=None, window=None):
    """A waveform of the same length and another pitch."""
    stretched = _stretched(waveform, n_steps, bins_per_octave, n_fft, win_length, hop_length, window)
    rate = 2.0 ** (-float(n_steps) / bins_per_octave)
    found, length = resample(stretched, int(sample_rate / rate), sample_rate), waveform.shape[-1]
    found = found[..., :length] if found.shape[-1] > length else F.pad(found, [0, length - found.shape[-1]])
    return found.reshape(waveform.shape[:-1] + found.shape[-1:])


def mask_along_axis_iid(specgrams, mask_param, mask_value, axis, p=1.0):
    """Masks a random stretch of an axis, another one for each sample and channel."""
    dim = specgrams.dim()
    if dim < 3:
        raise ValueError(f"Spectrogram must have at least three dimensions ({dim} given).")
    if axis not in (dim - 2, dim - 1):
        raise ValueError(f"Only Frequency and Time masking are supported (axis {dim - 2} and axis {dim - 1} supported; {axis} given).")
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"The value of p must be between 0.0 and 1.0 ({p} given).")
    mask_param = mask_param if p == 1.0 else min(mask_param, int(specgrams.shape[axis] * p))
    if mask_param < 1:
        return specgrams
    device, dtype = specgrams.device, specgrams.dtype
    value = torch.rand(specgrams.shape[: dim - 2], device=device, dtype=dtype) * mask_param
    least = torch.rand(specgrams.shape[: dim - 2], device=device, dtype=dtype) * (specgrams.size(axis) - value)
    start, end = least.long()[..., None, None], (least.long() + value.long())[..., None, None]
    places = torch.arange(0, specgrams.size(axis), device=device, dtype=dtype)
    specgrams = specgrams.transpose(axis, -1)
    return specgrams.masked_fill((places >= start) & (places < end), mask_value).transpose(axis, -1)


def mask_along_axis(specgram, mask_param, mask_value, axis, p=1.0):
    """Masks a random stretch of an axis, the same for all."""
    dim = specgram.dim()
    if dim < 2:
        raise ValueError(f"Spectrogram must have at least two dimensions (time and frequency) ({dim} given).")
    if axis not in (dim - 2, dim - 1):
        raise ValueError(f"Only Frequency and Time masking are supported (axis {dim - 2} and axis {dim - 1} supported; {axis} given).")
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"The value of p must be between 0.0 and 1.0 ({p} given).")
    mask_param = mask_param if p == 1.0 else min(mask_param, int(specgram.shape[axis] * p))
    if mask_param < 1:
        return specgram
    value = torch.rand(1) * mask_param
    least = torch.rand(1) * (specgram.size(axis) - value)
    start, end = least.long(), least.long() + value.long()
    places = torch.arange(0, specgram.shape[axis], device=specgram.device, dtype=specgram.dtype)
    mask = (places >= start.to(specgram.device)) & (places < end.to(specgram.device))
    return specgram.masked_fill(mask.unsqueeze(-1) if axis == dim - 2 else mask, mask_value)


def spectral_centroid(waveform, sample_rate, pad, window, n_fft, hop_length, win_length):
    """The mean frequency of each frame, by magnitude."""
    found = spectrogram(waveform, pad=pad, window=window, n_fft=n_fft, hop_length=hop_length, win_length=win_length, power=1.0, normalized=False)
    frequencies = torch.linspace(0, sample_rate // 2, steps=1 + n_fft // 2, device=found.device).reshape(-1, 1)
    return (frequencies * found).sum(dim=-2) / found.sum(dim=-2)


def sliding_window_cmn(specgram, cmn_window=600, min_cmn_window=100, center=False, norm_vars=False):
    """Frames minus the mean, and divided by the deviation if ``norm_vars``, of a window around them."""
    shape = specgram.shape
    frames = specgram.reshape(-1, *shape[-2:])
    count = frames.shape[1]
    found = []
    for t in range(count):
        start, end = (t - cmn_window // 2, t - cmn_window // 2 + cmn_window) if center else (t - cmn_window, t + 1)
        if start < 0:
            start, end = 0, end - start
        if not center:
            end = max(t + 1, min_cmn_window) if end > t else end
        if end > count:
            start, end = max(start - (end - count), 0), count
        part = frames[:, start:end]
        made = frames[:, t] - part.mean(1)
        if norm_vars:
            deviation = (part.pow(2).mean(1) - part.mean(1).pow(2)) if end - start > 1 else None
            made = torch.zeros_like(made) if deviation is None else made * deviation.pow(-0.5)
        found.append(made)
    return torch.stack(found, 1).reshape(shape)


def _kernel(orig_freq, new_freq, gcd, width, rolloff, method, beta, device, dtype):
    if int(orig_freq) != orig_freq or int(new_freq) != new_freq:
        raise Exception("Frequencies must be of integer type to ensure quality resampling computation; scale both to whole numbers")
    if method in ("sinc_interpolation", "kaiser_window"):
        raise ValueError(f'"{method}" resampling method name is deprecated; use "sinc_interp_hann" or "sinc_interp_kaiser"')
    if method not in ("sinc_interp_hann", "sinc_interp_kaiser"):
        raise ValueError(f"Invalid resampling method: {method}")
    if width <= 0:
        raise ValueError("Low pass filter width should be positive.")
    orig, new = int(orig_freq) // gcd, int(new_freq) // gcd
    base = min(orig, new) * rolloff
    reach = math.ceil(width * orig / base)
    inner = torch.float64 if dtype is None else dtype
    places = torch.arange(-reach, reach + orig, dtype=inner, device=device)[None, None] / orig
    t = torch.arange(0, -new, -1, dtype=inner, device=device)[:, None, None] / new + places
    t = (t * base).clamp(-width, width)
    if method == "sinc_interp_hann":
        window = torch.cos(t * math.pi / width / 2) ** 2
    else:
        beta = torch.tensor(float(14.769656459379492 if beta is None else beta))
        window = torch.i0(beta * torch.sqrt(1 - (t / width) ** 2)) / torch.i0(beta)
    t = t * math.pi
    found = torch.where(t == 0, torch.tensor(1.0, dtype=t.dtype, device=t.device), t.sin() / t) * window * (base / orig)
    return (found.to(torch.float32) if dtype is None else found), reach


def _resampled(waveform, orig_freq, new_freq, gcd, kernel, reach):
    if not waveform.is_floating_point():
        raise TypeError(f"Expected floating point type for waveform tensor, but received {waveform.dtype}.")
    orig, new = int(orig_freq) // gcd, int(new_freq) // gcd
    shape = waveform.size()
    flat = waveform.reshape(-1, shape[-1])
    length = flat.shape[1]
    found = F.conv1d(F.pad(flat, (reach, reach + orig))[:, None], kernel, stride=orig)
    found = found.transpose(1, 2).reshape(flat.shape[0], -1)[..., : math.ceil(new * length / orig)]
    return found.reshape(shape[:-1] + found.shape[-1:])


def resample(waveform, orig_freq, new_freq, lowpass_filter_width=6, rolloff=0.99, resampling_method="sinc_interp_hann", beta=None):
    """A waveform at another rate, by band-limited interpolation."""
    if orig_freq <= 0.0 or new_freq <= 0.0:
        raise ValueError("Original frequency and desired frequency should be positive")
    if orig_freq == new_freq:
        return waveform
    gcd = math.gcd(int(orig_freq), int(new_freq))
    kernel, reach = _kernel(orig_freq, new_freq, gcd, lowpass_filter_width, rolloff, resampling_method, beta, waveform.device, waveform.dtype)
    return _resampled(waveform, orig_freq, new_freq, gcd, kernel, reach)
