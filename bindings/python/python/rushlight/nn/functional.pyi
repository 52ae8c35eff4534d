"""Made by stubs.py from the op table."""

from typing import Any, Sequence, overload

from .. import Generator, Tensor, layout, memory_format
from .. import device as _device
from .. import dtype as _dtype

Number = int | float | bool

def adaptive_avg_pool1d(input: Tensor, output_size: int | Sequence[int | None]) -> Any:
    """Means of a given number of windows."""
def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None]) -> Any:
    """Means of a given number of windows."""
def adaptive_avg_pool3d(input: Tensor, output_size: int | Sequence[int | None]) -> Any:
    """Means of a given number of windows."""
def adaptive_max_pool1d(input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """Largest elements of a given number of windows; with `return_indices` also their indices."""
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """Largest elements of a given number of windows, and their indices."""
def adaptive_max_pool2d(input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """Largest elements of a given number of windows; with `return_indices` also their indices."""
def adaptive_max_pool2d_with_indices(input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """Largest elements of a given number of windows, and their indices."""
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """Dropout for self-normalising networks."""
def avg_pool1d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Any:
    """Means of windows."""
def avg_pool2d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Any:
    """Means of windows."""
def avg_pool3d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Any:
    """Means of windows."""
def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-05) -> Any:
    """Normalisation over batches."""
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """`input1 @ weight @ input2 + bias`, per output."""
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Cross-entropy of probabilities."""
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', pos_weight: Tensor | None = None) -> Any:
    """Cross-entropy of logits of two classes."""
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """The continuously differentiable `elu`."""
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""
def channel_shuffle(input: Tensor, groups: int) -> Any:
    """Interleaves the channels of groups."""
def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: str | int | Sequence[int] = 0, dilation: int | Sequence[int | None] = 1, groups: int = 1) -> Any:
    """Convolution."""
def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: str | int | Sequence[int] = 0, dilation: int | Sequence[int | None] = 1, groups: int = 1) -> Any:
    """Convolution."""
def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: str | int | Sequence[int] = 0, dilation: int | Sequence[int | None] = 1, groups: int = 1) -> Any:
    """Convolution."""
def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: int | Sequence[int | None] = 0, output_padding: int | Sequence[int | None] = 0, groups: int = 1, dilation: int | Sequence[int | None] = 1) -> Any:
    """Transposed convolution."""
def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: int | Sequence[int | None] = 0, output_padding: int | Sequence[int | None] = 0, groups: int = 1, dilation: int | Sequence[int | None] = 1) -> Any:
    """Transposed convolution."""
def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: int | Sequence[int | None] = 0, output_padding: int | Sequence[int | None] = 0, groups: int = 1, dilation: int | Sequence[int | None] = 1) -> Any:
    """Transposed convolution."""
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Cosine of pairs that belong together or not."""
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Any:
    """Cosine of the angle between vectors."""
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None, reduction: str = 'mean', label_smoothing: float = 0.0) -> Any:
    """Cross-entropy of logits with classes or probabilities."""
@overload
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0, reduction: str = 'mean', zero_infinity: bool = False) -> Any:
    """Connectionist temporal classification: likelihood of sequences of unknown alignment."""
