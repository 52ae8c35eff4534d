"""``torch.stft`` and ``torch.istft``: transforms of the windows of a signal."""

import warnings

from . import _C

_torch, _nn, _fft = _C._torch, _C._nn, _C._fft


def _window(call, window, win_length, n_fft, dtype, device):
    """The window, or ones, in the middle of ``n_fft`` numbers."""
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied,which is known to cause spectral leakage. Other windows such as torch.hann_window or "
            "torch.hamming_window are recommended to reduce spectral leakage.To suppress this warning and use a rectangular window, explicitly set "
            f"`window=torch.ones(n_fft, device=<device>)` in {call}.",
            UserWarning, stacklevel=4,
        )
        window = _torch.ones(win_length, dtype=dtype, device=device)
    elif window.dim() != 1 or window.numel() != win_length:
        raise RuntimeError(f"{call}: expected a 1D window tensor of size equal to win_length={win_length}, but got window with size {list(window.shape)}")
    left = (n_fft - win_length) // 2
    return _nn.pad(window, (left, n_fft - win_length - left)) if win_length < n_fft else window


def _lengths(call, n_fft, hop_length, win_length):
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    if hop_length <= 0:
        raise RuntimeError(f"{call}: expected hop_length > 0, but got hop_length={hop_length}")
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{call}: expected 0 < win_length <= n_fft, but got win_length={win_length}")
    return hop_length, win_length


def stft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", normalized=False, onesided=None, return_complex=None, align_to_window=None
):
    """The transforms of windows of a signal, every ``hop_length`` numbers."""
    if return_complex is None:
        if not (input.is_complex() or window is not None and window.is_complex()):
            raise RuntimeError("stft requires the return_complex parameter be given for real inputs, and will further require that return_complex=True in a future PyTorch release.")
        return_complex = True
    if align_to_window is not None and center:
        raise RuntimeError("stft align_to_window should only be set when center = false.")
    if not (input.is_floating_point() or input.is_complex()) or input.dim() not in (1, 2):
        raise RuntimeError(f"stft: expected a tensor of floating point or complex values with 1 or 2 dimensions, but got {list(input.shape)} of {input.dtype}")
    hop_length, win_length = _lengths("stft", n_fft, hop_length, win_length)
    signal = input if input.dim() == 2 else input.unsqueeze(0)
    if center:
        pad = n_fft // 2
        parts = [signal.real, signal.imag] if signal.is_complex() else [signal]
        parts = [_nn.pad(part.unsqueeze(1), (pad, pad), mode=pad_mode).squeeze(1) for part in parts]
        signal = _torch.complex(*parts) if signal.is_complex() else parts[0]
    if not 0 < n_fft <= signal.shape[1]:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {signal.shape[1]}, but got n_fft={n_fft}")
    dtype = signal.real.dtype
    frames = signal.unfold(1, n_fft, hop_length) if not align_to_window else None
    if frames is None:
        left = (n_fft - win_length) // 2
        frames = _nn.pad(signal, (left, n_fft - win_length - left)).unfold(1, n_fft, hop_length)
    frames = frames * _window("stft", window, win_length, n_fft, dtype, signal.device)
    half = not frames.is_complex() if onesided is None else onesided
    if half and frames.is_complex():
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    norm = "ortho" if normalized in (True, "frame_length") else None
    out = (_fft.rfft if half else _fft.fft)(frames, norm=norm).transpose(1, 2)
    if normalized == "window":
        out = out / _window("stft", window, win_length, n_fft, dtype, signal.device).square().sum().sqrt()
    if input.dim() == 1:
        out = out.squeeze(0)
    return out if return_complex else _torch.view_as_real(out.contiguous())


def istft(input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None, return_complex=False):
    """The signal of which ``stft`` gives the transforms: the least-squares one."""
    if not input.is_complex():
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    if input.dim() not in (2, 3) or input.numel() == 0:
        raise RuntimeError(f"istft: expected a non-empty tensor with 2 or 3 dimensions, but got {list(input.shape)}")
    hop_length, win_length = _lengths("istft", n_fft, hop_length, win_length)
    spectra = (input if input.dim() == 3 else input.unsqueeze(0)).transpose(1, 2)
    half = spectra.shape[2] != n_fft if onesided is None else onesided
    if spectra.shape[2] != (n_fft // 2 + 1 if half else n_fft):
        raise RuntimeError(f"istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft={n_fft}, but got {spectra.shape[2]}")
    norm = "ortho" if normalized in (True, "frame_length") else None
    dtype = spectra.real.dtype
    window = _window("istft", window, win_length, n_fft, dtype, input.device)
    if normalized == "window":
        spectra = spectra * window.square().sum().sqrt()
    if return_complex:
        if half:
            raise RuntimeError("cannot have onesided output if window or input is complex")
        frames = _fft.ifft(spectra, norm=norm)
    else:
        if window.is_complex():
            raise RuntimeError("Complex windows are incompatible with return_complex=False")
        frames = _fft.irfft(spectra if half else spectra[..., : n_fft // 2 + 1], n=n_fft, norm=norm)
    frames = frames * window
    count, total = frames.shape[1], n_fft + hop_length * (frames.shape[1] - 1)
    places = (_torch.arange(count, device=input.device) * hop_length).unsqueeze(1) + _torch.arange(n_fft, device=input.device)
    places = places.reshape(-1)
    signal = _torch.zeros(frames.shape[0], total, dtype=frames.dtype, device=input.device).index_add(1, places, frames.reshape(frames.shape[0], -1))
    weights = window.square().expand(count, n_fft).reshape(-1)
    envelope = _torch.zeros(total, dtype=weights.dtype, device=input.device).index_add(0, places, weights)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - n_fft // 2 if center else total
    signal, envelope = signal[:, start:end], envelope[start:end]
    if envelope.numel() and float(envelope.abs().min()) < 1e-11:
        raise RuntimeError("istft: window overlap add min: 1: the window has places where all overlapping windows are zero; use a larger window or a smaller hop_length")
    signal = signal / envelope
    if length is not None and signal.shape[1] < length:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. Please check your center and hop_length settings.",
            UserWarning, stacklevel=2,
        )
        signal = _nn.pad(signal, (0, length - signal.shape[1]))
    return signal.squeeze(0) if input.dim() == 2 else signal


def _method(function):
    def method(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    method.__qualname__, method.__module__ = f"Tensor.{function.__name__}", f"{__package__}._tensor"
    return method


_C.Tensor.stft, _C.Tensor.istft = _method(stft), _method(istft)
