// Losses of margins, labels, sequences and counts: options, functions, modules.
#pragma once

#include <torch/nn/layers.h>

namespace torch {
namespace nn {

struct HingeEmbeddingLossOptions { TORCH_ARG(double, margin) = 1.0; TORCH_ARG(LossReduction, reduction) = torch::kMean; };
struct MultiMarginLossOptions {
  TORCH_ARG(int64_t, p) = 1;
  TORCH_ARG(double, margin) = 1.0;
  TORCH_ARG(Tensor, weight) = Tensor();
  TORCH_ARG(LossReduction, reduction) = torch::kMean;
};
struct CosineEmbeddingLossOptions { TORCH_ARG(double, margin) = 0.0; TORCH_ARG(LossReduction, reduction) = torch::kMean; };
struct MultiLabelMarginLossOptions { RL_REDUCED(MultiLabelMarginLossOptions) TORCH_ARG(LossReduction, reduction); };
struct SoftMarginLossOptions { RL_REDUCED(SoftMarginLossOptions) TORCH_ARG(LossReduction, reduction); };
struct MultiLabelSoftMarginLossOptions { TORCH_ARG(Tensor, weight) = Tensor(); TORCH_ARG(LossReduction, reduction) = torch::kMean; };
struct TripletMarginLossOptions {
  TORCH_ARG(double, margin) = 1.0;
  TORCH_ARG(double, p) = 2.0;
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(bool, swap) = false;
  TORCH_ARG(LossReduction, reduction) = torch::kMean;
};
struct TripletMarginWithDistanceLossOptions {
  using distance_function_t = std::function<Tensor(const Tensor&, const Tensor&)>;
  TORCH_ARG(optional<distance_function_t>, distance_function) = nullopt;
  TORCH_ARG(double, margin) = 1.0;
  TORCH_ARG(bool, swap) = false;
  TORCH_ARG(LossReduction, reduction) = torch::kMean;
};
struct CTCLossOptions { TORCH_ARG(int64_t, blank) = 0; TORCH_ARG(LossReduction, reduction) = torch::kMean; TORCH_ARG(bool, zero_infinity) = false; };
struct PoissonNLLLossOptions {
  TORCH_ARG(bool, log_input) = true;
  TORCH_ARG(bool, full) = false;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(LossReduction, reduction) = torch::kMean;
};
struct MarginRankingLossOptions { TORCH_ARG(double, margin) = 0.0; TORCH_ARG(LossReduction, reduction) = torch::kMean; };

#undef RL_REDUCED

namespace functional {

using HingeEmbeddingLossFuncOptions = HingeEmbeddingLossOptions;
using MultiMarginLossFuncOptions = MultiMarginLossOptions;
using CosineEmbeddingLossFuncOptions = CosineEmbeddingLossOptions;
using MultilabelMarginLossFuncOptions = MultiLabelMarginLossOptions;
using SoftMarginLossFuncOptions = SoftMarginLossOptions;
using MultilabelSoftMarginLossFuncOptions = MultiLabelSoftMarginLossOptions;
using TripletMarginLossFuncOptions = TripletMarginLossOptions;
using TripletMarginWithDistanceLossFuncOptions = TripletMarginWithDistanceLossOptions;
using CTCLossFuncOptions = CTCLossOptions;
using PoissonNLLLossFuncOptions = PoissonNLLLossOptions;
using MarginRankingLossFuncOptions = MarginRankingLossOptions;

inline Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, const HingeEmbeddingLossOptions& o = {}) {
  return torch::hinge_embedding_loss(input, target, o.margin(), o.reduction());
}
inline Tensor multi_margin_loss(const Tensor& input, const Tensor& target, const MultiMarginLossOptions& o = {}) {
  return torch::multi_margin_loss(input, target, o.p(), o.margin(), o.weight(), o.reduction());
}
inline Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, const CosineEmbeddingLossOptions& o = {}) {
  return torch::cosine_embedding_loss(input1, input2, target, o.margin(), o.reduction());
}
inline Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, const MultiLabelMarginLossOptions& o = {}) {
  return torch::multilabel_margin_loss(input, target, o.reduction());
}
inline Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const SoftMarginLossOptions& o = {}) {
  return torch::soft_margin_loss(input, target, o.reduction());
}
inline Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const MultiLabelSoftMarginLossOptions& o = {}) {
  return raw::multilabel_soft_margin_loss(input, target, o.weight(), nullopt, nullopt, torch::detail::reduction_name(o.reduction()));
}
inline Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, const TripletMarginLossOptions& o = {}) {
  return torch::triplet_margin_loss(anchor, positive, negative, o.margin(), o.p(), o.eps(), o.swap(), o.reduction());
}
inline Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                                const TripletMarginWithDistanceLossOptions& o = {}) {
  auto distance = [&](const Tensor& a, const Tensor& b) { return o.distance_function() ? (*o.distance_function())(a, b) : raw::pairwise_distance(a, b); };
  Tensor near = distance(anchor, positive), far = distance(anchor, negative);
  if (o.swap()) far = torch::min(far, distance(positive, negative));
  Tensor loss = (near - far + o.margin()).clamp_min(0);
  return o.reduction() == Reduction::Mean ? loss.mean() : o.reduction() == Reduction::Sum ? loss.sum() : loss;
}
inline Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths, const CTCLossOptions& o = {}) {
  return torch::ctc_loss(log_probs, targets, input_lengths, target_lengths, o.blank(), o.reduction().value, o.zero_infinity());
}
inline Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNLLLossOptions& o = {}) {
  return torch::poisson_nll_loss(input, target, o.log_input(), o.full(), o.eps(), o.reduction());
}
inline Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, const MarginRankingLossOptions& o = {}) {
  return torch::margin_ranking_loss(input1, input2, target, o.margin(), o.reduction());
}

}  // namespace functional

