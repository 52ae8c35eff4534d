// Recurrent networks: RNN, LSTM, GRU, for tensors and for packed sequences.
#pragma once

#include <torch/nn/sequence.h>

namespace torch {
namespace nn {

// Weights by layer and direction, with PyTorch's names.
template <class Derived>
class RNNImplBase : public Cloneable<Derived> {
 public:
  RNNImplBase(const RNNOptionsBase& options_, int64_t gates) : options_base(options_), gates_(gates) { RNNImplBase::reset(); }
  void reset() override {
    names_.clear();
    int64_t hidden = options_base.hidden_size(), kept = options_base.proj_size() > 0 ? options_base.proj_size() : hidden;
    int64_t directions = options_base.bidirectional() ? 2 : 1;
    for (int64_t layer = 0; layer < options_base.num_layers(); ++layer)
      for (int64_t direction = 0; direction < directions; ++direction) {
        int64_t inputs = layer == 0 ? options_base.input_size() : kept * directions;
        std::string suffix = str("_l", layer, direction ? "_reverse" : "");
        add("weight_ih" + suffix, {gates_ * hidden, inputs});
        add("weight_hh" + suffix, {gates_ * hidden, kept});
        if (options_base.bias()) {
          add("bias_ih" + suffix, {gates_ * hidden});
          add("bias_hh" + suffix, {gates_ * hidden});
        }
        if (options_base.proj_size() > 0) add("weight_hr" + suffix, {options_base.proj_size(), hidden});
      }
    double bound = 1 / std::sqrt(static_cast<double>(hidden));
    for (Tensor& weight : this->parameters(false)) init::uniform_(weight, -bound, bound);
  }
  std::vector<Tensor> all_weights() const {
    std::vector<Tensor> all;
    for (const std::string& name : names_) all.push_back(this->parameters_[name]);
    return all;
  }
  void flatten_parameters() {}
  void pretty_print(std::ostream& out) const override {
    std::string name = this->name();
    out << name << "(input_size=" << options_base.input_size() << ", hidden_size=" << options_base.hidden_size() << ", num_layers="
        << options_base.num_layers() << ", bias=" << std::boolalpha << options_base.bias() << ", batch_first=" << options_base.batch_first()
        << ", dropout=" << options_base.dropout() << ", bidirectional=" << options_base.bidirectional() << ")";
  }
  RNNOptionsBase options_base;

 protected:
  Tensor zeros(const Tensor& input, int64_t size) const {
    int64_t batch = input.size(options_base.batch_first() && input.dim() == 3 ? 0 : 1);
    int64_t layers = options_base.num_layers() * (options_base.bidirectional() ? 2 : 1);
    return input.dim() == 2 ? torch::zeros({layers, size}, input.options()) : torch::zeros({layers, batch, size}, input.options());
  }
  int64_t kept() const { return options_base.proj_size() > 0 ? options_base.proj_size() : options_base.hidden_size(); }
  // The network on packed data. States are in the order of the sequences before they were sorted.
  std::vector<Tensor> packed(const std::string& row, const utils::rnn::PackedSequence& input, std::vector<Tensor> hx, bool list) const {
    const int64_t batch = input.batch_sizes().data_ptr<int64_t>()[0], layers = options_base.num_layers() * (options_base.bidirectional() ? 2 : 1);
    for (size_t i = 0; i < hx.size(); ++i) {
      if (!hx[i].defined()) hx[i] = torch::zeros({layers, batch, i == 0 ? kept() : options_base.hidden_size()}, input.data().options());
      else if (input.sorted_indices().defined()) hx[i] = hx[i].index_select(1, input.sorted_indices());
    }
    const std::vector<Tensor> weights = all_weights();
    using namespace torch::detail;
    const Op op((row + "(Tensor data, Tensor batch_sizes, Tensor" + (list ? "[]" : "") +
                 " hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional)").c_str());
    Handles state((TensorList(hx))), params((TensorList(weights)));
    rl_value a[] = {v(input.data()), v(input.batch_sizes()), list ? v(state) : v(hx[0]), v(params), v(options_base.bias()), v(options_base.num_layers()),
                    v(options_base.dropout()), v(this->is_training()), v(options_base.bidirectional())};
    std::vector<Tensor> found = many(op, a);
    if (input.unsorted_indices().defined())
      for (size_t i = 1; i < found.size(); ++i) found[i] = found[i].index_select(1, input.unsorted_indices());
    return found;
  }
  static utils::rnn::PackedSequence repacked(const Tensor& data, const utils::rnn::PackedSequence& like) {
    return utils::rnn::PackedSequence(data, like.batch_sizes(), like.sorted_indices(), like.unsorted_indices());
  }
  // An input without a batch gets one of size one.
  static Tensor batched(const Tensor& t, int64_t dim, bool single) { return single && t.defined() ? t.unsqueeze(dim) : t; }

