"""Functions on waveforms and spectrograms: ``torchaudio.functional``."""

from .. import _absent
from . import _filters, _spectral
from ._filters import *  # noqa: F401,F403
from ._spectral import *  # noqa: F401,F403
from ._spectral import _hz_to_mel, _mel_to_hz  # noqa: F401

__all__ = sorted([*_filters.__all__, *_spectral.__all__])

_absent.fill(
    globals(), "torchaudio.functional", "this function is not in the audio front; its parts are functions of torch",
    "apply_beamforming apply_codec barkscale_fbanks deemph_biquad detect_pitch_frequency dither flanger forced_align mask_along_axis_iid merge_tokens mvdr_weights_rtf "
    "mvdr_weights_souden phaser psd riaa_biquad rnnt_loss rtf_evd rtf_power vad",
)


def __getattr__(name):
    from .._functions import _missing

    return _missing("torchaudio.functional", name)
