// torch::autograd: differentiation, and functions with a backward of their own.
#pragma once

#include <torch/functions.h>

namespace torch {

class IValue;

namespace ivalue {
// The elements of a tuple or list.
struct Tuple {
  std::vector<IValue> items;
  bool is_list = false;
  const std::vector<IValue>& elements() const { return items; }
  size_t size() const;
};
// A dictionary with text keys, in order.
struct Dict {
  std::vector<std::pair<std::string, IValue>> entries;
  size_t size() const;
  bool contains(const std::string& key) const;
  const IValue& at(const std::string& key) const;
};
}  // namespace ivalue

namespace detail {
// Contents of a value that are neither a tensor nor a number.
struct Held {
  virtual ~Held() = default;
};
template <class T>
struct HeldAs : Held {
  explicit HeldAs(T value) : value(std::move(value)) {}
  T value;
};
}  // namespace detail

// A plain value, a tensor or a container of values. A std::variant of them would cost every program compile time.
class IValue {
 public:
  IValue() = default;
  IValue(Tensor value) : kind_(Kind::Tensor), tensor_(std::move(value)) {}
  IValue(double value) : kind_(Kind::Double) { plain_.number = value; }
  IValue(int64_t value) : kind_(Kind::Int) { plain_.integer = value; }
  IValue(int value) : IValue(static_cast<int64_t>(value)) {}
  IValue(bool value) : kind_(Kind::Bool) { plain_.integer = value; }
  IValue(std::string value) : IValue(Kind::String, new detail::HeldAs<std::string>(std::move(value))) {}
  IValue(const char* value) : IValue(std::string(value)) {}
  IValue(std::vector<int64_t> value) : IValue(Kind::IntList, new detail::HeldAs<std::vector<int64_t>>(std::move(value))) {}
  IValue(std::vector<double> value) : IValue(Kind::DoubleList, new detail::HeldAs<std::vector<double>>(std::move(value))) {}
  IValue(std::vector<Tensor> value) : IValue(Kind::TensorList, new detail::HeldAs<std::vector<Tensor>>(std::move(value))) {}
  IValue(std::shared_ptr<ivalue::Tuple> value) : IValue(Kind::Items, new detail::HeldAs<std::shared_ptr<ivalue::Tuple>>(std::move(value))) {}
  IValue(std::shared_ptr<ivalue::Dict> value) : IValue(Kind::Dict, new detail::HeldAs<std::shared_ptr<ivalue::Dict>>(std::move(value))) {}
  bool isTuple() const { return holds_items(false); }
  bool isList() const { return holds_items(true) || isTensorList(); }
  bool isGenericDict() const { return kind_ == Kind::Dict; }
  std::shared_ptr<ivalue::Tuple> toTuple() const { return get<std::shared_ptr<ivalue::Tuple>>(Kind::Items, "Tuple"); }
  const ivalue::Tuple& toTupleRef() const { return *get<std::shared_ptr<ivalue::Tuple>>(Kind::Items, "Tuple"); }
  std::vector<IValue> toListRef() const { return get<std::shared_ptr<ivalue::Tuple>>(Kind::Items, "List")->items; }
  const ivalue::Dict& toGenericDict() const { return *get<std::shared_ptr<ivalue::Dict>>(Kind::Dict, "Dict"); }
  bool isNone() const { return kind_ == Kind::None; }
  bool isTensor() const { return kind_ == Kind::Tensor; }
  bool isDouble() const { return kind_ == Kind::Double; }
  bool isInt() const { return kind_ == Kind::Int; }
  bool isBool() const { return kind_ == Kind::Bool; }
  bool isString() const { return kind_ == Kind::String; }
  bool isTensorList() const { return kind_ == Kind::TensorList; }
  Tensor toTensor() const {
    need(Kind::Tensor, "Tensor");
    return tensor_;
  }
  double toDouble() const {
    if (isInt()) return static_cast<double>(plain_.integer);
    need(Kind::Double, "Double");
    return plain_.number;
  }
  int64_t toInt() const {
    need(Kind::Int, "Int");
    return plain_.integer;
  }
  bool toBool() const {
    need(Kind::Bool, "Bool");
    return plain_.integer != 0;
  }
  const std::string& toStringRef() const { return get<std::string>(Kind::String, "String"); }
  std::vector<int64_t> toIntVector() const { return get<std::vector<int64_t>>(Kind::IntList, "IntList"); }
  std::vector<double> toDoubleVector() const { return get<std::vector<double>>(Kind::DoubleList, "DoubleList"); }
  std::vector<Tensor> toTensorVector() const { return get<std::vector<Tensor>>(Kind::TensorList, "TensorList"); }
  template <class T>
  T to() const {
    if constexpr (std::is_same_v<T, Tensor>) return toTensor();
    else if constexpr (std::is_same_v<T, bool>) return toBool();
    else if constexpr (std::is_integral_v<T>) return static_cast<T>(toInt());
    else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(toDouble());
    else if constexpr (std::is_same_v<T, std::string>) return toStringRef();
    else if constexpr (std::is_same_v<T, std::vector<int64_t>>) return toIntVector();
    else if constexpr (std::is_same_v<T, std::vector<double>>) return toDoubleVector();
    else return static_cast<T>(toTensorVector());
  }