// A loss: its inputs, the function, what its text form shows.
#define RL_LOSS(Name, function, parameters, arguments, ...)                                            \
  class Name##Impl : public Cloneable<Name##Impl> {                                                    \
   public:                                                                                             \
    explicit Name##Impl(Name##Options options_ = {}) : options(std::move(options_)) {}                 \
    void reset() override {}                                                                           \
    void pretty_print(std::ostream& out) const override { out << "torch::nn::" #Name "(" __VA_ARGS__ << ")"; } \
    Tensor forward parameters { return functional::function arguments; }                               \
    Name##Options options;                                                                             \
  };                                                                                                   \
  TORCH_MODULE(Name)
#define RL_PAIR (const Tensor& input, const Tensor& target)
#define RL_THREE (const Tensor& input1, const Tensor& input2, const Tensor& target)
#define RL_TRIPLET (const Tensor& anchor, const Tensor& positive, const Tensor& negative)
RL_LOSS(HingeEmbeddingLoss, hinge_embedding_loss, RL_PAIR, (input, target, options), << "margin=" << options.margin());
RL_LOSS(MultiMarginLoss, multi_margin_loss, RL_PAIR, (input, target, options), << "p=" << options.p() << ", margin=" << options.margin());
RL_LOSS(CosineEmbeddingLoss, cosine_embedding_loss, RL_THREE, (input1, input2, target, options), << "margin=" << options.margin());
RL_LOSS(MultiLabelMarginLoss, multilabel_margin_loss, RL_PAIR, (input, target, options), << "");
RL_LOSS(SoftMarginLoss, soft_margin_loss, RL_PAIR, (input, target, options), << "");
RL_LOSS(MultiLabelSoftMarginLoss, multilabel_soft_margin_loss, RL_PAIR, (input, target, options), << "");
RL_LOSS(TripletMarginLoss, triplet_margin_loss, RL_TRIPLET, (anchor, positive, negative, options),
        << "margin=" << options.margin() << ", p=" << options.p() << ", eps=" << options.eps() << std::boolalpha << ", swap=" << options.swap());
RL_LOSS(TripletMarginWithDistanceLoss, triplet_margin_with_distance_loss, RL_TRIPLET, (anchor, positive, negative, options),
        << "margin=" << options.margin() << std::boolalpha << ", swap=" << options.swap());
RL_LOSS(CTCLoss, ctc_loss, (const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths),
        (log_probs, targets, input_lengths, target_lengths, options), << "");
RL_LOSS(PoissonNLLLoss, poisson_nll_loss, RL_PAIR, (input, target, options), << "");
RL_LOSS(MarginRankingLoss, margin_ranking_loss, RL_THREE, (input1, input2, target, options), << "margin=" << options.margin());
#undef RL_PAIR
#undef RL_THREE
#undef RL_TRIPLET
#undef RL_LOSS

}  // namespace nn
}  // namespace torch
