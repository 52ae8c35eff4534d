// Multi-head attention and transformers: options, functions, modules.
#pragma once

#include <torch/nn/layers.h>

namespace torch {
namespace nn {

struct MultiheadAttentionOptions {
  MultiheadAttentionOptions(int64_t embed_dim, int64_t num_heads) : embed_dim_(embed_dim), num_heads_(num_heads), kdim_(embed_dim), vdim_(embed_dim) {}
  TORCH_ARG(int64_t, embed_dim);
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(double, dropout) = 0.0;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(bool, add_bias_kv) = false;
  TORCH_ARG(bool, add_zero_attn) = false;
  TORCH_ARG(int64_t, kdim);
  TORCH_ARG(int64_t, vdim);
};

namespace functional {

struct MultiheadAttentionForwardFuncOptions {
  MultiheadAttentionForwardFuncOptions(int64_t embed_dim, int64_t heads, Tensor weight, Tensor bias, Tensor key_bias, Tensor value_bias, bool zero_attn,
                                       double dropout, Tensor out_weight, Tensor out_bias)
      : embed_dim_to_check_(embed_dim), num_heads_(heads), in_proj_weight_(std::move(weight)), in_proj_bias_(std::move(bias)), bias_k_(std::move(key_bias)),
        bias_v_(std::move(value_bias)), add_zero_attn_(zero_attn), dropout_p_(dropout), out_proj_weight_(std::move(out_weight)),
        out_proj_bias_(std::move(out_bias)) {}
  TORCH_ARG(int64_t, embed_dim_to_check);
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(Tensor, in_proj_weight);
  TORCH_ARG(Tensor, in_proj_bias);
  TORCH_ARG(Tensor, bias_k);
  TORCH_ARG(Tensor, bias_v);
  TORCH_ARG(bool, add_zero_attn);
  TORCH_ARG(double, dropout_p);
  TORCH_ARG(Tensor, out_proj_weight);
  TORCH_ARG(Tensor, out_proj_bias);
  TORCH_ARG(bool, training) = true;
  TORCH_ARG(Tensor, key_padding_mask) = Tensor();
  TORCH_ARG(bool, need_weights) = true;
  TORCH_ARG(Tensor, attn_mask) = Tensor();
  TORCH_ARG(bool, use_separate_proj_weight) = false;
  TORCH_ARG(Tensor, q_proj_weight) = Tensor();
  TORCH_ARG(Tensor, k_proj_weight) = Tensor();
  TORCH_ARG(Tensor, v_proj_weight) = Tensor();
  TORCH_ARG(Tensor, static_k) = Tensor();
  TORCH_ARG(Tensor, static_v) = Tensor();
  TORCH_ARG(bool, average_attn_weights) = true;
};

namespace detail {
// A mask as a summand of scores: true becomes minus infinity.
inline Tensor summand(const Tensor& mask, const Tensor& like) {
  if (!mask.defined() || mask.is_floating_point()) return mask.defined() ? mask.to(like.scalar_type()) : mask;
  TORCH_CHECK(mask.scalar_type() == kBool || mask.scalar_type() == kByte, "only bool and floating types of masks are supported, not ", mask.scalar_type());
  return torch::zeros(mask.sizes(), like.options()).masked_fill(mask.to(kBool), -std::numeric_limits<double>::infinity());
}
// Queries, keys and values, [.., .., heads, size], in as few products as possible.
inline std::vector<Tensor> projections(const Tensor& query, const Tensor& key, const Tensor& value, const MultiheadAttentionForwardFuncOptions& o, int64_t size) {
  const int64_t heads = o.num_heads(), width = heads * size;
  auto product = [&](const Tensor& x, const Tensor& w, const Tensor& b, int64_t count) {
    Tensor joined = raw::linear(x, w, b).unflatten(-1, {count * heads, size});
    return count == 1 ? std::vector<Tensor>{joined} : joined.split(heads, 2);
  };
  const Tensor& bias = o.in_proj_bias();
  if (!o.use_separate_proj_weight() && query.is_same(key) && key.is_same(value)) return product(query, o.in_proj_weight(), bias, 3);
  auto part = [&](const Tensor& whole, int64_t from, int64_t count) { return whole.defined() ? whole.narrow(0, from * width, count * width) : whole; };
  if (!o.use_separate_proj_weight() && key.is_same(value)) {
    auto all = product(query, part(o.in_proj_weight(), 0, 1), part(bias, 0, 1), 1);
    for (Tensor& t : product(key, part(o.in_proj_weight(), 1, 2), part(bias, 1, 2), 2)) all.push_back(t);
    return all;
  }
  const Tensor* inputs[] = {&query, &key, &value};
  const Tensor* separate[] = {&o.q_proj_weight(), &o.k_proj_weight(), &o.v_proj_weight()};
  std::vector<Tensor> all;
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor weight = o.use_separate_proj_weight() ? *separate[i] : part(o.in_proj_weight(), i, 1);
    TORCH_CHECK(weight.defined(), "multi_head_attention_forward: use_separate_proj_weight needs q_proj_weight, k_proj_weight and v_proj_weight");
    all.push_back(product(*inputs[i], weight, part(bias, i, 1), 1)[0]);
  }
  return all;
}
}  // namespace detail

// Inputs are [length, batch, features], or [length, features]. Returns the output, and the weights if they are wanted.
inline std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query_, const Tensor& key_, const Tensor& value_,
                                                               const MultiheadAttentionForwardFuncOptions& o) {
  const bool batched = query_.dim() == 3;
  TORCH_CHECK(batched || query_.dim() == 2, "query should be unbatched 2D or batched 3D tensor but received ", query_.dim(), "-D query tensor");
  TORCH_CHECK(key_.dim() == query_.dim() && value_.dim() == query_.dim(), "expected `key` and `value` to be ", query_.dim(), "-D but found ", key_.dim(),
              "-D and ", value_.dim(), "-D tensors respectively");
  const int64_t heads = o.num_heads(), embed = query_.size(-1), size = embed / heads;
  TORCH_CHECK(embed == o.embed_dim_to_check(), "was expecting embedding dimension of ", o.embed_dim_to_check(), ", but got ", embed);
  TORCH_CHECK(size * heads == embed, "embed_dim must be divisible by num_heads");
  // Equal inputs stay equal, so that their projections are one product.
  const Tensor query = batched ? query_ : query_.unsqueeze(1);
  const Tensor key = batched ? key_ : key_.is_same(query_) ? query : key_.unsqueeze(1);
  const Tensor value = batched ? value_ : value_.is_same(key_) ? key : value_.unsqueeze(1);
  TORCH_CHECK(key.size(0) == value.size(0) && key.size(1) == value.size(1), "key's sequence and batch dims ", key.sizes().slice(0, 2),
              " do not match value's ", value.sizes().slice(0, 2));
  auto all = detail::projections(query, key, value, o, size);
  for (Tensor& t : all) t = t.permute({1, 2, 0, 3});
  Tensor q = all[0], k = all[1], v = all[2];
  const int64_t batch = q.size(0), length = q.size(2);
  Tensor mask = detail::summand(o.attn_mask(), q), padding = detail::summand(o.key_padding_mask(), q);
  if (padding.defined() && !batched) padding = padding.unsqueeze(0);
  auto one_more_key = [&] {
    if (mask.defined()) mask = raw::pad(mask, {0, 1});
    if (padding.defined()) padding = raw::pad(padding, {0, 1});
  };
  if (o.bias_k().defined() && o.bias_v().defined()) {
    TORCH_CHECK(!o.static_k().defined() && !o.static_v().defined(), "bias cannot be added to static key or value.");
    k = torch::cat({k, o.bias_k().reshape({1, heads, 1, size}).expand({batch, -1, -1, -1})}, 2);
    v = torch::cat({v, o.bias_v().reshape({1, heads, 1, size}).expand({batch, -1, -1, -1})}, 2);
    one_more_key();
  }
  if (o.static_k().defined()) k = o.static_k().reshape({batch, heads, -1, size});
  if (o.static_v().defined()) v = o.static_v().reshape({batch, heads, -1, size});
  if (o.add_zero_attn()) {
    const Tensor zeros = torch::zeros({batch, heads, 1, size}, k.options());
    k = torch::cat({k, zeros}, 2);
    v = torch::cat({v, zeros}, 2);
    one_more_key();
  }
  const int64_t keys = k.size(2);
  if (mask.defined()) {
    const bool fits = mask.dim() == 2 ? mask.size(0) == length && mask.size(1) == keys
                                      : mask.dim() == 3 && mask.size(0) == batch * heads && mask.size(1) == length && mask.size(2) == keys;
    TORCH_CHECK(fits, "The size of the attn_mask is ", mask.sizes(), ", but should be [", length, ", ", keys, "] or [", batch * heads, ", ", length, ", ", keys, "].");
    if (mask.dim() == 3) mask = mask.reshape({batch, heads, length, keys});
  }
  if (padding.defined()) {
    TORCH_CHECK(padding.dim() == 2 && padding.size(0) == batch && padding.size(1) == keys, "expecting key_padding_mask shape of [", batch, ", ", keys,
                "], but got ", padding.sizes());
    padding = padding.reshape({batch, 1, 1, keys});
    mask = mask.defined() ? mask + padding : padding;
  }
  const double dropout = o.training() ? o.dropout_p() : 0.0;
  Tensor weights, out;
  if (o.need_weights()) {
    Tensor scores = torch::matmul(q * std::sqrt(1.0 / static_cast<double>(size)), k.transpose(-2, -1));
    weights = torch::softmax(mask.defined() ? scores + mask : scores, -1);
    if (dropout > 0) weights = raw::dropout(weights, dropout, true);
    out = torch::matmul(weights, v);
    if (o.average_attn_weights()) weights = weights.mean(1);
    if (!batched) weights = weights.squeeze(0);
  } else {
    if (mask.defined() && mask.dim() == 4) mask = mask.expand({batch, heads, length, keys});
    out = raw::scaled_dot_product_attention(q, k, v, mask, dropout, false);
  }
  out = raw::linear(out.permute({2, 0, 1, 3}).flatten(2), o.out_proj_weight(), o.out_proj_bias());
  return {batched ? out : out.squeeze(1), weights};
}

}  // namespace functional

