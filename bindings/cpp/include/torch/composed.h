// Functions of torch:: that no row of the op table has under LibTorch's name: of lists of tensors, of dtypes, of a
// signal's windows, and ATen's forms of layers and losses.
#pragma once

#include <torch/functions.h>

namespace torch {

inline Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options) { return arange(start, end, 1, options); }

// Lists of tensors.

inline std::vector<Tensor> meshgrid(TensorList tensors, string_view indexing) { return _meshgrid(tensors, indexing); }
inline std::vector<Tensor> meshgrid(TensorList tensors) { return _meshgrid(tensors, "ij"); }
inline std::vector<Tensor> broadcast_tensors(TensorList tensors) { return _broadcast_tensors(tensors); }
inline Tensor block_diag(TensorList tensors) { return _block_diag(tensors); }
inline Tensor cartesian_prod(TensorList tensors) { return _cartesian_prod(tensors); }
inline Tensor chain_matmul(TensorList matrices) { return _chain_matmul(matrices); }
inline std::vector<Tensor> atleast_1d(TensorList tensors) {
  using namespace detail;
  static const Op op("_atleast_1d");
  Handles handles(tensors);
  rl_value a[] = {v(handles)};
  return many(op, a);
}
inline std::vector<Tensor> atleast_2d(TensorList tensors) { return _atleast_2d(tensors); }
inline std::vector<Tensor> atleast_3d(TensorList tensors) { return _atleast_3d(tensors); }
inline Tensor atleast_1d(const Tensor& self) { return atleast_1d(TensorList(self)).at(0); }
inline Tensor atleast_2d(const Tensor& self) { return _atleast_2d(TensorList(self)).at(0); }
inline Tensor atleast_3d(const Tensor& self) { return _atleast_3d(TensorList(self)).at(0); }
inline Tensor tensordot(const Tensor& self, const Tensor& other, IntArrayRef dims_self, IntArrayRef dims_other) {
  return _tensordot(self, other, dims_self, dims_other);
}

// Distinct values; results that are not asked for are empty.

namespace detail {
inline std::tuple<Tensor, Tensor, Tensor> distinct(const Op& op, const rl_value* args, size_t count, bool inverse, bool counts) {
  std::vector<Tensor> found = many(op, args, count);
  const Tensor none = torch::empty({0}, TensorOptions(kLong).device(found.at(0).device()));
  return {found.at(0), inverse ? found.at(1) : none, counts ? found.at(inverse ? 2 : 1) : none};
}
inline std::tuple<Tensor, Tensor, Tensor> unique(const Tensor& self, bool sorted, bool inverse, bool counts, optional<int64_t> dim) {
  static const Op op("unique");
  rl_value a[] = {v(self), v(sorted), v(inverse), v(counts), v(dim)};
  return distinct(op, a, 5, inverse, counts);
}
}  // namespace detail
inline std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self, bool return_inverse = false, bool return_counts = false,
                                                             optional<int64_t> dim = nullopt) {
  using namespace detail;
  static const Op op("unique_consecutive");
  rl_value a[] = {v(self), v(return_inverse), v(return_counts), v(dim)};
  return distinct(op, a, 4, return_inverse, return_counts);
}
inline std::tuple<Tensor, Tensor, Tensor> unique_dim_consecutive(const Tensor& self, int64_t dim, bool return_inverse = false, bool return_counts = false) {
  return unique_consecutive(self, return_inverse, return_counts, dim);
}
inline std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor& self, int64_t dim, bool sorted = true, bool return_inverse = false,
                                                     bool return_counts = false) {
  return detail::unique(self, sorted, return_inverse, return_counts, dim);
}
inline std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& self, bool sorted = true, bool return_inverse = false, bool return_counts = false) {
  return detail::unique(self, sorted, return_inverse, return_counts, nullopt);
}
inline std::tuple<Tensor, Tensor> _unique(const Tensor& self, bool sorted = true, bool return_inverse = false) {
  auto [values, inverse, counts] = _unique2(self, sorted, return_inverse);
  return {values, inverse};
}

// Dtypes.