 private:
  void add(const std::string& name, std::vector<int64_t> sizes) {
    this->register_parameter(name, torch::empty(sizes));
    names_.push_back(name);
  }
  int64_t gates_;
  std::vector<std::string> names_;
};

template <class Derived>
class LSTMNetwork : public RNNImplBase<Derived> {
 public:
  LSTMNetwork(int64_t input_size, int64_t hidden_size) : LSTMNetwork(LSTMOptions(input_size, hidden_size)) {}
  explicit LSTMNetwork(const LSTMOptions& options_) : RNNImplBase<Derived>(options_, 4), options(options_) {}
  std::tuple<Tensor, std::tuple<Tensor, Tensor>> forward(const Tensor& input, optional<std::tuple<Tensor, Tensor>> hx_opt = {}) {
    bool single = input.dim() == 2;
    int64_t at = options.batch_first() ? 0 : 1;
    Tensor x = this->batched(input, at, single);
    std::vector<Tensor> hx;
    if (hx_opt) hx = {this->batched(std::get<0>(*hx_opt), 1, single), this->batched(std::get<1>(*hx_opt), 1, single)};
    else hx = {this->zeros(x, this->kept()), this->zeros(x, options.hidden_size())};
    auto [out, h, c] = torch::lstm(x, hx, this->all_weights(), options.bias(), options.num_layers(), options.dropout(), this->is_training(),
                                   options.bidirectional(), options.batch_first());
    if (single) return {out.squeeze(at), {h.squeeze(1), c.squeeze(1)}};
    return {out, {h, c}};
  }
  std::tuple<utils::rnn::PackedSequence, std::tuple<Tensor, Tensor>> forward_with_packed_input(const utils::rnn::PackedSequence& input,
                                                                                               optional<std::tuple<Tensor, Tensor>> hx_opt = {}) {
    std::vector<Tensor> hx(2);
    if (hx_opt) hx = {std::get<0>(*hx_opt), std::get<1>(*hx_opt)};
    auto found = this->packed("lstm", input, std::move(hx), true);
    return {this->repacked(found.at(0), input), {found.at(1), found.at(2)}};
  }
  LSTMOptions options;
};
class LSTMImpl : public LSTMNetwork<LSTMImpl> {
 public:
  using LSTMNetwork<LSTMImpl>::LSTMNetwork;
};
TORCH_MODULE(LSTM);

#define RL_RECURRENT(Name, gates, call, row)                                                                                            \
  template <class Derived>                                                                                                              \
  class Name##Network : public RNNImplBase<Derived> {                                                                                  \
   public:                                                                                                                              \
    Name##Network(int64_t input_size, int64_t hidden_size) : Name##Network(Name##Options(input_size, hidden_size)) {}                 \
    explicit Name##Network(const Name##Options& options_) : RNNImplBase<Derived>(options_, gates), options(options_) {                 \
      TORCH_CHECK(options.proj_size() == 0, #Name ": proj_size argument is only supported for LSTM");                                   \
    }                                                                                                                                   \
    std::tuple<Tensor, Tensor> forward(const Tensor& input, Tensor hx = {}) {                                                           \
      bool single = input.dim() == 2;                                                                                                   \
      int64_t at = options.batch_first() ? 0 : 1;                                                                                       \
      Tensor x = this->batched(input, at, single);                                                                                      \
      Tensor h = hx.defined() ? this->batched(hx, 1, single) : this->zeros(x, options.hidden_size());                                   \
      auto [out, last] = call(x, h, this->all_weights(), options.bias(), options.num_layers(), options.dropout(), this->is_training(),  \
                              options.bidirectional(), options.batch_first());                                                          \
      if (single) return {out.squeeze(at), last.squeeze(1)};                                                                            \
      return {out, last};                                                                                                               \
    }                                                                                                                                   \
    std::tuple<utils::rnn::PackedSequence, Tensor> forward_with_packed_input(const utils::rnn::PackedSequence& input, Tensor hx = {}) { \
      auto found = this->packed(row, input, {std::move(hx)}, false);                                                                    \
      return {this->repacked(found.at(0), input), found.at(1)};                                                                         \
    }                                                                                                                                   \
    Name##Options options;                                                                                                              \
  };                                                                                                                                    \
  class Name##Impl : public Name##Network<Name##Impl> {                                                                                \
   public:                                                                                                                              \
    using Name##Network<Name##Impl>::Name##Network;                                                                                   \
  };                                                                                                                                    \
  TORCH_MODULE(Name)
RL_RECURRENT(GRU, 3, torch::gru, "gru");
RL_RECURRENT(RNN, 1, (options.nonlinearity().name == "relu" ? &torch::rnn_relu : &torch::rnn_tanh), options.nonlinearity().name == "relu" ? "rnn_relu" : "rnn_tanh");
#undef RL_RECURRENT

}  // namespace nn
}  // namespace torch
