"""Jobs of SciPy and scikit-learn on tensors: functions that take arrays of any library with the array API's names."""

import functools
import os

import torch
from common import job, numbers, tokens


def _job(library, name):
    """A job in whose process SciPy takes arrays of other libraries: it reads the variable when it is imported."""

    def register(function):
        @functools.wraps(function)
        def run():
            os.environ["SCIPY_ARRAY_API"] = "1"
            return function()

        return job(library, name)(run)

    return register


def _tensors(values):
    """A job's results, which must be tensors: a library that fell back to NumPy's arrays did not take ours."""
    for name, value in values.items():
        assert isinstance(value, torch.Tensor), f"{name} is of type {type(value)}"
    return values


def _doubles(*shape, step=0.37):
    return numbers(*shape, step=step).double()


@_job("scipy", "special")
def special():
    from scipy import special

    x = _doubles(12, step=1.3).abs() * 3 + 0.1
    return _tensors({
        **{name: getattr(special, name)(x) for name in "erf erfc expit gammaln i0 i0e i1 i1e log_ndtr ndtr digamma entr".split()},
        **{name: getattr(special, name)(x, x + 1) for name in "gammainc gammaincc rel_entr xlogy betaln".split()}, "logit": special.logit(x / 4),
        "logsumexp": special.logsumexp(x.reshape(3, 4), axis=1), "softmax": special.softmax(x.reshape(3, 4), axis=0), "log_softmax": special.log_softmax(x, axis=0),
        "chdtr": special.chdtr(x, x),
    })


@_job("scipy", "stats")
def statistics():
    from scipy import stats

    x, y = _doubles(20, step=1.7), _doubles(20, step=0.9)
    test, correlation, line = stats.ttest_ind(x, y), stats.pearsonr(x, y), stats.ttest_1samp(x, 0.1)
    return _tensors({
        "moment": stats.moment(x, 3), "skew": stats.skew(x), "kurtosis": stats.kurtosis(x), "variation": stats.variation(x), "zscore": stats.zscore(x), "sem": stats.sem(x),
        "gmean": stats.gmean(x.abs()), "hmean": stats.hmean(x.abs() + 1), "pmean": stats.pmean(x.abs(), 2), "t": test.statistic, "p": test.pvalue, "r": correlation.statistic,
        "one": line.pvalue, "entropy": stats.entropy(x.abs()), "kstat": stats.kstat(x, 2), "bartlett": stats.bartlett(x, y).statistic, "chi": stats.chisquare(x.abs()).statistic,
        "directional": stats.directional_stats(_doubles(10, 3)).mean_direction, "jarque": stats.jarque_bera(x).statistic,
    })


@_job("scipy", "signal")
def signals():
    from scipy import signal

    x, taps = _doubles(64, step=0.7), _doubles(7, step=1.1)
    return _tensors({
        "convolve": signal.fftconvolve(x, taps), "detrend": signal.detrend(x), "hilbert": signal.hilbert(x).imag, "resample": signal.resample(x, 40), "wiener": signal.wiener(x, 5),
        "oaconvolve": signal.oaconvolve(x, taps), "window": signal.windows.hann(32, xp=torch), "correlate": signal.correlate(x, taps), "savgol": signal.savgol_filter(x, 7, 2),
    })


@_job("scipy", "transforms")
def transforms():
    from scipy import fft

    x = _doubles(6, 8, step=0.7)
    return _tensors({
        "fft": fft.fft(x).real, "rfft": fft.rfft(x).imag, "irfft": fft.irfft(fft.rfft(x)), "fft2": fft.fft2(x).real, "fftn": fft.fftn(x).imag, "shift": fft.fftshift(x),
        "hfft": fft.hfft(x), "frequencies": fft.fftfreq(8, xp=torch),
    })


@_job("scipy", "ndimage")
def images():
    from scipy import ndimage

    x = _doubles(12, 10, step=0.7)
    return _tensors({
        "gaussian": ndimage.gaussian_filter(x, 1.0), "median": ndimage.median_filter(x, 3), "sobel": ndimage.sobel(x), "zoom": ndimage.zoom(x, 1.5), "rotate": ndimage.rotate(x, 30.0),
        "uniform": ndimage.uniform_filter(x, 3), "erosion": ndimage.grey_erosion(x, size=3),
    })