 private:
  enum class Kind : uint8_t { None, Tensor, Double, Int, Bool, String, IntList, DoubleList, TensorList, Items, Dict };
  IValue(Kind kind, detail::Held* held) : kind_(kind), held_(held) {}
  void need(Kind kind, const char* name) const { TORCH_CHECK(kind_ == kind, "Expected ", name, " but the value is of another kind"); }
  bool holds_items(bool list) const { return kind_ == Kind::Items && toTupleRef().is_list == list; }
  template <class T>
  const T& get(Kind kind, const char* name) const {
    need(kind, name);
    return static_cast<const detail::HeldAs<T>&>(*held_).value;
  }
  Kind kind_ = Kind::None;
  union {
    int64_t integer;
    double number;
  } plain_ = {0};
  Tensor tensor_;
  std::shared_ptr<detail::Held> held_;
};

namespace ivalue {
inline size_t Tuple::size() const { return items.size(); }
inline size_t Dict::size() const { return entries.size(); }
inline bool Dict::contains(const std::string& key) const {
  for (const auto& entry : entries)
    if (entry.first == key) return true;
  return false;
}
inline const IValue& Dict::at(const std::string& key) const {
  for (const auto& entry : entries)
    if (entry.first == key) return entry.second;
  TORCH_CHECK(false, "Argument passed to at() was not in the map.");
}
}  // namespace ivalue

namespace detail {
// References of tensors that may be undefined.
inline std::vector<rl_tensor*> optional_handles(const std::vector<Tensor>& tensors) {
  std::vector<rl_tensor*> all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.handle());
  return all;
}
inline int32_t tristate(optional<bool> value) { return value ? *value : -1; }
}  // namespace detail

inline void Tensor::backward(const Tensor& gradient, optional<bool> retain_graph, bool create_graph, optional<TensorList> inputs) const {
  rl_tensor *root = need(), *grad = gradient.handle();
  std::vector<rl_tensor*> wanted;
  if (inputs) wanted = detail::Handles(*inputs).list;
  detail::check(rl_backward(&root, 1, grad ? &grad : nullptr, detail::tristate(retain_graph), create_graph, wanted.data(), wanted.size()));
}