inline ScalarType promote_types(ScalarType a, ScalarType b) {
  int32_t out = -1;
  detail::check(rl_promote_types(static_cast<int32_t>(a), static_cast<int32_t>(b), &out));
  return static_cast<ScalarType>(out);
}
inline ScalarType promoteTypes(ScalarType a, ScalarType b) { return promote_types(a, b); }
inline bool can_cast(ScalarType from, ScalarType to) {
  bool out = false;
  detail::check(rl_can_cast(static_cast<int32_t>(from), static_cast<int32_t>(to), &out));
  return out;
}
inline bool canCast(ScalarType from, ScalarType to) { return can_cast(from, to); }
namespace detail {
inline ScalarType result_type(const rl_value& a, const rl_value& b) {
  const rl_value both[] = {a, b};
  int32_t out = -1;
  check(rl_result_type_of(both, 2, &out));
  return static_cast<ScalarType>(out);
}
}  // namespace detail
inline ScalarType result_type(const Tensor& a, const Tensor& b) { return detail::result_type(detail::v_tensor(a), detail::v_tensor(b)); }
inline ScalarType result_type(const Tensor& a, const Scalar& b) { return detail::result_type(detail::v_tensor(a), detail::v_scalar(b)); }
inline ScalarType result_type(const Scalar& a, const Tensor& b) { return detail::result_type(detail::v_scalar(a), detail::v_tensor(b)); }
inline ScalarType result_type(const Scalar& a, const Scalar& b) { return detail::result_type(detail::v_scalar(a), detail::v_scalar(b)); }

// Fourier transforms of the windows of a signal.

namespace fft {
// Frequencies of the numbers of a transform of n numbers that are d apart.
inline Tensor fftfreq(int64_t n, double d, const TensorOptions& options = {}) {
  TORCH_CHECK(n > 0 && d != 0, "fftfreq: n must be positive and d not zero, got ", n, " and ", d);
  Tensor places = torch::cat({torch::arange(0, (n + 1) / 2, options.requires_grad(nullopt)), torch::arange(-(n / 2), 0, options.requires_grad(nullopt))});
  return (places.to(options.dtype().toScalarType()) * (1.0 / (static_cast<double>(n) * d))).set_requires_grad(options.requires_grad());
}
inline Tensor fftfreq(int64_t n, const TensorOptions& options = {}) { return fftfreq(n, 1.0, options); }
inline Tensor rfftfreq(int64_t n, double d, const TensorOptions& options = {}) {
  TORCH_CHECK(n > 0 && d != 0, "rfftfreq: n must be positive and d not zero, got ", n, " and ", d);
  Tensor places = torch::arange(0, n / 2 + 1, options.requires_grad(nullopt));
  return (places.to(options.dtype().toScalarType()) * (1.0 / (static_cast<double>(n) * d))).set_requires_grad(options.requires_grad());
}
inline Tensor rfftfreq(int64_t n, const TensorOptions& options = {}) { return rfftfreq(n, 1.0, options); }
}  // namespace fft

namespace detail {
// Lengths of a window and of the steps between windows, and the window in the middle of n_fft numbers.
struct Windows {
  int64_t hop, length;
  Tensor window;
  Windows(const char* call, int64_t n_fft, optional<int64_t> hop_length, optional<int64_t> win_length, const optional<Tensor>& given, const TensorOptions& like)
      : hop(hop_length.value_or(n_fft / 4)), length(win_length.value_or(n_fft)) {
    TORCH_CHECK(hop > 0, call, ": expected hop_length > 0, but got hop_length=", hop);
    TORCH_CHECK(length > 0 && length <= n_fft, call, ": expected 0 < win_length <= n_fft, but got win_length=", length);
    window = given && given->defined() ? *given : torch::ones({length}, like);
    TORCH_CHECK(window.dim() == 1 && window.numel() == length, call, ": expected a 1D window tensor of size equal to win_length=", length,
                ", but got window with size ", window.sizes());
    const int64_t left = (n_fft - length) / 2;
    if (length < n_fft) window = raw::pad(window, {left, n_fft - length - left});
  }
};
}  // namespace detail