@overload
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Sequence[int], target_lengths: Sequence[int], blank: int = 0, reduction: str = 'mean', zero_infinity: bool = False) -> Any:
    """Connectionist temporal classification: likelihood of sequences of unknown alignment."""
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeroes elements at random and scales up the others."""
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeroes channels of sequences at random."""
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeroes channels of images at random."""
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeroes channels of volumes at random."""
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """`x`, or `alpha * (exp(x) - 1)` below zero."""
def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place."""
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    """Rows of a table by index."""
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """`alpha_dropout` of whole channels."""
def fold(input: Tensor, output_size: int | Sequence[int | None], kernel_size: int | Sequence[int | None], dilation: int | Sequence[int | None] = 1, padding: int | Sequence[int | None] = 0, stride: int | Sequence[int | None] = 1) -> Any:
    """Sums columns into images."""
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | Number, full: bool = False, eps: float = 1e-06, reduction: str = 'mean') -> Any:
    """Negative log-likelihood of a normal distribution."""
def gelu(input: Tensor, *, approximate: str = 'none') -> Any:
    """`x * Phi(x)`, exact or approximated with tanh."""
def glu(input: Tensor, dim: int = -1) -> Any:
    """The first half times the logistic function of the second."""
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05) -> Any:
    """Normalisation over groups of channels."""
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """Samples of a relaxed categorical distribution."""
def hardshrink(input: Tensor, lambd: Number = 0.5) -> Any:
    """Zero within `lambd` of zero."""
def hardsigmoid(input: Tensor, inplace: bool = False) -> Any:
    """`relu6(x + 3) / 6`."""
def hardswish(input: Tensor, inplace: bool = False) -> Any:
    """`x * relu6(x + 3) / 6`."""
def hardtanh(input: Tensor, min_val: Number = -1.0, max_val: Number = 1.0, inplace: bool = False) -> Any:
    """Clamps between two numbers."""
def hardtanh_(input: Tensor, min_val: Number = -1.0, max_val: Number = 1.0) -> Tensor:
    """`hardtanh` in place."""
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Hinge of distances."""
def huber_loss(input: Tensor, target: Tensor, reduction: str = 'mean', delta: float = 1.0, weight: Tensor | None = None) -> Any:
    """Squared near zero, absolute beyond, times delta."""
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-05) -> Any:
    """Normalisation of each instance."""
def interpolate(input: Tensor, size: int | Sequence[int | None] | None = None, scale_factor: float | Sequence[float] | None = None, mode: str = 'nearest', align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False) -> Any:
    """Resizes by interpolation."""
def kl_div(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', log_target: bool = False) -> Any:
    """Kullback-Leibler divergence."""
def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', weight: Tensor | None = None) -> Any:
    """Mean absolute error."""
def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05) -> Any:
    """Normalisation over the last dimensions."""
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """`x`, or a fraction of it below zero."""
def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place."""
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """`input @ weight.T + bias`."""
def local_response_norm(input: Tensor, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0) -> Any:
    """Normalisation over neighbouring channels."""
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: _dtype | None = None) -> Any:
    """Logarithm of `softmax`."""
def logsigmoid(input: Tensor) -> Any:
    """`log(sigmoid(x))`."""
def lp_pool1d(input: Tensor, norm_type: float, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, ceil_mode: bool = False) -> Any:
    """Power means of windows."""
def lp_pool2d(input: Tensor, norm_type: float, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, ceil_mode: bool = False) -> Any:
    """Power means of windows."""
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Hinge of the difference of two scores."""
def max_pool1d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, dilation: int | Sequence[int | None] = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Largest elements of windows; with `return_indices` also their indices."""
def max_pool1d_with_indices(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, dilation: int | Sequence[int | None] = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Largest elements of windows, and their indices."""
def max_pool2d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, dilation: int | Sequence[int | None] = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Largest elements of windows; with `return_indices` also their indices."""
def max_pool2d_with_indices(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, dilation: int | Sequence[int | None] = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Largest elements of windows, and their indices."""
def max_pool3d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, dilation: int | Sequence[int | None] = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Largest elements of windows; with `return_indices` also their indices."""
def max_pool3d_with_indices(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, dilation: int | Sequence[int | None] = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Largest elements of windows, and their indices."""
def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, output_size: Sequence[int] | None = None) -> Any:
    """Writes pooled elements back to their positions."""
def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, output_size: Sequence[int] | None = None) -> Any:
    """Writes pooled elements back to their positions."""
def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, output_size: Sequence[int] | None = None) -> Any:
    """Writes pooled elements back to their positions."""
def mish(input: Tensor, inplace: bool = False) -> Any:
    """`x * tanh(softplus(x))`."""
def mse_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', weight: Tensor | None = None) -> Any:
    """Mean squared error."""
def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Margins between the right class and the others."""
def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Margins between several right classes and the others."""
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Logistic loss of several classes."""
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Negative log-likelihood of classes."""
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    """Divides by a norm."""
def one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
    """One-hot rows of class indices."""