namespace autograd {

inline void backward(const variable_list& tensors, const variable_list& grad_tensors = {}, optional<bool> retain_graph = nullopt,
                     bool create_graph = false, const variable_list& inputs = {}) {
  detail::Handles roots(tensors), wanted(inputs);
  auto grads = detail::optional_handles(grad_tensors);
  TORCH_CHECK(grads.empty() || grads.size() == tensors.size(), "got ", tensors.size(), " tensors and ", grads.size(), " gradients");
  detail::check(rl_backward(roots.list.data(), roots.list.size(), grads.empty() ? nullptr : grads.data(), detail::tristate(retain_graph),
                            create_graph, wanted.list.data(), wanted.list.size()));
}

inline variable_list grad(const variable_list& outputs, const variable_list& inputs, const variable_list& grad_outputs = {},
                          optional<bool> retain_graph = nullopt, bool create_graph = false, bool allow_unused = false) {
  detail::Handles roots(outputs), wanted(inputs);
  auto grads = detail::optional_handles(grad_outputs);
  TORCH_CHECK(grads.empty() || grads.size() == outputs.size(), "got ", outputs.size(), " outputs and ", grads.size(), " gradients");
  std::vector<rl_tensor*> found(inputs.size(), nullptr);
  detail::check(rl_grad(roots.list.data(), roots.list.size(), wanted.list.data(), wanted.list.size(), grads.empty() ? nullptr : grads.data(),
                        detail::tristate(retain_graph), create_graph, allow_unused, found.data()));
  variable_list all;
  for (rl_tensor* handle : found) all.emplace_back(handle);
  return all;
}

// While one lives, a backward pass that makes numbers that are not a number is an error, which names the op.
class DetectAnomalyGuard {
 public:
  explicit DetectAnomalyGuard(bool check_nan = true) : before_(rl_set_detect_anomaly(true)) {
    if (check_nan) return;
    rl_set_detect_anomaly(before_);
    throw NotImplementedError("DetectAnomalyGuard without check_nan is not supported: its only effect is the check");
  }
  ~DetectAnomalyGuard() { rl_set_detect_anomaly(before_); }
  DetectAnomalyGuard(const DetectAnomalyGuard&) = delete;
  DetectAnomalyGuard& operator=(const DetectAnomalyGuard&) = delete;

 private:
  bool before_;
};
struct AnomalyMode {
  static bool is_enabled() { return rl_detect_anomaly(); }
  static void set_enabled(bool enabled, bool check_nan = true) { rl_set_detect_anomaly(enabled && check_nan); }
};

// Values by name, a few of them.
class SavedData {
 public:
  using value_type = std::pair<std::string, IValue>;
  IValue& operator[](const std::string& name) {
    for (auto& item : items_)
      if (item.first == name) return item.second;
    items_.emplace_back(name, IValue());
    return items_.back().second;
  }
  const IValue& at(const std::string& name) const {
    auto found = find(name);
    TORCH_CHECK_INDEX(found != end(), "saved_data has no '", name, "'");
    return found->second;
  }
  std::vector<value_type>::const_iterator find(const std::string& name) const {
    auto found = items_.begin();
    while (found != items_.end() && found->first != name) ++found;
    return found;
  }
  size_t count(const std::string& name) const { return find(name) != end(); }
  bool contains(const std::string& name) const { return count(name) != 0; }
  std::vector<value_type>::const_iterator begin() const { return items_.begin(); }
  std::vector<value_type>::const_iterator end() const { return items_.end(); }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void clear() { items_.clear(); }

 private:
  std::vector<value_type> items_;
};

// What forward keeps for backward.
class AutogradContext {
 public:
  AutogradContext() = default;
  AutogradContext(const AutogradContext&) = delete;
  AutogradContext& operator=(const AutogradContext&) = delete;

  SavedData saved_data;
  void save_for_backward(variable_list tensors) { saved_ = std::move(tensors); }
  variable_list get_saved_variables() const { return saved_; }
  void mark_non_differentiable(const variable_list& outputs) { constant_ = outputs; }
  void mark_dirty(const variable_list&) {
    throw NotImplementedError("mark_dirty is not supported: return a new tensor from forward instead of changing an input in place");
  }
  void set_materialize_grads(bool value) { materialize_ = value; }
  bool needs_input_grad(size_t at) const { return at < needs_.size() && needs_[at]; }