template <class Derived>
class MultiheadAttentionImplBase : public Cloneable<Derived> {
 public:
  MultiheadAttentionImplBase(int64_t embed_dim, int64_t num_heads) : MultiheadAttentionImplBase(MultiheadAttentionOptions(embed_dim, num_heads)) {}
  explicit MultiheadAttentionImplBase(const MultiheadAttentionOptions& options_) : options(options_) { MultiheadAttentionImplBase::reset(); }
  void reset() override {
    const int64_t embed = options.embed_dim();
    _qkv_same_embed_dim = options.kdim() == embed && options.vdim() == embed;
    head_dim = embed / options.num_heads();
    TORCH_CHECK(head_dim * options.num_heads() == embed, "embed_dim must be divisible by num_heads");
    in_proj_weight = this->register_parameter("in_proj_weight", _qkv_same_embed_dim ? torch::empty({3 * embed, embed}) : Tensor());
    q_proj_weight = this->register_parameter("q_proj_weight", _qkv_same_embed_dim ? Tensor() : torch::empty({embed, embed}));
    k_proj_weight = this->register_parameter("k_proj_weight", _qkv_same_embed_dim ? Tensor() : torch::empty({embed, options.kdim()}));
    v_proj_weight = this->register_parameter("v_proj_weight", _qkv_same_embed_dim ? Tensor() : torch::empty({embed, options.vdim()}));
    in_proj_bias = this->register_parameter("in_proj_bias", options.bias() ? torch::empty(3 * embed) : Tensor());
    out_proj = this->register_module("out_proj", Linear(LinearOptions(embed, embed).bias(options.bias())));
    bias_k = this->register_parameter("bias_k", options.add_bias_kv() ? torch::empty({1, 1, embed}) : Tensor());
    bias_v = this->register_parameter("bias_v", options.add_bias_kv() ? torch::empty({1, 1, embed}) : Tensor());
    _reset_parameters();
  }
  void _reset_parameters() {
    for (const Tensor& weight : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight})
      if (weight.defined()) init::xavier_uniform_(weight);
    if (in_proj_bias.defined()) {
      init::zeros_(in_proj_bias);
      init::zeros_(out_proj->bias);
    }
    if (bias_k.defined()) init::xavier_normal_(bias_k);
    if (bias_v.defined()) init::xavier_normal_(bias_v);
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& key_padding_mask = {}, bool need_weights = true,
                                     const Tensor& attn_mask = {}, bool average_attn_weights = true) {
    functional::MultiheadAttentionForwardFuncOptions o(options.embed_dim(), options.num_heads(), in_proj_weight, in_proj_bias, bias_k, bias_v,
                                                       options.add_zero_attn(), options.dropout(), out_proj->weight, out_proj->bias);
    o.training(this->is_training()).key_padding_mask(key_padding_mask).need_weights(need_weights).attn_mask(attn_mask);
    o.average_attn_weights(average_attn_weights).use_separate_proj_weight(!_qkv_same_embed_dim);
    o.q_proj_weight(q_proj_weight).k_proj_weight(k_proj_weight).v_proj_weight(v_proj_weight);
    return functional::multi_head_attention_forward(query, key, value, o);
  }
  MultiheadAttentionOptions options;
  bool _qkv_same_embed_dim = true;
  Tensor in_proj_weight, in_proj_bias, bias_k, bias_v, q_proj_weight, k_proj_weight, v_proj_weight;
  Linear out_proj = nullptr;
  int64_t head_dim = 0;
};
class MultiheadAttentionImpl : public MultiheadAttentionImplBase<MultiheadAttentionImpl> {
 public:
  using MultiheadAttentionImplBase<MultiheadAttentionImpl>::MultiheadAttentionImplBase;
};
TORCH_MODULE(MultiheadAttention);