def pad(input: Tensor, pad: Sequence[int], mode: str = 'constant', value: Number | None = None) -> Any:
    """Pads with elements on each side."""
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False) -> Any:
    """Distances of pairs of vectors."""
def pdist(input: Tensor, p: float = 2.0) -> Any:
    """Distances between vectors of one set."""
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Any:
    """Rearranges channels into pixels."""
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Any:
    """Rearranges pixels into channels."""
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-08, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Negative log-likelihood of a Poisson distribution."""
def prelu(input: Tensor, weight: Tensor) -> Any:
    """`x`, or `weight * x` below zero."""
def relu(input: Tensor, inplace: bool = False) -> Any:
    """The positive part."""
def relu6(input: Tensor, inplace: bool = False) -> Any:
    """Clamps to 0..6."""
def relu_(input: Tensor) -> Tensor:
    """The positive part, in place."""
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Any:
    """Division by the root of the mean square."""
def rrelu(input: Tensor, lower: float = 0.125, upper: float = 0.3333333333333333, training: bool = False, inplace: bool = False) -> Any:
    """`x`, or a random fraction of it below zero."""
def rrelu_(input: Tensor, lower: float = 0.125, upper: float = 0.3333333333333333, training: bool = False) -> Tensor:
    """`rrelu` in place."""
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Any:
    """Softmax of scaled products of queries and keys, times values."""
def selu(input: Tensor, inplace: bool = False) -> Any:
    """The self-normalising `elu`."""
def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""
def sigmoid(input: Tensor) -> Any:
    """Logistic function."""
def silu(input: Tensor, inplace: bool = False) -> Any:
    """`x * sigmoid(x)`."""
def smooth_l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', beta: float = 1.0) -> Any:
    """Squared near zero, absolute beyond."""
def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Logistic loss of signs."""
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: _dtype | None = None) -> Any:
    """Exponentials that sum to one."""
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: _dtype | None = None) -> Any:
    """`softmax` of the negative."""
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """`log(1 + exp(beta x)) / beta`."""
def softshrink(input: Tensor, lambd: float = 0.5) -> Any:
    """Shrinks towards zero by `lambd`; zero within it."""
def softsign(input: Tensor) -> Any:
    """`x / (1 + |x|)`."""
def tanh(input: Tensor) -> Any:
    """Hyperbolic tangent."""
def tanhshrink(input: Tensor) -> Any:
    """`x - tanh(x)`."""
def threshold(input: Tensor, threshold: Number, value: Number, inplace: bool = False) -> Any:
    """`x` above a threshold, else a value."""
def threshold_(input: Tensor, threshold: Number, value: Number) -> Tensor:
    """`threshold` in place."""
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-06, swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Any:
    """Hinge of an anchor's distances to a positive and a negative example."""
def unfold(input: Tensor, kernel_size: int | Sequence[int | None], dilation: int | Sequence[int | None] = 1, padding: int | Sequence[int | None] = 0, stride: int | Sequence[int | None] = 1) -> Any:
    """Windows of images as columns."""
def upsample(input: Tensor, size: int | Sequence[int | None] | None = None, scale_factor: float | Sequence[float] | None = None, mode: str = 'nearest', align_corners: bool | None = None) -> Any:
    """Resizes by interpolation."""