 private:
  template <class T>
  friend struct Function;
  variable_list saved_, constant_;
  std::vector<bool> kept_, needs_;
  std::vector<std::pair<std::vector<int64_t>, TensorOptions>> outputs_;
  bool materialize_ = true;
};

// A differentiable function: T has static forward(AutogradContext*, ...) and backward(AutogradContext*, variable_list).
template <class T>
struct Function {
  template <class X = T, class... Args>
  static auto apply(Args&&... args) {
    using Result = decltype(X::forward(static_cast<AutogradContext*>(nullptr), args...));
    auto state = std::make_unique<State>();
    (collect(*state, args), ...);
    AutogradContext* ctx = &state->ctx;
    Result result;
    state->forward = [&]() -> variable_list {
      result = X::forward(ctx, std::forward<Args>(args)...);
      if constexpr (std::is_same_v<Result, Tensor>) return {result};
      else return result;
    };
    std::vector<rl_tensor*> inputs = detail::Handles(state->inputs).list;
    state->inputs_alive = std::move(state->inputs);
    rl_value out;
    // The library frees the state, also after an error.
    detail::check(rl_function_apply("CppFunction", inputs.data(), inputs.size(), forward, backward, state.release(), free, &out));
    variable_list outputs = detail::unpack(out);
    if constexpr (std::is_same_v<Result, Tensor>) return outputs.at(0);
    else return outputs;
  }

 private:
  struct State {
    AutogradContext ctx;
    std::function<variable_list()> forward;
    variable_list inputs, inputs_alive;
    // Places of the inputs among the arguments.
    std::vector<size_t> places;
    size_t arguments = 0;
  };

  static void input(State& state, const Tensor& tensor) {
    bool needs = tensor.defined() && tensor.requires_grad();
    state.ctx.needs_.push_back(needs);
    if (tensor.defined()) {
      state.inputs.push_back(tensor);
      state.places.push_back(state.arguments);
    }
    ++state.arguments;
  }
  template <class A>
  static void collect(State& state, const A& argument) {
    if constexpr (std::is_same_v<A, Tensor>) input(state, argument);
    else if constexpr (std::is_same_v<A, optional<Tensor>>) input(state, argument.value_or(Tensor()));
    else if constexpr (std::is_same_v<A, std::vector<Tensor>> || std::is_same_v<A, TensorList>) for (const Tensor& t : argument) input(state, t);
    else {
      state.ctx.needs_.push_back(false);
      ++state.arguments;
    }
  }
  static rl_status forward(void* context, rl_frame* frame) {
    try {
      auto* state = static_cast<State*>(context);
      variable_list outputs = state->forward();
      state->forward = nullptr;
      state->inputs_alive.clear();
      AutogradContext& ctx = state->ctx;
      for (const Tensor& tensor : ctx.saved_) {
        ctx.kept_.push_back(tensor.defined());
        if (tensor.defined()) detail::check(rl_frame_save(frame, tensor.handle()));
      }
      ctx.saved_.clear();
      for (const Tensor& output : outputs) {
        ctx.outputs_.emplace_back(output.sizes().vec(), output.options());
        detail::check(rl_frame_return(frame, output.need()));
      }
      return RL_OK;
    } catch (...) {
      return detail::report();
    }
  }
  static rl_status backward(void* context, rl_tensor* const* saved, size_t, rl_tensor* const* gradients, size_t count, rl_tensor** found, size_t inputs) {
    try {
      auto* state = static_cast<State*>(context);
      AutogradContext& ctx = state->ctx;
      for (bool kept : ctx.kept_) ctx.saved_.push_back(kept ? Tensor(rl_tensor_ref(*saved++)) : Tensor());
      struct Clear { variable_list& saved; ~Clear() { saved.clear(); } } clear{ctx.saved_};
      variable_list grads;
      for (size_t i = 0; i < count; ++i) {
        if (gradients[i]) grads.emplace_back(rl_tensor_ref(gradients[i]));
        else grads.push_back(ctx.materialize_ ? torch::zeros(ctx.outputs_[i].first, ctx.outputs_[i].second) : Tensor());
      }
      variable_list result = T::backward(&ctx, std::move(grads));
      TORCH_CHECK(result.size() == state->arguments || (result.size() > state->arguments), "function returned an incorrect number of gradients (expected ",
                  state->arguments, ", got ", result.size(), ")");
      for (size_t i = 0; i < inputs; ++i) found[i] = rl_tensor_ref(result[state->places[i]].handle());
      return RL_OK;
    } catch (...) {
      return detail::report();
    }
  }
  static void free(void* context) { delete static_cast<State*>(context); }
};

}  // namespace autograd
}  // namespace torch