inline Tensor stft(const Tensor& self, int64_t n_fft, optional<int64_t> hop_length, optional<int64_t> win_length, const optional<Tensor>& window,
                   bool center, string_view pad_mode = "reflect", bool normalized = false, optional<bool> onesided = nullopt,
                   optional<bool> return_complex = nullopt, optional<bool> align_to_window = nullopt) {
  const bool complex = self.is_complex() || (window && window->defined() && window->is_complex());
  TORCH_CHECK(return_complex || complex, "stft requires the return_complex parameter be given for real inputs, and will further require that "
              "return_complex=True in a future PyTorch release.");
  TORCH_CHECK(!center || !align_to_window, "stft align_to_window should only be set when center = false.");
  TORCH_CHECK((self.is_floating_point() || self.is_complex()) && (self.dim() == 1 || self.dim() == 2),
              "stft: expected a tensor of floating point or complex values with 1 or 2 dimensions, but got ", self.sizes(), " of ", self.scalar_type());
  const TensorOptions real = TensorOptions(toRealValueType(self.scalar_type())).device(self.device());
  const detail::Windows w("stft", n_fft, hop_length, win_length, window, real);
  Tensor signal = self.dim() == 2 ? self : self.unsqueeze(0);
  auto padded = [&](const Tensor& part) { return detail::raw::pad(part.unsqueeze(1), {n_fft / 2, n_fft / 2}, pad_mode).squeeze(1); };
  if (center) signal = self.is_complex() ? torch::complex(padded(torch::real(signal)), padded(torch::imag(signal))) : padded(signal);
  if (align_to_window.value_or(false)) {
    const int64_t left = (n_fft - w.length) / 2;
    signal = detail::raw::pad(signal, {left, n_fft - w.length - left});
  }
  TORCH_CHECK(n_fft > 0 && n_fft <= signal.size(1), "stft: expected 0 < n_fft <= ", signal.size(1), ", but got n_fft=", n_fft);
  const Tensor frames = signal.unfold(1, n_fft, w.hop) * w.window;
  const bool half = onesided.value_or(!complex);
  TORCH_CHECK(!half || !complex, "Cannot have onesided output if window or input is complex");
  const optional<string_view> norm = normalized ? optional<string_view>("ortho") : nullopt;
  Tensor out = (half ? fft::rfft(frames, nullopt, -1, norm) : fft::fft(frames, nullopt, -1, norm)).transpose(1, 2);
  if (self.dim() == 1) out = out.squeeze(0);
  return return_complex.value_or(true) ? out : torch::view_as_real(out.contiguous());
}
inline Tensor stft(const Tensor& self, int64_t n_fft, optional<int64_t> hop_length = nullopt, optional<int64_t> win_length = nullopt,
                   const optional<Tensor>& window = {}) {
  return stft(self, n_fft, hop_length, win_length, window, true);
}
inline Tensor istft(const Tensor& self, int64_t n_fft, optional<int64_t> hop_length = nullopt, optional<int64_t> win_length = nullopt,
                    const optional<Tensor>& window = {}, bool center = true, bool normalized = false, optional<bool> onesided = nullopt,
                    optional<int64_t> length = nullopt, bool return_complex = false) {
  TORCH_CHECK(self.is_complex(), "istft requires a complex-valued input tensor matching the output from stft with return_complex=True.");
  TORCH_CHECK((self.dim() == 2 || self.dim() == 3) && self.numel() > 0, "istft: expected a non-empty tensor with 2 or 3 dimensions, but got ", self.sizes());
  const TensorOptions real = TensorOptions(toRealValueType(self.scalar_type())).device(self.device());
  const detail::Windows w("istft", n_fft, hop_length, win_length, window, real);
  Tensor spectra = (self.dim() == 3 ? self : self.unsqueeze(0)).transpose(1, 2);
  const bool half = onesided.value_or(spectra.size(2) != n_fft);
  TORCH_CHECK(spectra.size(2) == (half ? n_fft / 2 + 1 : n_fft),
              "istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft=", n_fft, ", but got ", spectra.size(2));
  TORCH_CHECK(!return_complex || !half, "cannot have onesided output if window or input is complex");
  TORCH_CHECK(return_complex || !w.window.is_complex(), "Complex windows are incompatible with return_complex=False");
  const optional<string_view> norm = normalized ? optional<string_view>("ortho") : nullopt;
  Tensor frames = return_complex ? fft::ifft(spectra, nullopt, -1, norm)
                                 : fft::irfft(half ? spectra : spectra.narrow(2, 0, n_fft / 2 + 1), n_fft, -1, norm);
  frames = frames * w.window;
  const int64_t count = frames.size(1), total = n_fft + w.hop * (count - 1);
  const TensorOptions whole = TensorOptions(kLong).device(self.device());
  const Tensor places = ((torch::arange(count, whole) * w.hop).unsqueeze(1) + torch::arange(n_fft, whole)).reshape({-1});
  const Tensor weights = w.window.square().expand({count, n_fft}).reshape({-1});
  Tensor signal = torch::zeros({frames.size(0), total}, frames.options()).index_add(1, places, frames.reshape({frames.size(0), -1}));
  Tensor envelope = torch::zeros({total}, weights.options()).index_add(0, places, weights);
  const int64_t start = center ? n_fft / 2 : 0;
  const int64_t end = std::min(total, length ? start + *length : center ? total - n_fft / 2 : total);
  signal = signal.narrow(1, start, end - start);
  envelope = envelope.narrow(0, start, end - start);
  TORCH_CHECK(envelope.numel() == 0 || envelope.abs().min().item<double>() >= 1e-11,
              "istft: window overlap add min: 1: the window has places where all overlapping windows are zero; use a larger window or a smaller hop_length");
  signal = signal / envelope;
  if (length && signal.size(1) < *length) signal = detail::raw::pad(signal, {0, *length - signal.size(1)});
  return self.dim() == 2 ? signal.squeeze(0) : signal;
}