def adaptive_avg_pool2d(input, output_size): ...
def adaptive_avg_pool3d(input, output_size): ...
def adaptive_max_pool1d(input, output_size, return_indices=False): ...
def adaptive_max_pool1d_with_indices(input, output_size, return_indices=False): ...
def adaptive_max_pool2d(input, output_size, return_indices=False): ...
def adaptive_max_pool2d_with_indices(input, output_size, return_indices=False): ...
def adaptive_max_pool3d(input, output_size, return_indices=False): ...
def adaptive_max_pool3d_with_indices(input, output_size, return_indices=False): ...
def affine_grid(theta, size, align_corners=None): ...
def alpha_dropout(input, p=0.5, training=False, inplace=False): ...
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05): ...
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction='mean'): ...
def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction='mean', pos_weight=None): ...
def celu(input, alpha=1.0, inplace=False): ...
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction='mean'): ...
def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', label_smoothing=0.0): ...
def dropout(input, p=0.5, training=True, inplace=False): ...
def dropout1d(input, p=0.5, training=True, inplace=False): ...
def dropout2d(input, p=0.5, training=True, inplace=False): ...
def dropout3d(input, p=0.5, training=True, inplace=False): ...
def elu(input, alpha=1.0, inplace=False): ...
def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False): ...
def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode='mean', sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None): ...
def feature_alpha_dropout(input, p=0.5, training=False, inplace=False): ...
def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1): ...
def fractional_max_pool2d(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None): ...
def fractional_max_pool2d_with_indices(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None): ...
def fractional_max_pool3d(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None): ...
def fractional_max_pool3d_with_indices(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None): ...
def gaussian_nll_loss(input, target, var, full=False, eps=1e-06, reduction='mean'): ...
def glu(input, dim=-1): ...
def grid_sample(input, grid, mode='bilinear', padding_mode='zeros', align_corners=None): ...
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05): ...
def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1): ...
def handle_torch_function(public_api, relevant_args, *args, **kwargs): ...
def hardsigmoid(input, inplace=False): ...
def hardswish(input, inplace=False): ...
def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False): ...
def has_torch_function(relevant_args): ...
def has_torch_function_unary(tensor): ...
def has_torch_function_variadic(*tensors): ...
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction='mean'): ...
def huber_loss(input, target, reduction='mean', delta=1.0, weight=None): ...
def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05): ...
def interpolate(input, size=None, scale_factor=None, mode='nearest', align_corners=None, recompute_scale_factor=None, antialias=False): ...
def kl_div(input, target, size_average=None, reduce=None, reduction='mean', log_target=False): ...
def l1_loss(input, target, size_average=None, reduce=None, reduction='mean', weight=None): ...
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05): ...
def leaky_relu(input, negative_slope=0.01, inplace=False): ...
def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, weight=None, reduction='mean', ignore_index=None, label_smoothing=0.0, options=None): ...
def local_response_norm(input, size, alpha=0.0001, beta=0.75, k=1.0): ...
def log_softmax(input, dim=None, _stacklevel=3, dtype=None): ...
def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False): ...
def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False): ...
def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False): ...
def make_overridable(namespace, names): ...
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction='mean'): ...
def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
def max_pool1d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
def max_pool2d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
def max_pool3d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None): ...
def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None): ...
def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None): ...
def mish(input, inplace=False): ...
def mse_loss(input, target, size_average=None, reduce=None, reduction='mean', weight=None): ...
def multi_head_attention_forward(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, is_causal=False): ...
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction='mean'): ...
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction='mean'): ...
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction='mean'): ...
def native_channel_shuffle(input, groups): ...
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean'): ...
def normalize(input, p=2.0, dim=1, eps=1e-12): ...
def overridable(function, module=None): ...
def pad(input, pad, mode='constant', value=None): ...
def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction='mean'): ...
def relu(input, inplace=False): ...
def relu6(input, inplace=False): ...
def rms_norm(input, normalized_shape, weight=None, eps=None): ...
def rrelu(input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False): ...
def selu(input, inplace=False): ...
def sigmoid(input): ...
def silu(input, inplace=False): ...
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction='mean', beta=1.0): ...
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction='mean'): ...
def softmax(input, dim=None, _stacklevel=3, dtype=None): ...
def softmin(input, dim=None, _stacklevel=3, dtype=None): ...
def softsign(input): ...
def tanh(input): ...
def tanhshrink(input): ...
def threshold(input, threshold, value, inplace=False): ...
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, size_average=None, reduce=None, reduction='mean'): ...
def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction='mean'): ...
def unfold(input, kernel_size, dilation=1, padding=0, stride=1): ...
def upsample(input, size=None, scale_factor=None, mode='nearest', align_corners=None): ...
def upsample_bilinear(input, size=None, scale_factor=None): ...
def upsample_nearest(input, size=None, scale_factor=None): ...
