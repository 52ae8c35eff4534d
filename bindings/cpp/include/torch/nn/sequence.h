// Recurrent cells, and sequences of different lengths: torch::nn::utils::rnn.
#pragma once

#include <torch/nn/layers.h>

namespace torch {
namespace nn {

struct RNNCellOptionsBase {
  RNNCellOptionsBase(int64_t input_size, int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  TORCH_ARG(int64_t, input_size);
  TORCH_ARG(int64_t, hidden_size);
  TORCH_ARG(bool, bias) = true;
};
struct RNNCellOptions : RNNCellOptionsBase {
  using RNNCellOptionsBase::RNNCellOptionsBase;
  RNNCellOptions& bias(bool value) { RNNCellOptionsBase::bias(value); return *this; }
  bool bias() const { return RNNCellOptionsBase::bias(); }
  TORCH_ARG(Word, nonlinearity) = torch::kTanh;
};
using LSTMCellOptions = RNNCellOptionsBase;
using GRUCellOptions = RNNCellOptionsBase;

template <class Derived>
class RNNCellImplBase : public Cloneable<Derived> {
 public:
  RNNCellImplBase(const RNNCellOptionsBase& options_, int64_t gates) : options_base(options_), gates_(gates) { RNNCellImplBase::reset(); }
  void reset() override {
    const int64_t hidden = options_base.hidden_size(), rows = gates_ * hidden;
    TORCH_CHECK(hidden > 0, "hidden_size must be greater than zero");
    weight_ih = this->register_parameter("weight_ih", torch::empty({rows, options_base.input_size()}));
    weight_hh = this->register_parameter("weight_hh", torch::empty({rows, hidden}));
    bias_ih = this->register_parameter("bias_ih", options_base.bias() ? torch::empty(rows) : Tensor());
    bias_hh = this->register_parameter("bias_hh", options_base.bias() ? torch::empty(rows) : Tensor());
    reset_parameters();
  }
  void reset_parameters() {
    const double bound = 1 / std::sqrt(static_cast<double>(options_base.hidden_size()));
    for (Tensor& weight : this->parameters(false)) init::uniform_(weight, -bound, bound);
  }
  void pretty_print(std::ostream& out) const override {
    out << this->name() << "(" << options_base.input_size() << ", " << options_base.hidden_size();
    if (!options_base.bias()) out << ", bias=" << std::boolalpha << false;
    const std::string word = nonlinearity();
    if (!word.empty() && word != "kTanh") out << ", nonlinearity=" << word;
    out << ")";
  }
  RNNCellOptionsBase options_base;
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  virtual std::string nonlinearity() const { return ""; }
  // The input with a batch, of one if it has none.
  Tensor batched(const Tensor& input) const {
    TORCH_CHECK(input.dim() == 1 || input.dim() == 2, this->name(), ": Expected input to be 1D or 2D, got ", input.dim(), "D instead");
    return input.dim() == 2 ? input : input.unsqueeze(0);
  }
  Tensor state(const Tensor& given, const Tensor& input, bool single) const {
    if (given.defined()) return single ? given.unsqueeze(0) : given;
    return torch::zeros({input.size(0), options_base.hidden_size()}, input.options());
  }

 private:
  int64_t gates_;
};
template <class Derived>
class RNNCellBase : public RNNCellImplBase<Derived> {
 public:
  RNNCellBase(int64_t input_size, int64_t hidden_size) : RNNCellBase(RNNCellOptions(input_size, hidden_size)) {}
  explicit RNNCellBase(const RNNCellOptions& options_) : RNNCellImplBase<Derived>(options_, 1), options(options_) {}
  Tensor forward(const Tensor& input, const Tensor& hx = {}) {
    const bool single = input.dim() == 1, relu = options.nonlinearity().name == "relu";
    const Tensor x = this->batched(input);
    Tensor h = (relu ? &torch::rnn_relu_cell : &torch::rnn_tanh_cell)(x, this->state(hx, x, single), this->weight_ih, this->weight_hh, this->bias_ih, this->bias_hh);
    return single ? h.squeeze(0) : h;
  }
  RNNCellOptions options;

