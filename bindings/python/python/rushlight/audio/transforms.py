"""Modules on waveforms and spectrograms: ``torchaudio.transforms``."""

import math

import rushlight as torch
from rushlight import nn

from .. import _absent
from . import functional as F
from ._spectral import _kernel, _resampled

__all__ = [
    "AddNoise", "AmplitudeToDB", "ComputeDeltas", "Convolve", "Deemphasis", "FFTConvolve", "Fade", "FrequencyMasking", "GriffinLim", "InverseMelScale",
    "InverseSpectrogram", "LFCC", "Loudness", "MFCC", "MelScale", "MelSpectrogram", "MuLawDecoding", "MuLawEncoding", "PitchShift", "Preemphasis", "Resample",
    "SlidingWindowCmn", "SpecAugment", "SpectralCentroid", "Spectrogram", "Speed", "SpeedPerturbation", "TimeMasking", "TimeStretch", "Vol",
]


class _Framed(nn.Module):
    """Sizes of frames, and the window as a buffer."""

    def __init__(self, n_fft, win_length, hop_length, window_fn, wkwargs):
        super().__init__()
        self.n_fft = n_fft
        self.win_length = n_fft if win_length is None else win_length
        self.hop_length = self.win_length // 2 if hop_length is None else hop_length
        self.register_buffer("window", window_fn(self.win_length) if wkwargs is None else window_fn(self.win_length, **wkwargs))