// The function between a transformer layer's linear layers: torch::kReLU, torch::kGELU, or one of the program's.
class TransformerActivation {
 public:
  TransformerActivation(enumtype::kReLU) {}
  TransformerActivation(enumtype::kGELU) : gelu_(true) {}
  template <class F, class = std::enable_if_t<std::is_invocable_r_v<Tensor, const F&, const Tensor&>>>
  TransformerActivation(F function) : function_(std::move(function)) {}
  Tensor operator()(const Tensor& input) const { return function_ ? function_(input) : gelu_ ? functional::gelu(input) : torch::relu(input); }

 private:
  bool gelu_ = false;
  std::function<Tensor(const Tensor&)> function_;
};

struct TransformerEncoderLayerOptions {
  TransformerEncoderLayerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}
  TORCH_ARG(int64_t, d_model);
  TORCH_ARG(int64_t, nhead);
  TORCH_ARG(int64_t, dim_feedforward) = 2048;
  TORCH_ARG(double, dropout) = 0.1;
  TORCH_ARG(TransformerActivation, activation) = torch::kReLU;
};
using TransformerDecoderLayerOptions = TransformerEncoderLayerOptions;

// The layers' bodies are templates, so that only programs that use them compile them.
template <class Derived>
class TransformerEncoderLayerImplBase : public Cloneable<Derived> {
 public:
  TransformerEncoderLayerImplBase(int64_t d_model, int64_t nhead) : TransformerEncoderLayerImplBase(TransformerEncoderLayerOptions(d_model, nhead)) {}
  explicit TransformerEncoderLayerImplBase(TransformerEncoderLayerOptions options_) : options(std::move(options_)) { TransformerEncoderLayerImplBase::reset(); }
  void reset() override {
    const int64_t d = options.d_model(), wide = options.dim_feedforward();
    const double p = options.dropout();
    self_attn = this->register_module("self_attn", MultiheadAttention(MultiheadAttentionOptions(d, options.nhead()).dropout(p)));
    linear1 = this->register_module("linear1", Linear(d, wide));
    dropout = this->register_module("dropout", Dropout(p));
    linear2 = this->register_module("linear2", Linear(wide, d));
    norm1 = this->register_module("norm1", LayerNorm(std::vector<int64_t>{d}));
    norm2 = this->register_module("norm2", LayerNorm(std::vector<int64_t>{d}));
    dropout1 = this->register_module("dropout1", Dropout(p));
    dropout2 = this->register_module("dropout2", Dropout(p));
  }
  void reset_parameters() {}
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {}) {
    Tensor x = norm1(src + dropout1(std::get<0>(self_attn->forward(src, src, src, src_key_padding_mask, false, src_mask))));
    return norm2(x + dropout2(linear2(dropout(options.activation()(linear1(x))))));
  }
  TransformerEncoderLayerOptions options;
  MultiheadAttention self_attn = nullptr;
  Linear linear1 = nullptr, linear2 = nullptr;
  Dropout dropout = nullptr, dropout1 = nullptr, dropout2 = nullptr;
  LayerNorm norm1 = nullptr, norm2 = nullptr;
};
class TransformerEncoderLayerImpl : public TransformerEncoderLayerImplBase<TransformerEncoderLayerImpl> {
 public:
  using TransformerEncoderLayerImplBase<TransformerEncoderLayerImpl>::TransformerEncoderLayerImplBase;
};
TORCH_MODULE(TransformerEncoderLayer);
template <class Derived>
class TransformerDecoderLayerImplBase : public Cloneable<Derived> {
 public:
  TransformerDecoderLayerImplBase(int64_t d_model, int64_t nhead) : TransformerDecoderLayerImplBase(TransformerDecoderLayerOptions(d_model, nhead)) {}
  explicit TransformerDecoderLayerImplBase(TransformerDecoderLayerOptions options_) : options(std::move(options_)) { TransformerDecoderLayerImplBase::reset(); }
  void reset() override {
    const int64_t d = options.d_model(), wide = options.dim_feedforward();
    const double p = options.dropout();
    self_attn = this->register_module("self_attn", MultiheadAttention(MultiheadAttentionOptions(d, options.nhead()).dropout(p)));
    multihead_attn = this->register_module("multihead_attn", MultiheadAttention(MultiheadAttentionOptions(d, options.nhead()).dropout(p)));
    linear1 = this->register_module("linear1", Linear(d, wide));
    dropout = this->register_module("dropout", Dropout(p));
    linear2 = this->register_module("linear2", Linear(wide, d));
    norm1 = this->register_module("norm1", LayerNorm(std::vector<int64_t>{d}));
    norm2 = this->register_module("norm2", LayerNorm(std::vector<int64_t>{d}));
    norm3 = this->register_module("norm3", LayerNorm(std::vector<int64_t>{d}));
    dropout1 = this->register_module("dropout1", Dropout(p));
    dropout2 = this->register_module("dropout2", Dropout(p));
    dropout3 = this->register_module("dropout3", Dropout(p));
  }
  void reset_parameters() {}
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {}) {
    Tensor x = norm1(tgt + dropout1(std::get<0>(self_attn->forward(tgt, tgt, tgt, tgt_key_padding_mask, false, tgt_mask))));
    x = norm2(x + dropout2(std::get<0>(multihead_attn->forward(x, memory, memory, memory_key_padding_mask, false, memory_mask))));
    return norm3(x + dropout3(linear2(dropout(options.activation()(linear1(x))))));
  }
  TransformerDecoderLayerOptions options;
  MultiheadAttention self_attn = nullptr, multihead_attn = nullptr;
  Linear linear1 = nullptr, linear2 = nullptr;
  Dropout dropout = nullptr, dropout1 = nullptr, dropout2 = nullptr, dropout3 = nullptr;
  LayerNorm norm1 = nullptr, norm2 = nullptr, norm3 = nullptr;
};
class TransformerDecoderLayerImpl : public TransformerDecoderLayerImplBase<TransformerDecoderLayerImpl> {
 public:
  using TransformerDecoderLayerImplBase<TransformerDecoderLayerImpl>::TransformerDecoderLayerImplBase;
};
TORCH_MODULE(TransformerDecoderLayer);