 protected:
  std::string nonlinearity() const override { return options.nonlinearity().shown(); }
};
class RNNCellImpl : public RNNCellBase<RNNCellImpl> {
 public:
  using RNNCellBase<RNNCellImpl>::RNNCellBase;
};
TORCH_MODULE(RNNCell);
template <class Derived>
class LSTMCellBase : public RNNCellImplBase<Derived> {
 public:
  LSTMCellBase(int64_t input_size, int64_t hidden_size) : LSTMCellBase(LSTMCellOptions(input_size, hidden_size)) {}
  explicit LSTMCellBase(const LSTMCellOptions& options_) : RNNCellImplBase<Derived>(options_, 4), options(options_) {}
  std::tuple<Tensor, Tensor> forward(const Tensor& input, optional<std::tuple<Tensor, Tensor>> hx_opt = {}) {
    const bool single = input.dim() == 1;
    const Tensor x = this->batched(input);
    const Tensor hx[] = {this->state(hx_opt ? std::get<0>(*hx_opt) : Tensor(), x, single), this->state(hx_opt ? std::get<1>(*hx_opt) : Tensor(), x, single)};
    auto [h, c] = torch::lstm_cell(x, TensorList(hx), this->weight_ih, this->weight_hh, this->bias_ih, this->bias_hh);
    if (single) return {h.squeeze(0), c.squeeze(0)};
    return {h, c};
  }
  LSTMCellOptions options;
};
class LSTMCellImpl : public LSTMCellBase<LSTMCellImpl> {
 public:
  using LSTMCellBase<LSTMCellImpl>::LSTMCellBase;
};
TORCH_MODULE(LSTMCell);
template <class Derived>
class GRUCellBase : public RNNCellImplBase<Derived> {
 public:
  GRUCellBase(int64_t input_size, int64_t hidden_size) : GRUCellBase(GRUCellOptions(input_size, hidden_size)) {}
  explicit GRUCellBase(const GRUCellOptions& options_) : RNNCellImplBase<Derived>(options_, 3), options(options_) {}
  Tensor forward(const Tensor& input, const Tensor& hx = {}) {
    const bool single = input.dim() == 1;
    const Tensor x = this->batched(input);
    Tensor h = torch::gru_cell(x, this->state(hx, x, single), this->weight_ih, this->weight_hh, this->bias_ih, this->bias_hh);
    return single ? h.squeeze(0) : h;
  }
  GRUCellOptions options;
};
class GRUCellImpl : public GRUCellBase<GRUCellImpl> {
 public:
  using GRUCellBase<GRUCellImpl>::GRUCellBase;
};
TORCH_MODULE(GRUCell);

namespace utils {
namespace rnn {

inline Tensor invert_permutation(const Tensor& permutation) {
  if (!permutation.defined()) return Tensor();
  return torch::empty_like(permutation).scatter_(0, permutation, torch::arange(permutation.numel(), permutation.options()));
}

// All first steps, then all second steps, and so on; a step has one row per sequence that is long enough.
class PackedSequence {
 public:
  explicit PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices = {}, Tensor unsorted_indices = {})
      : data_(std::move(data)), batch_sizes_(std::move(batch_sizes)), sorted_(std::move(sorted_indices)), unsorted_(std::move(unsorted_indices)) {
    if (!unsorted_.defined()) unsorted_ = invert_permutation(sorted_);
    TORCH_CHECK(batch_sizes_.is_cpu(), "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually.");
  }
  const Tensor& data() const { return data_; }
  const Tensor& batch_sizes() const { return batch_sizes_; }
  const Tensor& sorted_indices() const { return sorted_; }
  const Tensor& unsorted_indices() const { return unsorted_; }
  PackedSequence to(const TensorOptions& options) const {
    Tensor moved = data_.to(options);
    auto place = [&](const Tensor& indices) { return indices.defined() ? indices.to(moved.device()) : indices; };
    return PackedSequence(moved, batch_sizes_, place(sorted_), place(unsorted_));
  }
  PackedSequence cuda() const { return to(TensorOptions(Device(kCUDA, 0))); }
  PackedSequence cpu() const { return to(TensorOptions(kCPU)); }
  bool is_cuda() const { return data_.is_cuda(); }