class Spectrogram(_Framed):
    """``functional.spectrogram`` with a window of its own."""

    def __init__(
        self, n_fft=400, win_length=None, hop_length=None, pad=0, window_fn=torch.hann_window, power=2.0, normalized=False, wkwargs=None, center=True,
        pad_mode="reflect", onesided=True, return_complex=None,
    ):
        super().__init__(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.pad, self.power, self.normalized, self.center, self.pad_mode, self.onesided = pad, power, normalized, center, pad_mode, onesided

    def forward(self, waveform):
        return F.spectrogram(
            waveform, self.pad, self.window, self.n_fft, self.hop_length, self.win_length, self.power, self.normalized, self.center, self.pad_mode, self.onesided
        )


class InverseSpectrogram(_Framed):
    """``functional.inverse_spectrogram`` with a window of its own."""

    def __init__(
        self, n_fft=400, win_length=None, hop_length=None, pad=0, window_fn=torch.hann_window, normalized=False, wkwargs=None, center=True, pad_mode="reflect",
        onesided=True,
    ):
        super().__init__(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.pad, self.normalized, self.center, self.pad_mode, self.onesided = pad, normalized, center, pad_mode, onesided

    def forward(self, spectrogram, length=None):
        return F.inverse_spectrogram(
            spectrogram, length, self.pad, self.window, self.n_fft, self.hop_length, self.win_length, self.normalized, self.center, self.pad_mode, self.onesided
        )


class GriffinLim(_Framed):
    """``functional.griffinlim`` with a window of its own."""

    def __init__(
        self, n_fft=400, n_iter=32, win_length=None, hop_length=None, window_fn=torch.hann_window, power=2.0, wkwargs=None, momentum=0.99, length=None,
        rand_init=True,
    ):
        super().__init__(n_fft, win_length, hop_length, window_fn, wkwargs)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in the range [0, 1). Found: {momentum}")
        self.n_iter, self.length, self.power, self.momentum, self.rand_init = n_iter, length, power, momentum, rand_init

    def forward(self, specgram):
        return F.griffinlim(
            specgram, self.window, self.n_fft, self.hop_length, self.win_length, self.power, self.n_iter, self.momentum, self.length, self.rand_init
        )


class AmplitudeToDB(nn.Module):
    """Decibels of power or magnitude."""

    def __init__(self, stype="power", top_db=None):
        super().__init__()
        if top_db is not None and top_db < 0:
            raise ValueError("top_db must be positive value")
        self.stype, self.top_db = stype, top_db
        self.multiplier = 10.0 if stype == "power" else 20.0
        self.amin, self.ref_value = 1e-10, 1.0
        self.db_multiplier = math.log10(max(self.amin, self.ref_value))

    def forward(self, x):
        return F.amplitude_to_DB(x, self.multiplier, self.amin, self.db_multiplier, self.top_db)


class MelScale(nn.Module):
    """Frequencies of a spectrogram as mels."""

    def __init__(self, n_mels=128, sample_rate=16000, f_min=0.0, f_max=None, n_stft=201, norm=None, mel_scale="htk"):
        super().__init__()
        self.n_mels, self.sample_rate, self.f_min, self.norm, self.mel_scale = n_mels, sample_rate, f_min, norm, mel_scale
        self.f_max = f_max if f_max is not None else float(sample_rate // 2)
        if f_min > self.f_max:
            raise ValueError(f"Require f_min: {f_min} <= f_max: {self.f_max}")
        self.register_buffer("fb", F.melscale_fbanks(n_stft, f_min, self.f_max, n_mels, sample_rate, norm, mel_scale))

    def forward(self, specgram):
        return torch.matmul(specgram.transpose(-1, -2), self.fb).transpose(-1, -2)


class InverseMelScale(nn.Module):
    """Frequencies that give a spectrogram of mels, by least squares."""

    def __init__(self, n_stft, n_mels=128, sample_rate=16000, f_min=0.0, f_max=None, norm=None, mel_scale="htk", driver="gels"):
        super().__init__()
        if driver not in ("gels", "gelsy", "gelsd", "gelss"):
            raise ValueError(f'driver must be one of ["gels", "gelsy", "gelsd", "gelss"]. Found {driver}.')
        self.driver = driver
        self.register_buffer("fb", F.melscale_fbanks(n_stft, f_min, f_max or float(sample_rate // 2), n_mels, sample_rate, norm, mel_scale))

    def forward(self, melspec):
        shape = melspec.size()
        flat = melspec.reshape(-1, *shape[-2:])
        found = torch.relu(torch.linalg.lstsq(self.fb.transpose(-1, -2)[None].expand(flat.shape[0], -1, -1), flat, driver=self.driver).solution)
        return found.reshape(shape[:-2] + (self.fb.shape[0], shape[-1]))


class MelSpectrogram(nn.Module):
    """A spectrogram of mels."""

    def __init__(
        self, sample_rate=16000, n_fft=400, win_length=None, hop_length=None, f_min=0.0, f_max=None, pad=0, n_mels=128, window_fn=torch.hann_window, power=2.0,
        normalized=False, wkwargs=None, center=True, pad_mode="reflect", onesided=None, norm=None, mel_scale="htk",
    ):
        super().__init__()
        self.sample_rate, self.n_fft, self.n_mels = sample_rate, n_fft, n_mels
        self.spectrogram = Spectrogram(n_fft, win_length, hop_length, pad, window_fn, power, normalized, wkwargs, center, pad_mode)
        self.win_length, self.hop_length = self.spectrogram.win_length, self.spectrogram.hop_length
        self.mel_scale = MelScale(n_mels, sample_rate, f_min, f_max, n_fft // 2 + 1, norm, mel_scale)

    def forward(self, waveform):
        return self.mel_scale(self.spectrogram(waveform))


class _Cepstrum(nn.Module):
    def _coefficients(self, found):
        found = torch.log(found + 1e-6) if self.log else self.amplitude_to_DB(found)
        return torch.matmul(found.transpose(-1, -2), self.dct_mat).transpose(-1, -2)


class MFCC(_Cepstrum):
    """Cepstral coefficients of mels."""

    def __init__(self, sample_rate=16000, n_mfcc=40, dct_type=2, norm="ortho", log_mels=False, melkwargs=None):
        super().__init__()
        if dct_type != 2:
            raise ValueError(f"DCT type not supported: {dct_type}")
        self.sample_rate, self.n_mfcc, self.dct_type, self.norm, self.log_mels = sample_rate, n_mfcc, dct_type, norm, log_mels
        self.log = log_mels
        self.amplitude_to_DB = AmplitudeToDB("power", 80.0)
        self.MelSpectrogram = MelSpectrogram(sample_rate=sample_rate, **(melkwargs or {}))
        if n_mfcc > self.MelSpectrogram.n_mels:
            raise ValueError("Cannot select more MFCC coefficients than # mel bins")
        self.register_buffer("dct_mat", F.create_dct(n_mfcc, self.MelSpectrogram.n_mels, norm))

    def forward(self, waveform):
        return self._coefficients(self.MelSpectrogram(waveform))


class LFCC(_Cepstrum):
    """Cepstral coefficients of frequencies."""

    def __init__(self, sample_rate=16000, n_filter=128, f_min=0.0, f_max=None, n_lfcc=40, dct_type=2, norm="ortho", log_lf=False, speckwargs=None):
        super().__init__()
        if dct_type != 2:
            raise ValueError(f"DCT type not supported: {dct_type}")
        self.log = self.log_lf = log_lf
        self.amplitude_to_DB = AmplitudeToDB("power", 80.0)
        self.Spectrogram = Spectrogram(**(speckwargs or {}))
        if n_lfcc > self.Spectrogram.n_fft:
            raise ValueError("Cannot select more LFCC coefficients than # fft bins")
        f_max = f_max if f_max is not None else float(sample_rate // 2)
        self.register_buffer("filter_mat", F.linear_fbanks(self.Spectrogram.n_fft // 2 + 1, f_min, f_max, n_filter, sample_rate))
        self.register_buffer("dct_mat", F.create_dct(n_lfcc, n_filter, norm))

    def forward(self, waveform):
        return self._coefficients(torch.matmul(self.Spectrogram(waveform).transpose(-1, -2), self.filter_mat).transpose(-1, -2))


class Resample(nn.Module):
    """``functional.resample`` with a kernel of its own."""

    def __init__(
        self, orig_freq=16000, new_freq=16000, resampling_method="sinc_interp_hann", lowpass_filter_width=6, rolloff=0.99, beta=None, *, dtype=None
    ):
        super().__init__()
        self.orig_freq, self.new_freq = orig_freq, new_freq
        self.gcd = math.gcd(int(orig_freq), int(new_freq))
        if orig_freq != new_freq:
            kernel, self.width = _kernel(orig_freq, new_freq, self.gcd, lowpass_filter_width, rolloff, resampling_method, beta, None, dtype)
            self.register_buffer("kernel", kernel)

    def forward(self, waveform):
        if self.orig_freq == self.new_freq:
            return waveform
        return _resampled(waveform, self.orig_freq, self.new_freq, self.gcd, self.kernel, self.width)


class TimeStretch(nn.Module):
    """A complex spectrogram stretched in time."""

    def __init__(self, hop_length=None, n_freq=201, fixed_rate=None):
        super().__init__()
        self.fixed_rate = fixed_rate
        hop_length = hop_length if hop_length is not None else (n_freq - 1) * 2 // 2
        self.register_buffer("phase_advance", torch.linspace(0, math.pi * hop_length, n_freq)[..., None])

    def forward(self, complex_specgrams, overriding_rate=None):
        rate = self.fixed_rate if overriding_rate is None else overriding_rate
        if rate is None:
            raise ValueError("If no fixed_rate is specified, must pass a valid rate to the forward method.")
        return F.phase_vocoder(complex_specgrams, rate, self.phase_advance)


class Fade(nn.Module):
    """Fades a waveform in and out."""

    def __init__(self, fade_in_len=0, fade_out_len=0, fade_shape="linear"):
        super().__init__()
        self.fade_in_len, self.fade_out_len, self.fade_shape = fade_in_len, fade_out_len, fade_shape

    def _rise(self, count, device):
        t = torch.linspace(0, 1, count, device=device)
        shapes = {
            "linear": lambda: t, "exponential": lambda: torch.pow(2, t - 1) * t, "logarithmic": lambda: torch.log10(0.1 + t) + 1,
            "quarter_sine": lambda: torch.sin(t * math.pi / 2), "half_sine": lambda: torch.sin(t * math.pi - math.pi / 2) / 2 + 0.5,
        }
        if self.fade_shape not in shapes:
            raise ValueError(f"fade_shape must be one of {', '.join(shapes)}, got {self.fade_shape}")
        return shapes[self.fade_shape]().clamp(0, 1)

    def _fall(self, count, device):
        t = torch.linspace(0, 1, count, device=device)
        shapes = {
            "linear": lambda: 1 - t, "exponential": lambda: torch.pow(2, -t) * (1 - t), "logarithmic": lambda: torch.log10(1.1 - t) + 1,
            "quarter_sine": lambda: torch.sin(t * math.pi / 2 + math.pi / 2), "half_sine": lambda: torch.sin(t * math.pi + math.pi / 2) / 2 + 0.5,
        }
        return shapes[self.fade_shape]().clamp(0, 1)

    def forward(self, waveform):
        length, device = waveform.size(-1), waveform.device
        rise = torch.cat([self._rise(self.fade_in_len, device), torch.ones(length - self.fade_in_len, device=device)])
        fall = torch.cat([torch.ones(length - self.fade_out_len, device=device), self._fall(self.fade_out_len, device)])
        return rise * fall * waveform


class _Masking(nn.Module):
    def __init__(self, mask_param, axis, iid_masks, p=1.0):
        super().__init__()
        self.mask_param, self.axis, self.iid_masks, self.p = mask_param, axis, iid_masks, p

    def forward(self, specgram, mask_value=0.0):
        mask = F.mask_along_axis_iid if self.iid_masks else F.mask_along_axis
        return mask(specgram, self.mask_param, mask_value, self.axis + specgram.dim() - 3, p=self.p)


class FrequencyMasking(_Masking):
    """Masks random frequencies."""

    def __init__(self, freq_mask_param, iid_masks=False):
        super().__init__(freq_mask_param, 1, iid_masks)


class TimeMasking(_Masking):
    """Masks a random time."""

    def __init__(self, time_mask_param, iid_masks=False, p=1.0):
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"The value of p must be between 0.0 and 1.0 ({p} given).")
        super().__init__(time_mask_param, 2, iid_masks, p)


class SpecAugment(nn.Module):
    """Several masks of times and frequencies."""

    def __init__(self, n_time_masks, time_mask_param, n_freq_masks, freq_mask_param, iid_masks=True, p=1.0, zero_masking=False):
        super().__init__()
        self.times, self.time_mask_param, self.frequencies, self.freq_mask_param = n_time_masks, time_mask_param, n_freq_masks, freq_mask_param
        self.iid_masks, self.p, self.zero_masking = iid_masks, p, zero_masking

    def forward(self, specgram):
        value = 0.0 if self.zero_masking else specgram.mean().item()
        mask = F.mask_along_axis_iid if specgram.dim() > 2 and self.iid_masks else F.mask_along_axis
        dim = specgram.dim()
        for _ in range(self.times):
            specgram = mask(specgram, self.time_mask_param, value, dim - 1, p=self.p)
        for _ in range(self.frequencies):
            specgram = mask(specgram, self.freq_mask_param, value, dim - 2, p=self.p)
        return specgram


class SpeedPerturbation(nn.Module):
    """Plays a waveform at a random one of several speeds."""

    def __init__(self, orig_freq, factors):
        super().__init__()
        self.speeders = nn.ModuleList([Speed(orig_freq, factor) for factor in factors])

    def forward(self, waveform, lengths=None):
        return self.speeders[int(torch.randint(len(self.speeders), ()))](waveform, lengths)


class SpectralCentroid(_Framed):
    """``functional.spectral_centroid`` with a window of its own."""

    def __init__(self, sample_rate, n_fft=400, win_length=None, hop_length=None, pad=0, window_fn=torch.hann_window, wkwargs=None):
        super().__init__(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.sample_rate, self.pad = sample_rate, pad

    def forward(self, waveform):
        return F.spectral_centroid(waveform, self.sample_rate, self.pad, self.window, self.n_fft, self.hop_length, self.win_length)


class Vol(nn.Module):
    """Amplitudes by a factor, limited to [-1, 1]."""

    def __init__(self, gain, gain_type="amplitude"):
        super().__init__()
        if gain_type not in ("amplitude", "power", "db"):
            raise ValueError(f"gain_type must be one of amplitude, power, db, got {gain_type}")
        if gain_type in ("amplitude", "power") and gain < 0:
            raise ValueError("If gain_type = amplitude or power, gain must be positive.")
        self.gain, self.gain_type = gain, gain_type

    def forward(self, waveform):
        if self.gain_type == "amplitude":
            waveform = waveform * self.gain
        else:
            waveform = F.gain(waveform, self.gain if self.gain_type == "db" else 10 * math.log10(self.gain))
        return torch.clamp(waveform, -1, 1)


def _module(name, function, parameters):
    """A module of a function with fixed options: ``parameters`` are those with their defaults."""
    required = [key for key, default in parameters if default is None]

    def __init__(self, *args, **kwargs):
        super(made, self).__init__()
        given = dict(zip([key for key, _ in parameters], args))
        given.update(kwargs)
        unknown = set(given) - {key for key, _ in parameters}
        missing = [key for key in required if key not in given]
        if unknown or missing or len(args) > len(parameters):
            raise TypeError(f"{name}(): expected {', '.join(key for key, _ in parameters)}; got {', '.join(given) or 'nothing'}")
        for key, default in parameters:
            setattr(self, key, given.get(key, default))

    def forward(self, *inputs, **kwargs):
        return function(*inputs, **kwargs, **{key: getattr(self, key) for key, _ in parameters})

    made = type(name, (nn.Module,), {"__init__": __init__, "forward": forward, "__doc__": f"``functional.{function.__name__}`` as a module.", "__module__": __name__})
    return made


MuLawEncoding = _module("MuLawEncoding", F.mu_law_encoding, [("quantization_channels", 256)])
MuLawDecoding = _module("MuLawDecoding", F.mu_law_decoding, [("quantization_channels", 256)])
ComputeDeltas = _module("ComputeDeltas", F.compute_deltas, [("win_length", 5), ("mode", "replicate")])
Preemphasis = _module("Preemphasis", F.preemphasis, [("coeff", 0.97)])
Deemphasis = _module("Deemphasis", F.deemphasis, [("coeff", 0.97)])
Convolve = _module("Convolve", F.convolve, [("mode", "full")])
FFTConvolve = _module("FFTConvolve", F.fftconvolve, [("mode", "full")])
AddNoise = _module("AddNoise", F.add_noise, [])
Loudness = _module("Loudness", F.loudness, [("sample_rate", None)])
SlidingWindowCmn = _module("SlidingWindowCmn", F.sliding_window_cmn, [("cmn_window", 600), ("min_cmn_window", 100), ("center", False), ("norm_vars", False)])
PitchShift = _module("PitchShift", F.pitch_shift, [("sample_rate", None), ("n_steps", None), ("bins_per_octave", 12), ("n_fft", 512)])


class Speed(nn.Module):
    """``functional.speed`` as a module."""

    def __init__(self, orig_freq, factor):
        super().__init__()
        self.orig_freq, self.factor = orig_freq, factor

    def forward(self, waveform, lengths=None):
        return F.speed(waveform, self.orig_freq, self.factor, lengths)


_absent.fill(globals(), "torchaudio.transforms", "this transform is not in the audio front", "BarkScale BarkSpectrogram InverseBarkScale MVDR PSD RNNTLoss RTFMVDR SoudenMVDR Vad")


def __getattr__(name):
    from .._functions import _missing

    return _missing("torchaudio.transforms", name)