struct TransformerEncoderOptions {
  TransformerEncoderOptions(TransformerEncoderLayer layer, int64_t num_layers) : encoder_layer_(std::move(layer)), num_layers_(num_layers) {}
  template <class T, std::enable_if_t<std::is_same_v<T, TransformerEncoderLayerOptions>, int> = 0>
  TransformerEncoderOptions(const T& layer, int64_t num_layers) : encoder_layer_(TransformerEncoderLayer(layer)), num_layers_(num_layers) {}
  TORCH_ARG(TransformerEncoderLayer, encoder_layer);
  TORCH_ARG(int64_t, num_layers);
  TORCH_ARG(AnyModule, norm);
};
struct TransformerDecoderOptions {
  TransformerDecoderOptions(TransformerDecoderLayer layer, int64_t num_layers) : decoder_layer_(std::move(layer)), num_layers_(num_layers) {}
  template <class T, std::enable_if_t<std::is_same_v<T, TransformerDecoderLayerOptions>, int> = 0>
  TransformerDecoderOptions(const T& layer, int64_t num_layers) : decoder_layer_(TransformerDecoderLayer(layer)), num_layers_(num_layers) {}
  TORCH_ARG(TransformerDecoderLayer, decoder_layer);
  TORCH_ARG(int64_t, num_layers);
  TORCH_ARG(AnyModule, norm);
};
#define RL_STACK(Name, layer, first, rest, ...)                                                                       \
  template <class Derived>                                                                                            \
  class Name##ImplBase : public Cloneable<Derived> {                                                                  \
   public:                                                                                                            \
    Name##ImplBase(Name##Layer layer_, int64_t num_layers) : Name##ImplBase(Name##Options(std::move(layer_), num_layers)) {}\
    explicit Name##ImplBase(Name##Options options_) : options(std::move(options_)) { Name##ImplBase::reset(); }       \
    void reset() override {                                                                                           \
      layers = this->register_module("layers", ModuleList());                                                         \
      for (int64_t i = 0; i < options.num_layers(); ++i) layers->push_back(options.layer()->clone());                 \
      if (!options.norm().is_empty()) {                                                                               \
        norm = options.norm();                                                                                        \
        this->register_module("norm", norm.ptr());                                                                    \
      }                                                                                                               \
    }                                                                                                                 \
    void reset_parameters() {                                                                                         \
      for (size_t i = 0; i < layers->size(); ++i) layers->at<Name##LayerImpl>(i).reset_parameters();                  \
    }                                                                                                                 \
    Tensor forward first {                                                                                            \
      Tensor x = rest;                                                                                                \
      for (size_t i = 0; i < layers->size(); ++i) x = layers->at<Name##LayerImpl>(i).forward(x, __VA_ARGS__);         \
      return norm.is_empty() ? x : norm.forward<Tensor>(x);                                                           \
    }                                                                                                                 \
    Name##Options options;                                                                                            \
    ModuleList layers = nullptr;                                                                                      \
    AnyModule norm;                                                                                                   \
  };                                                                                                                  \
  class Name##Impl : public Name##ImplBase<Name##Impl> {                                                              \
   public:                                                                                                            \
    using Name##ImplBase<Name##Impl>::Name##ImplBase;                                                                 \
  };                                                                                                                  \
  TORCH_MODULE(Name)