// Counts between edges, and the edges.
inline std::tuple<Tensor, Tensor> histogram(const Tensor& self, const Tensor& bins, const optional<Tensor>& weight = {}, bool density = false) {
  const int64_t cells = bins.numel() - 1;
  const Tensor flat = self.reshape({-1}), last = bins.select(0, cells);
  const Tensor place = torch::where(flat == last, Scalar(cells - 1), torch::bucketize(flat, bins, false, true) - 1);
  const Tensor inside = (place >= 0).logical_and(place < cells);
  const Tensor weights = weight && weight->defined() ? weight->reshape({-1}) : torch::ones_like(flat);
  Tensor counts = torch::zeros({cells}, self.options()).index_add(0, place.masked_select(inside), weights.masked_select(inside));
  if (density) counts = counts / counts.sum() / bins.diff();
  return {counts, bins};
}
inline std::tuple<Tensor, Tensor> histogram(const Tensor& self, int64_t bins = 100, optional<ArrayRef<double>> range = nullopt,
                                            const optional<Tensor>& weight = {}, bool density = false) {
  TORCH_CHECK(!range || range->size() == 2, "torch.histogram(): range should have 2 elements");
  double low = range ? (*range)[0] : self.min().item<double>(), high = range ? (*range)[1] : self.max().item<double>();
  if (low == high) low -= 0.5, high += 0.5;
  return histogram(self, torch::linspace(low, high, bins + 1, self.options()), weight, density);
}

// Layers and losses, with ATen's signatures.