 private:
  Tensor data_, batch_sizes_, sorted_, unsorted_;
};

namespace detail {
// Rows of a padded tensor [length, batch], flattened, in the order of packed data.
inline Tensor places(const Tensor& batch_sizes, int64_t width, Device device) {
  std::vector<int64_t> rows;
  const int64_t* sizes = batch_sizes.data_ptr<int64_t>();
  for (int64_t step = 0; step < batch_sizes.numel(); ++step)
    for (int64_t i = 0; i < sizes[step]; ++i) rows.push_back(step * width + i);
  return torch::tensor(rows, kLong).to(device);
}
inline std::vector<int64_t> joined(std::vector<int64_t> front, IntArrayRef back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}
}  // namespace detail

inline PackedSequence pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first = false, bool enforce_sorted = true) {
  TORCH_CHECK(lengths.is_cpu() && lengths.dim() == 1, "'lengths' argument should be a 1D CPU int64 tensor");
  lengths = lengths.to(kLong).contiguous();
  Tensor sorted;
  if (!enforce_sorted) {
    std::tie(lengths, sorted) = torch::sort(lengths, -1, true);
    sorted = sorted.to(input.device());
    input = input.index_select(batch_first ? 0 : 1, sorted);
  }
  const Tensor steps = batch_first ? input.transpose(0, 1) : input;
  const int64_t count = lengths.numel();
  TORCH_CHECK(count == steps.size(1), "Expected `len(lengths)` to be equal to batch_size, but got ", count, " (batch_size=", steps.size(1), ")");
  TORCH_CHECK(count > 0, "Cannot pack empty tensors.");
  const int64_t* sizes = lengths.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    TORCH_CHECK(sizes[i] > 0, "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0");
    TORCH_CHECK(i == 0 || sizes[i] <= sizes[i - 1], "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability.");
  }
  TORCH_CHECK(sizes[0] <= steps.size(0), "Expected lengths of at most ", steps.size(0), ", the padded length, got ", sizes[0]);
  std::vector<int64_t> batches;
  for (int64_t step = 0, active = count; step < sizes[0]; ++step) {
    while (active > 0 && sizes[active - 1] <= step) --active;
    batches.push_back(active);
  }
  const Tensor batch_sizes = torch::tensor(batches, kLong);
  const Tensor rows = steps.reshape(detail::joined({steps.size(0) * steps.size(1)}, steps.sizes().slice(2)));
  return PackedSequence(rows.index_select(0, detail::places(batch_sizes, count, input.device())), batch_sizes, sorted, Tensor());
}

inline std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, bool batch_first = false, double padding_value = 0.0,
                                                      optional<int64_t> total_length = nullopt) {
  const Tensor sizes = sequence.batch_sizes().contiguous();
  const int64_t steps = sizes.numel(), width = sizes.data_ptr<int64_t>()[0], length = total_length.value_or(steps);
  TORCH_CHECK(length >= steps, "Expected total_length to be at least the length of the longest sequence in input, but got total_length=", length,
              " and max sequence length being ", steps);
  const Tensor& data = sequence.data();
  Tensor out = torch::full(detail::joined({length * width}, data.sizes().slice(1)), padding_value, data.options());
  out = out.index_copy(0, detail::places(sizes, width, data.device()), data).reshape(detail::joined({length, width}, data.sizes().slice(1)));
  std::vector<int64_t> lengths(static_cast<size_t>(width), 0);
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t i = 0; i < sizes.data_ptr<int64_t>()[step]; ++i) ++lengths[static_cast<size_t>(i)];
  Tensor counts = torch::tensor(lengths, kLong);
  if (batch_first) out = out.transpose(0, 1);
  if (const Tensor& order = sequence.unsorted_indices(); order.defined())
    return {out.index_select(batch_first ? 0 : 1, order), counts.index_select(0, order.cpu())};
  return {out, counts};
}

inline Tensor pad_sequence(ArrayRef<Tensor> sequences, bool batch_first = false, double padding_value = 0, string_view padding_side = "right") {
  TORCH_CHECK(sequences.size() > 0, "received an empty list of sequences");
  TORCH_CHECK(padding_side == "left" || padding_side == "right", "Expected padding_side to be one of left or right, but got ", std::string(padding_side), ".");
  int64_t length = 0;
  for (const Tensor& one : sequences) length = std::max(length, one.size(0));
  std::vector<Tensor> padded;
  for (const Tensor& one : sequences) {
    const Tensor rest = torch::full(detail::joined({length - one.size(0)}, one.sizes().slice(1)), padding_value, one.options());
    padded.push_back(padding_side == "right" ? torch::cat({one, rest}) : torch::cat({rest, one}));
  }
  return torch::stack(padded, batch_first ? 0 : 1);
}
inline PackedSequence pack_sequence(ArrayRef<Tensor> sequences, bool enforce_sorted = true) {
  std::vector<int64_t> lengths;
  for (const Tensor& one : sequences) lengths.push_back(one.size(0));
  return pack_padded_sequence(pad_sequence(sequences), torch::tensor(lengths, kLong), false, enforce_sorted);
}

}  // namespace rnn
}  // namespace utils
}  // namespace nn
}  // namespace torch