RL_STACK(TransformerEncoder, encoder_layer, (const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {}), src, src_mask,
         src_key_padding_mask);
RL_STACK(TransformerDecoder, decoder_layer,
         (const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
          const Tensor& memory_key_padding_mask = {}),
         tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask);
#undef RL_STACK

struct TransformerOptions {
  TransformerOptions() = default;
  TransformerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}
  TransformerOptions(int64_t d_model, int64_t nhead, int64_t num_encoder_layers, int64_t num_decoder_layers)
      : d_model_(d_model), nhead_(nhead), num_encoder_layers_(num_encoder_layers), num_decoder_layers_(num_decoder_layers) {}
  TORCH_ARG(int64_t, d_model) = 512;
  TORCH_ARG(int64_t, nhead) = 8;
  TORCH_ARG(int64_t, num_encoder_layers) = 6;
  TORCH_ARG(int64_t, num_decoder_layers) = 6;
  TORCH_ARG(int64_t, dim_feedforward) = 2048;
  TORCH_ARG(double, dropout) = 0.1;
  TORCH_ARG(TransformerActivation, activation) = torch::kReLU;
  TORCH_ARG(AnyModule, custom_encoder);
  TORCH_ARG(AnyModule, custom_decoder);
};
template <class Derived>
class TransformerImplBase : public Cloneable<Derived> {
 public:
  explicit TransformerImplBase(TransformerOptions options_ = {}) : options(std::move(options_)) { TransformerImplBase::reset(); }
  void reset() override {
    auto layer = TransformerEncoderLayerOptions(options.d_model(), options.nhead());
    layer.dim_feedforward(options.dim_feedforward()).dropout(options.dropout()).activation(options.activation());
    const std::vector<int64_t> width{options.d_model()};
    if (options.custom_encoder().is_empty()) {
      TransformerEncoderOptions all(layer, options.num_encoder_layers());
      encoder = AnyModule(TransformerEncoder(all.norm(AnyModule(LayerNorm(width)))));
    } else {
      encoder = options.custom_encoder();
    }
    this->register_module("encoder", encoder.ptr());
    if (options.custom_decoder().is_empty()) {
      TransformerDecoderOptions all(layer, options.num_decoder_layers());
      decoder = AnyModule(TransformerDecoder(all.norm(AnyModule(LayerNorm(width)))));
    } else {
      decoder = options.custom_decoder();
    }
    this->register_module("decoder", decoder.ptr());
    reset_parameters();
  }
  void reset_parameters() {
    for (Tensor& weight : this->parameters())
      if (weight.dim() > 1) init::xavier_uniform_(weight);
  }
  Tensor forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask = {}, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& src_key_padding_mask = {}, const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {}) {
    TORCH_CHECK(src.dim() == 3 && tgt.dim() == 3, "src and tgt should have 3 dimensions, but got ", src.dim(), " and ", tgt.dim());
    TORCH_CHECK(src.size(1) == tgt.size(1), "src and tgt should have equal batch size (at dim 1), but got ", src.size(1), " and ", tgt.size(1));
    TORCH_CHECK(src.size(2) == options.d_model() && tgt.size(2) == options.d_model(), "src and tgt should have same feature size as d_model (at dim 2), but got ",
                src.size(2), " and ", tgt.size(2), " while d_model is ", options.d_model());
    Tensor memory = encoder.forward<Tensor>(src, src_mask, src_key_padding_mask);
    return decoder.forward<Tensor>(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask);
  }
  static Tensor generate_square_subsequent_mask(int64_t size) {
    return torch::triu(torch::full({size, size}, -std::numeric_limits<float>::infinity(), kFloat), 1);
  }
  TransformerOptions options;
  AnyModule encoder, decoder;
};
class TransformerImpl : public TransformerImplBase<TransformerImpl> {
 public:
  using TransformerImplBase<TransformerImpl>::TransformerImplBase;
};
TORCH_MODULE(Transformer);

}  // namespace nn
}  // namespace torch
