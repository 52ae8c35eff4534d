// Bags of embeddings, distances, the adaptive softmax: options, functions, modules.
#pragma once

#include <torch/nn/layers.h>

namespace torch {
namespace nn {

struct EmbeddingBagOptions {
  EmbeddingBagOptions(int64_t num_embeddings, int64_t embedding_dim) : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  TORCH_ARG(int64_t, num_embeddings);
  TORCH_ARG(int64_t, embedding_dim);
  TORCH_ARG(optional<double>, max_norm) = nullopt;
  TORCH_ARG(double, norm_type) = 2.0;
  TORCH_ARG(bool, scale_grad_by_freq) = false;
  TORCH_ARG(Word, mode) = torch::kMean;
  TORCH_ARG(bool, sparse) = false;
  TORCH_ARG(Tensor, _weight) = Tensor();
  TORCH_ARG(bool, include_last_offset) = false;
  TORCH_ARG(optional<int64_t>, padding_idx) = nullopt;
};
struct EmbeddingBagFromPretrainedOptions {
  TORCH_ARG(bool, freeze) = true;
  TORCH_ARG(optional<double>, max_norm) = nullopt;
  TORCH_ARG(double, norm_type) = 2.0;
  TORCH_ARG(bool, scale_grad_by_freq) = false;
  TORCH_ARG(Word, mode) = torch::kMean;
  TORCH_ARG(bool, sparse) = false;
  TORCH_ARG(bool, include_last_offset) = false;
  TORCH_ARG(optional<int64_t>, padding_idx) = nullopt;
};
struct CosineSimilarityOptions { TORCH_ARG(int64_t, dim) = 1; TORCH_ARG(double, eps) = 1e-8; };
struct PairwiseDistanceOptions { TORCH_ARG(double, p) = 2.0; TORCH_ARG(double, eps) = 1e-6; TORCH_ARG(bool, keepdim) = false; };
struct AdaptiveLogSoftmaxWithLossOptions {
  AdaptiveLogSoftmaxWithLossOptions(int64_t in_features, int64_t n_classes, std::vector<int64_t> cutoffs)
      : in_features_(in_features), n_classes_(n_classes), cutoffs_(std::move(cutoffs)) {}
  TORCH_ARG(int64_t, in_features);
  TORCH_ARG(int64_t, n_classes);
  TORCH_ARG(std::vector<int64_t>, cutoffs);
  TORCH_ARG(double, div_value) = 4.0;
  TORCH_ARG(bool, head_bias) = false;
};

namespace functional {
struct EmbeddingBagFuncOptions {
  TORCH_ARG(Tensor, offsets) = Tensor();
  TORCH_ARG(optional<double>, max_norm) = nullopt;
  TORCH_ARG(double, norm_type) = 2.0;
  TORCH_ARG(bool, scale_grad_by_freq) = false;
  TORCH_ARG(Word, mode) = torch::kMean;
  TORCH_ARG(bool, sparse) = false;
  TORCH_ARG(Tensor, per_sample_weights) = Tensor();
  TORCH_ARG(bool, include_last_offset) = false;
  TORCH_ARG(optional<int64_t>, padding_idx) = nullopt;
};
inline Tensor embedding_bag(const Tensor& input_, const Tensor& weight, const EmbeddingBagFuncOptions& o = {}) {
  Tensor input = input_, offsets = o.offsets(), weights = o.per_sample_weights();
  TORCH_CHECK(!weights.defined() || input.sizes() == weights.sizes(), "embedding_bag: If per_sample_weights (", weights.sizes(),
              ") is not null, then it must have the same shape as the input (", input.sizes(), ")");
  if (input.dim() == 2) {
    TORCH_CHECK(!offsets.defined(), "If input is 2D, then offsets has to be null, as input is treated is a mini-batch of fixed length sequences.");
    offsets = torch::arange(0, input.numel(), input.size(1), TensorOptions(kLong).device(input.device()));
    input = input.reshape({-1});
    if (weights.defined()) weights = weights.reshape({-1});
  } else {
    TORCH_CHECK(input.dim() == 1, "input has to be 1D or 2D Tensor, but got Tensor of dimension ", input.dim());
    TORCH_CHECK(offsets.defined() && offsets.dim() == 1, "offsets has to be a 1D Tensor");
  }
  if (o.max_norm()) raw::embedding(input, weight.detach(), nullopt, o.max_norm(), o.norm_type());
  const std::string& mode = o.mode().name;
  TORCH_CHECK(mode == "sum" || mode == "mean" || mode == "max", "mode has to be one of sum, mean or max");
  return std::get<0>(torch::embedding_bag(weight, input, offsets, o.scale_grad_by_freq(), mode == "sum" ? 0 : mode == "mean" ? 1 : 2, o.sparse(),
                                          weights, o.include_last_offset(), o.padding_idx()));
}
}  // namespace functional

class EmbeddingBagImpl : public Cloneable<EmbeddingBagImpl> {
 public:
  EmbeddingBagImpl(int64_t num, int64_t dim) : EmbeddingBagImpl(EmbeddingBagOptions(num, dim)) {}
  explicit EmbeddingBagImpl(EmbeddingBagOptions options_) : options(std::move(options_)) { EmbeddingBagImpl::reset(); }
  void reset() override {
    Tensor given = options._weight();
    weight = register_parameter("weight", given.defined() ? given : torch::empty({options.num_embeddings(), options.embedding_dim()}));
    if (!given.defined()) reset_parameters();
  }
  void reset_parameters() {
    init::normal_(weight);
    if (options.padding_idx()) {
      NoGradGuard no_grad;
      weight[*options.padding_idx()].fill_(0);
    }
  }
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::EmbeddingBag(num_embeddings=" << options.num_embeddings() << ", embedding_dim=" << options.embedding_dim();
    if (options.max_norm()) out << ", max_norm=" << *options.max_norm();
    if (options.norm_type() != 2) out << ", norm_type=" << options.norm_type();
    if (options.scale_grad_by_freq()) out << ", scale_grad_by_freq=" << std::boolalpha << options.scale_grad_by_freq();
    if (options.sparse()) out << ", sparse=" << std::boolalpha << options.sparse();
    if (options.mode().name != "mean") out << ", mode=" << options.mode().shown();
    if (options.include_last_offset()) out << ", include_last_offset=" << std::boolalpha << options.include_last_offset();
    if (options.padding_idx()) out << ", padding_idx=" << *options.padding_idx();
    out << ")";
  }
  Tensor forward(const Tensor& input, const Tensor& offsets = {}, const Tensor& per_sample_weights = {}) {
    functional::EmbeddingBagFuncOptions o;
    o.offsets(offsets).max_norm(options.max_norm()).norm_type(options.norm_type()).scale_grad_by_freq(options.scale_grad_by_freq()).mode(options.mode());
    o.sparse(options.sparse()).per_sample_weights(per_sample_weights).include_last_offset(options.include_last_offset()).padding_idx(options.padding_idx());
    return functional::embedding_bag(input, weight, o);
  }
  EmbeddingBagOptions options;
  Tensor weight;
};
class EmbeddingBag : public ModuleHolder<EmbeddingBagImpl> {
 public:
  using ModuleHolder<EmbeddingBagImpl>::ModuleHolder;
  using Impl = EmbeddingBagImpl;
  template <class Options = EmbeddingBagFromPretrainedOptions>
  static EmbeddingBag from_pretrained(const Tensor& weights, const Options& o = {}) {
    TORCH_CHECK(weights.dim() == 2, "Embeddings parameter is expected to be 2-dimensional");
    EmbeddingBagOptions made(weights.size(0), weights.size(1));
    made._weight(weights).max_norm(o.max_norm()).norm_type(o.norm_type()).scale_grad_by_freq(o.scale_grad_by_freq()).mode(o.mode());
    made.sparse(o.sparse()).include_last_offset(o.include_last_offset()).padding_idx(o.padding_idx());
    EmbeddingBag bag(made);
    bag->weight.set_requires_grad(!o.freeze());
    return bag;
  }
};

class CosineSimilarityImpl : public Cloneable<CosineSimilarityImpl> {
 public:
  explicit CosineSimilarityImpl(const CosineSimilarityOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::CosineSimilarity(dim=" << options.dim() << ", eps=" << options.eps() << ")"; }
  Tensor forward(const Tensor& input1, const Tensor& input2) { return torch::cosine_similarity(input1, input2, options.dim(), options.eps()); }
  CosineSimilarityOptions options;
};
TORCH_MODULE(CosineSimilarity);
class PairwiseDistanceImpl : public Cloneable<PairwiseDistanceImpl> {
 public:
  explicit PairwiseDistanceImpl(const PairwiseDistanceOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override {
    out << std::boolalpha << "torch::nn::PairwiseDistance(p=" << options.p() << ", eps=" << options.eps() << ", keepdim=" << options.keepdim() << ")";
  }
  Tensor forward(const Tensor& input1, const Tensor& input2) {
    return torch::detail::raw::pairwise_distance(input1, input2, options.p(), options.eps(), options.keepdim());
  }
  PairwiseDistanceOptions options;
};
TORCH_MODULE(PairwiseDistance);

// The log probability of each target, and minus their mean.
struct ASMoutput {
  ASMoutput(Tensor output, double loss) : output(std::move(output)), loss(loss) {}
  Tensor output;
  double loss;
};
template <class Derived>
class AdaptiveLogSoftmaxWithLossImplBase : public Cloneable<Derived> {
 public:
  AdaptiveLogSoftmaxWithLossImplBase(int64_t in_features, int64_t n_classes, std::vector<int64_t> cutoffs)
      : AdaptiveLogSoftmaxWithLossImplBase(AdaptiveLogSoftmaxWithLossOptions(in_features, n_classes, std::move(cutoffs))) {}
  explicit AdaptiveLogSoftmaxWithLossImplBase(AdaptiveLogSoftmaxWithLossOptions options_) : options(std::move(options_)) { AdaptiveLogSoftmaxWithLossImplBase::reset(); }
  void reset() override {
    const auto& given = options.cutoffs();
    bool rising = !given.empty() && given.front() > 0 && given.back() <= options.n_classes() - 1;
    for (size_t i = 1; i < given.size(); ++i) rising = rising && given[i - 1] < given[i];
    TORCH_CHECK(rising, "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is between 1 and n_classes-1");
    TORCH_CHECK(options.div_value() != 0, "div_value should not be equal to 0");
    cutoffs = given;
    cutoffs.push_back(options.n_classes());
    shortlist_size = cutoffs[0];
    n_clusters = static_cast<int64_t>(cutoffs.size()) - 1;
    head_size = shortlist_size + n_clusters;
    head = this->register_module("head", Linear(LinearOptions(options.in_features(), head_size).bias(options.head_bias())));
    tail = this->register_module("tail", ModuleList());
    for (int64_t i = 0; i < n_clusters; ++i) {
      const auto at = static_cast<size_t>(i);
      const auto hidden = static_cast<int64_t>(static_cast<double>(options.in_features()) / std::pow(options.div_value(), i + 1));
      tail->push_back(Sequential(Linear(LinearOptions(options.in_features(), hidden).bias(false)),
                                 Linear(LinearOptions(hidden, cutoffs[at + 1] - cutoffs[at]).bias(false))));
    }
  }
  void reset_parameters() {
    head->reset_parameters();
    for (size_t i = 0; i < tail->size(); ++i)
      for (size_t j = 0; j < 2; ++j) cluster(i).template at<LinearImpl>(j).reset_parameters();
  }
  ASMoutput forward(const Tensor& input_, const Tensor& target_) {
    TORCH_CHECK(input_.dim() == 1 || input_.dim() == 2, "1D or 2D input tensor expected, got ", input_.dim(), "D");
    const bool batched = input_.dim() == 2;
    TORCH_CHECK(target_.dim() == (batched ? 1 : 0), batched ? "1D target tensor expected, got " : "0D target tensor expected, got ", target_.dim(), "D");
    const Tensor input = batched ? input_ : input_.unsqueeze(0), target = batched ? target_ : target_.unsqueeze(0);
    TORCH_CHECK(input.size(0) == target.size(0), "Input and target should have the same size in the batch dimension.");
    const int64_t count = target.size(0);
    TORCH_CHECK(count == 0 || (target.min().template item<int64_t>() >= 0 && target.max().template item<int64_t>() < options.n_classes()),
                "Target values should be in [0, n_classes - 1], but values in range [", target.min().template item<int64_t>(), ", ",
                target.max().template item<int64_t>(), "] were found. ");
    Tensor head_target = target, output = torch::zeros({count}, input.options());
    for (int64_t i = 0; i < n_clusters; ++i) {
      const auto at = static_cast<size_t>(i);
      const Tensor inside = (target >= cutoffs[at]).logical_and(target < cutoffs[at + 1]);
      const Tensor rows = inside.nonzero().squeeze(-1);
      if (rows.numel() == 0) continue;
      head_target = torch::where(inside, Scalar(shortlist_size + i), head_target);
      const Tensor scores = torch::log_softmax(cluster(at).template forward<Tensor>(input.index_select(0, rows)), 1);
      const Tensor own = (target.index_select(0, rows) - cutoffs[at]).unsqueeze(1);
      output = output.index_add(0, rows, scores.gather(1, own).squeeze(1));
    }
    output = output + torch::log_softmax(head(input), 1).gather(1, head_target.unsqueeze(1)).squeeze(1);
    const double loss = -output.mean().template item<double>();
    return ASMoutput(batched ? output : output.squeeze(0), loss);
  }
  Tensor _get_full_log_prob(const Tensor& input, const Tensor& head_output) {
    const Tensor heads = torch::log_softmax(head_output, 1);
    std::vector<Tensor> parts{heads.narrow(1, 0, shortlist_size)};
    for (int64_t i = 0; i < n_clusters; ++i)
      parts.push_back(torch::log_softmax(cluster(static_cast<size_t>(i)).template forward<Tensor>(input), 1) + heads.narrow(1, shortlist_size + i, 1));
    return torch::cat(parts, 1);
  }
  Tensor log_prob(const Tensor& input) { return _get_full_log_prob(input, head(input)); }
  Tensor predict(const Tensor& input) { return log_prob(input).argmax(1); }
  void pretty_print(std::ostream& out) const override { out << "torch::nn::AdaptiveLogSoftmaxWithLoss"; }

  AdaptiveLogSoftmaxWithLossOptions options;
  std::vector<int64_t> cutoffs;
  int64_t shortlist_size = 0, n_clusters = 0, head_size = 0;
  Linear head = nullptr;
  ModuleList tail = nullptr;

 private:
  SequentialImpl& cluster(size_t at) { return tail->template at<SequentialImpl>(at); }
};
class AdaptiveLogSoftmaxWithLossImpl : public AdaptiveLogSoftmaxWithLossImplBase<AdaptiveLogSoftmaxWithLossImpl> {
 public:
  using AdaptiveLogSoftmaxWithLossImplBase<AdaptiveLogSoftmaxWithLossImpl>::AdaptiveLogSoftmaxWithLossImplBase;
};
TORCH_MODULE(AdaptiveLogSoftmaxWithLoss);

}  // namespace nn
}  // namespace torch