@_job("scipy", "cluster")
def clusters():
    from scipy.cluster import hierarchy, vq

    x = _doubles(20, 3, step=1.9)
    codes, distances = vq.vq(x, x[:4])
    tree = hierarchy.linkage(x, "average")
    return _tensors({"white": vq.whiten(x), "codes": codes, "distances": distances, "tree": tree, "depths": hierarchy.maxdists(tree)})


@_job("scipy", "integrate")
def integrals():
    from scipy import integrate
    from scipy.optimize import elementwise

    y, x = _doubles(33, step=0.7), torch.linspace(0, 2, 33, dtype=torch.float64)
    root = elementwise.find_root(lambda x, a: x**3 - a, (torch.zeros(4, dtype=torch.float64), torch.full((4,), 3.0, dtype=torch.float64)), args=(y[:4].abs() + 1,))
    return _tensors({
        "trapezoid": integrate.trapezoid(y, x), "running": integrate.cumulative_trapezoid(y, x), "root": root.x,
        "tanhsinh": integrate.tanhsinh(lambda t: torch.exp(-t * t), torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, 2.0], dtype=torch.float64)).integral,
    })


@_job("scipy", "spatial")
def rotations():
    from scipy.spatial.transform import Rotation

    turned = Rotation.from_rotvec(_doubles(4, 3, step=1.9))
    return _tensors({"matrix": turned.as_matrix(), "applied": turned.apply(_doubles(4, 3)), "quaternion": (turned * turned.inv()).as_quat()})


def _dispatching():
    import sklearn

    return sklearn.config_context(array_api_dispatch=True)


def _table():
    x = _doubles(40, 5, step=1.7) + 0.3 * _doubles(40, 1, step=0.3)
    return x, x @ torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0], dtype=torch.float64) + 0.1 * _doubles(40, step=2.3), tokens(40, vocabulary=3)


@_job("sklearn", "decomposition")
def decomposition():
    from sklearn.decomposition import PCA

    with _dispatching():
        x, _, _ = _table()
        model = PCA(n_components=3, svd_solver="full").fit(x)
        part = model.transform(x)
        return _tensors({"ratio": model.explained_variance_ratio_, "size": part.abs(), "back": model.inverse_transform(part), "covariance": model.get_covariance()})


@_job("sklearn", "linear")
def linear_models():
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import Ridge, RidgeClassifier

    with _dispatching():
        x, y, classes = _table()
        ridge = Ridge(alpha=0.5, solver="svd").fit(x, y)
        chosen = RidgeClassifier(solver="svd").fit(x, classes)
        discriminant = LinearDiscriminantAnalysis().fit(x, classes)
        return _tensors({
            "coefficients": ridge.coef_, "predicted": ridge.predict(x), "decision": chosen.decision_function(x), "discriminant": discriminant.predict_proba(x),
            "classes": discriminant.predict(x),
        })


@_job("sklearn", "preprocessing")
def preprocessing():
    from sklearn import preprocessing as steps

    with _dispatching():
        x, _, classes = _table()
        scalers = {name: getattr(steps, name)().fit(x) for name in ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "Normalizer", "PolynomialFeatures")}
        return _tensors({
            **{name: scaler.transform(x) for name, scaler in scalers.items()}, "labels": steps.LabelEncoder().fit_transform(classes * 2),
            "binary": steps.Binarizer(threshold=0.1).fit_transform(x),
        })


@_job("sklearn", "scores")
def scores():
    from sklearn import metrics

    with _dispatching():
        x, y, classes = _table()
        other, close = classes.roll(3), y + 0.1 * _doubles(40, step=0.9)
        found = {
            **{name: getattr(metrics, name)(classes, other) for name in ("accuracy_score", "zero_one_loss")},
            **{name: getattr(metrics, name)(y, close) for name in ("mean_squared_error", "mean_absolute_error", "r2_score", "max_error", "explained_variance_score", "root_mean_squared_error")},
            "f1": metrics.f1_score(classes, other, average="macro"), "jaccard": metrics.jaccard_score(classes, other, average="macro"),
        }
        return {
            **{name: float(value) for name, value in found.items()},
            **_tensors({
                "confusion": metrics.confusion_matrix(classes, other), "cosine": metrics.pairwise.cosine_similarity(x), "kernel": metrics.pairwise.rbf_kernel(x),
                "distances": metrics.pairwise.euclidean_distances(x), "chi": metrics.pairwise.additive_chi2_kernel(x.abs()),
            }),
        }