inline Tensor hardswish(const Tensor& self) { return detail::raw::hardswish(self); }
inline Tensor hardsigmoid(const Tensor& self) { return detail::raw::hardsigmoid(self); }
inline Tensor relu6(const Tensor& self) { return detail::raw::relu6(self); }
inline Tensor softshrink(const Tensor& self, const Scalar& lambd = 0.5) { return detail::raw::softshrink(self, lambd.toDouble()); }
inline Tensor rrelu(const Tensor& self, const Scalar& lower = 0.125, const Scalar& upper = 0.3333333333333333, bool training = false) {
  return detail::raw::rrelu(self, lower.toDouble(), upper.toDouble(), training);
}
inline Tensor alpha_dropout(const Tensor& input, double p, bool train) { return detail::raw::alpha_dropout(input, p, train); }
inline Tensor feature_alpha_dropout(const Tensor& input, double p, bool train) { return detail::raw::feature_alpha_dropout(input, p, train); }
inline Tensor instance_norm(const Tensor& input, const OptTensor& weight, const OptTensor& bias, const OptTensor& running_mean, const OptTensor& running_var,
                            bool use_input_stats, double momentum, double eps, bool /*cudnn_enabled*/ = true) {
  return detail::raw::instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps);
}
inline Tensor pad(const Tensor& self, IntArrayRef pad, string_view mode = "constant", optional<double> value = nullopt) {
  return detail::raw::pad(self, pad, mode, value ? optional<Scalar>(*value) : nullopt);
}
inline Tensor constant_pad_nd(const Tensor& self, IntArrayRef pad, const Scalar& value = 0) { return detail::raw::pad(self, pad, "constant", value); }
inline Tensor im2col(const Tensor& self, IntArrayRef kernel_size, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  return detail::raw::unfold(self, kernel_size, dilation, padding, stride);
}
inline Tensor col2im(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  return detail::raw::fold(self, output_size, kernel_size, dilation, padding, stride);
}
// interpolation_mode: 0 bilinear, 1 nearest, 2 bicubic; padding_mode: 0 zeros, 1 border, 2 reflection.
inline Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t interpolation_mode, int64_t padding_mode, bool align_corners) {
  TORCH_CHECK(interpolation_mode >= 0 && interpolation_mode < 3 && padding_mode >= 0 && padding_mode < 3, "grid_sampler: there are modes 0, 1 and 2");
  const char *modes[] = {"bilinear", "nearest", "bicubic"}, *paddings[] = {"zeros", "border", "reflection"};
  return detail::raw::_grid_sample(input, grid, modes[interpolation_mode], paddings[padding_mode], align_corners);
}
inline Tensor affine_grid_generator(const Tensor& theta, IntArrayRef size, bool align_corners) { return detail::raw::_affine_grid(theta, size, align_corners); }
#define RL_WITH_INDICES(D)                                                                                                                              \
  inline std::tuple<Tensor, Tensor> max_pool##D##d_with_indices(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride = {},                   \
                                                                IntArrayRef padding = 0, IntArrayRef dilation = 1, bool ceil_mode = false) {            \
    return detail::raw::max_pool##D##d_with_indices(self, kernel_size, stride.empty() ? kernel_size : stride, padding, dilation, ceil_mode);            \
  }
RL_WITH_INDICES(1) RL_WITH_INDICES(2) RL_WITH_INDICES(3)
#undef RL_WITH_INDICES
inline std::tuple<Tensor, Tensor> adaptive_max_pool1d(const Tensor& self, IntArrayRef output_size) {
  return detail::raw::adaptive_max_pool1d_with_indices(self, output_size);
}
inline std::tuple<Tensor, Tensor> adaptive_max_pool2d(const Tensor& self, IntArrayRef output_size) {
  return detail::raw::adaptive_max_pool2d_with_indices(self, output_size);
}
inline Tensor hinge_embedding_loss(const Tensor& self, const Tensor& target, double margin = 1, int64_t reduction = Reduction::Mean) {
  return detail::raw::hinge_embedding_loss(self, target, margin, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor soft_margin_loss(const Tensor& self, const Tensor& target, int64_t reduction = Reduction::Mean) {
  return detail::raw::soft_margin_loss(self, target, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor multilabel_margin_loss(const Tensor& self, const Tensor& target, int64_t reduction = Reduction::Mean) {
  return detail::raw::multilabel_margin_loss(self, target, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const Scalar& p = 1, const Scalar& margin = 1, const OptTensor& weight = {},
                                int64_t reduction = Reduction::Mean) {
  return detail::raw::multi_margin_loss(self, target, p.toLong(), margin.toDouble(), weight, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin = 0, int64_t reduction = Reduction::Mean) {
  return detail::raw::margin_ranking_loss(input1, input2, target, margin, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin = 0, int64_t reduction = Reduction::Mean) {
  return detail::raw::cosine_embedding_loss(input1, input2, target, margin, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin = 1, double p = 2, double eps = 1e-6,
                                  bool swap = false, int64_t reduction = Reduction::Mean) {
  return detail::raw::triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, nullopt, nullopt, detail::reduction_name(reduction));
}
inline Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full, double eps, int64_t reduction) {
  return detail::raw::poisson_nll_loss(input, target, log_input, full, nullopt, eps, nullopt, detail::reduction_name(reduction));
}
inline Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths, int64_t blank,
                       int64_t reduction, bool zero_infinity = false) {
  return detail::raw::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, detail::reduction_name(reduction), zero_infinity);
}
inline Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths, IntArrayRef target_lengths, int64_t blank,
                       int64_t reduction, bool zero_infinity = false) {
  return detail::raw::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, detail::reduction_name(reduction), zero_infinity);
}

// Rows of a weight, summed (mode 0), averaged (1) or maximised (2) over bags; the bag of each index, and the size of
// each. The last result is empty: PyTorch keeps the places of maxima there for its own backward pass.
inline std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool scale_grad_by_freq,
                                                                int64_t mode, bool sparse, const OptTensor& per_sample_weights, bool include_last_offset,
                                                                optional<int64_t> padding_idx) {
  TORCH_CHECK(mode >= 0 && mode < 3, "embedding_bag: mode must be 0 (sum), 1 (mean) or 2 (max), got ", mode);
  TORCH_CHECK(indices.dim() == 1 && offsets.dim() == 1, "embedding_bag: indices and offsets must have 1 dimension, got ", indices.dim(), " and ", offsets.dim());
  const bool weighted = per_sample_weights && per_sample_weights->defined();
  TORCH_CHECK(!weighted || mode == 0, "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum'.");
  const Tensor begins = offsets.to(kCPU).to(kLong).contiguous();
  const int64_t count = indices.numel(), bags = begins.numel() - (include_last_offset ? 1 : 0);
  TORCH_CHECK(bags >= 0, "embedding_bag: with include_last_offset, offsets must not be empty");
  TORCH_CHECK(bags == 0 || begins[0].item<int64_t>() == 0, "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
              "However, got ", begins[0].item<int64_t>());
  TORCH_CHECK(begins.numel() == 0 || begins[-1].item<int64_t>() <= count, "offsets[-1] can not be greater than input's length ", count, ", but got offsets[-1] of ",
              begins[-1].item<int64_t>());
  TORCH_CHECK((begins.diff() >= 0).all().item<bool>(), "embedding_bag: offsets must not decrease");
  // Indices after the last bag have its number plus one.
  const Tensor owner = (torch::bucketize(torch::arange(count), begins, false, true) - 1).to(indices.device());
  Tensor rows = detail::raw::embedding(indices, weight, nullopt, nullopt, 2.0, scale_grad_by_freq, sparse);
  if (weighted) rows = rows * per_sample_weights->unsqueeze(-1);
  optional<Tensor> kept;
  if (padding_idx && *padding_idx < 0) *padding_idx += weight.size(0);
  if (padding_idx) kept = indices != *padding_idx;
  const char* words[] = {"sum", "mean", "max"};
  Tensor out = detail::raw::_bags(rows, words[mode], owner, bags, kept);
  const Tensor counted = kept ? kept->to(kLong) : torch::ones({count}, owner.options());
  const Tensor sizes = torch::zeros({bags + 1}, owner.options()).index_add(0, owner, counted).narrow(0, 0, bags);
  return {out, owner, sizes, torch::empty({0}, sizes.options())};
}
inline std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool scale_grad_by_freq = false,
                                                                int64_t mode = 0, bool sparse = false, const OptTensor& per_sample_weights = {},
                                                                bool include_last_offset = false) {
  return embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, nullopt);
}

}  // namespace torch
