// Holders of modules: ModuleHolder, AnyModule, Sequential, ModuleList, ModuleDict, ParameterList, Functional.
#pragma once

#include <torch/nn/module.h>

namespace torch {
namespace nn {

namespace detail {
// What holders have in common. Their pointer is one to a Module: a pointer type for each of the library's modules would
// take a good part of a program's compile time.
class Holder {
 public:
  explicit operator bool() const noexcept { return impl_ != nullptr; }
  bool is_empty() const noexcept { return !impl_; }

 protected:
  Holder() = default;
  Holder(std::shared_ptr<Module> module) : impl_(std::move(module)) {}
  const std::shared_ptr<Module>& held() const {
    TORCH_CHECK(impl_, "Accessing empty ModuleHolder");
    return impl_;
  }

 private:
  std::shared_ptr<Module> impl_;
};
}  // namespace detail

namespace detail {
template <class T>
struct is_shared : std::false_type {};
template <class T>
struct is_shared<std::shared_ptr<T>> : std::true_type {};
// Whether an argument is a holder or a pointer. Asking whether it converts to one would instantiate a pointer for each
// module.
template <class Holder, class Head, bool = std::is_base_of_v<Holder, Head>>
struct is_reference : std::true_type {};
template <class Holder, class Head>
struct is_reference<Holder, Head, false> : is_shared<Head> {};
}  // namespace detail

// A module by reference: `Linear` holds a `LinearImpl`.
template <class Contained>
class ModuleHolder : public detail::Holder {
 public:
  using ContainedType = Contained;

  ModuleHolder() : Holder(make()) {}
  ModuleHolder(std::nullptr_t) {}
  ModuleHolder(std::shared_ptr<Contained> module) : Holder(std::move(module)) {}
  template <class Head, class... Tail,
            std::enable_if_t<(sizeof...(Tail) > 0) || !detail::is_reference<ModuleHolder, std::decay_t<Head>>::value, int> = 0>
  explicit ModuleHolder(Head&& head, Tail&&... tail)
      : Holder(std::make_shared<Contained>(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}

  Contained* operator->() { return get(); }
  const Contained* operator->() const { return get(); }
  Contained& operator*() { return *get(); }
  const Contained& operator*() const { return *get(); }
  std::shared_ptr<Contained> ptr() const { return std::static_pointer_cast<Contained>(held()); }
  Contained* get() { return static_cast<Contained*>(held().get()); }
  const Contained* get() const { return static_cast<const Contained*>(held().get()); }
  template <class... Args>
  auto operator()(Args&&... args) { return get()->forward(std::forward<Args>(args)...); }
  template <class Index>
  decltype(auto) operator[](Index&& at) { return (*get())[std::forward<Index>(at)]; }
  template <class Index>
  decltype(auto) operator[](Index&& at) const { return (*get())[std::forward<Index>(at)]; }

 private:
  static std::shared_ptr<Contained> make() {
    if constexpr (std::is_default_constructible_v<Contained>) return std::make_shared<Contained>();
    else return nullptr;
  }
};

template <class T>
std::ostream& operator<<(std::ostream& out, const ModuleHolder<T>& holder) { return out << *holder; }

}  // namespace nn
}  // namespace torch

// A holder `Name` of the module `ImplType`.
#define TORCH_MODULE_IMPL(Name, ImplType)                                    \
  class Name : public torch::nn::ModuleHolder<ImplType> { /* NOLINT */       \
   public:                                                                   \
    using torch::nn::ModuleHolder<ImplType>::ModuleHolder;                   \
    using Impl [[maybe_unused]] = ImplType;                                  \
  }
#define TORCH_MODULE(Name) TORCH_MODULE_IMPL(Name, Name##Impl)

// Values of parameters that a forward used by Sequential has defaults for: {{1, AnyValue(...)}, ...}.
#define FORWARD_HAS_DEFAULT_ARGS(...)                                                                                     \
  template <class ModuleType, class... ArgumentTypes>                                                                     \
  friend struct torch::nn::AnyModulePlaceholder;                                                                          \
  bool _forward_has_default_args() override { return true; }                                                              \
  unsigned _forward_num_required_args() override {                                                                        \
    std::pair<unsigned, torch::nn::AnyValue> given[] = {__VA_ARGS__};                                                     \
    return given[0].first;                                                                                                \
  }                                                                                                                       \
  std::vector<torch::nn::AnyValue> _forward_populate_default_args(std::vector<torch::nn::AnyValue> arguments) override {  \
    std::pair<unsigned, torch::nn::AnyValue> given[] = {__VA_ARGS__};                                                     \
    for (auto& one : given) if (one.first >= arguments.size()) arguments.push_back(one.second);                           \
    return arguments;                                                                                                     \
  }

namespace torch {
namespace nn {

template <class ModuleType, class... ArgumentTypes>
struct AnyModulePlaceholder;

// A module of any type, called with values of any type.
class AnyModule {
 public:
  AnyModule() = default;
  template <class M, std::enable_if_t<std::is_base_of_v<Module, M>, int> = 0>
  AnyModule(std::shared_ptr<M> module) : module_(module), call_(wrap(module, &M::forward)) {}
  template <class M, std::enable_if_t<std::is_base_of_v<Module, std::decay_t<M>>, int> = 0>
  explicit AnyModule(M&& module) : AnyModule(std::make_shared<std::decay_t<M>>(std::forward<M>(module))) {}
  template <class M>
  AnyModule(const ModuleHolder<M>& holder) : AnyModule(holder.ptr()) {}

  AnyValue call(std::vector<AnyValue> arguments) {
    TORCH_CHECK(module_, "Cannot call forward() on an empty AnyModule");
    return call_(std::move(arguments));
  }
  template <class... Args>
  AnyValue any_forward(Args&&... args) { return call({AnyValue(std::decay_t<Args>(std::forward<Args>(args)))...}); }
  template <class Result = Tensor, class... Args>
  Result forward(Args&&... args) { return std::any_cast<Result>(any_forward(std::forward<Args>(args)...)); }
  std::shared_ptr<Module> ptr() const { return module_; }
  template <class M>
  auto get() const { return module_->template as<M>(); }
  bool is_empty() const noexcept { return !module_; }

 private:
  template <class M, class Result, class Class, class... Args>
  static std::function<AnyValue(std::vector<AnyValue>)> wrap(std::shared_ptr<M> module, Result (Class::*forward)(Args...)) {
    return [module, forward](std::vector<AnyValue> arguments) {
      if (arguments.size() < sizeof...(Args)) arguments = static_cast<Module&>(*module)._forward_populate_default_args(std::move(arguments));
      TORCH_CHECK(arguments.size() <= sizeof...(Args), module->name(), "'s forward() method expects ", sizeof...(Args),
                  " argument(s), but received ", arguments.size());
      return invoke<Args...>(*module, forward, arguments, std::index_sequence_for<Args...>());
    };
  }
  template <class... Args, class M, class Forward, size_t... I>
  static AnyValue invoke(M& module, Forward forward, std::vector<AnyValue>& arguments, std::index_sequence<I...>) {
    return AnyValue((module.*forward)(argument<Args>(arguments, I, module)...));
  }
  template <class A>
  static std::decay_t<A> argument(std::vector<AnyValue>& arguments, size_t at, const Module& module) {
    using T = std::decay_t<A>;
    if (at >= arguments.size()) {
      // Optional parameters of this library's modules.
      if constexpr (std::is_default_constructible_v<T>) {
        if constexpr (std::is_same_v<T, Tensor> || !std::is_arithmetic_v<T>) return T();
      }
      throw Error(str(module.name(), "'s forward() method expects more arguments; see FORWARD_HAS_DEFAULT_ARGS"));
    }
    T* held = std::any_cast<T>(&arguments[at]);
    TORCH_CHECK(held, "Expected argument #", at, " of ", module.name(), "'s forward() to be of type ", detail::type_name(typeid(T)),
                ", but received value of type ", detail::type_name(arguments[at].type()));
    return *held;
  }
  std::shared_ptr<Module> module_;
  std::function<AnyValue(std::vector<AnyValue>)> call_;
};

// A name and a module of a Sequential.
class NamedAnyModule {
 public:
  template <class M>
  NamedAnyModule(std::string name, M&& module) : name_(std::move(name)), module_(std::forward<M>(module)) {}
  const std::string& name() const { return name_; }
  AnyModule& module() { return module_; }
  const AnyModule& module() const { return module_; }

 private:
  std::string name_;
  AnyModule module_;
};

namespace detail {
template <class M>
struct is_module : std::integral_constant<bool, std::is_base_of_v<Module, std::decay_t<M>>> {};
template <class M, class = void>
struct is_holder : std::false_type {};
template <class M>
struct is_holder<M, std::void_t<typename std::decay_t<M>::ContainedType>> : std::true_type {};
template <class M>
std::shared_ptr<std::decay_t<M>> shared(M&& module) { return std::make_shared<std::decay_t<M>>(std::forward<M>(module)); }
}  // namespace detail

class SequentialImpl : public Cloneable<SequentialImpl> {
 public:
  using Iterator = std::vector<AnyModule>::iterator;
  using ConstIterator = std::vector<AnyModule>::const_iterator;

  SequentialImpl() = default;
  template <class... Modules, std::enable_if_t<(sizeof...(Modules) > 0) && !std::disjunction_v<std::is_base_of<SequentialImpl, std::decay_t<Modules>>...>, int> = 0>
  explicit SequentialImpl(Modules&&... modules) { (push_back(std::forward<Modules>(modules)), ...); }
  SequentialImpl(OrderedDict<std::string, AnyModule>&& modules) {
    for (auto& item : modules) push_back(item.key(), std::move(item.value()));
  }
  SequentialImpl(std::initializer_list<NamedAnyModule> modules) {
    for (const auto& named : modules) push_back(named.name(), named.module());
  }
  std::shared_ptr<Module> clone(const optional<Device>& = nullopt) const override {
    throw NotImplementedError("clone: Sequential cannot be copied; build it again and load its state with torch::save and torch::load");
  }
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::Sequential"; }

  template <class Result = Tensor, class... Args>
  Result forward(Args&&... args) {
    TORCH_CHECK(!is_empty(), "Cannot call forward() on an empty Sequential");
    AnyValue value = modules_[0].any_forward(std::forward<Args>(args)...);
    for (size_t i = 1; i < modules_.size(); ++i) value = modules_[i].call({std::move(value)});
    Result* result = std::any_cast<Result>(&value);
    TORCH_CHECK(result, "The type of the return value is ", detail::type_name(value.type()), ", but you asked for type ", detail::type_name(typeid(Result)));
    return std::move(*result);
  }

  void push_back(std::string name, AnyModule module) {
    register_module(std::move(name), module.ptr());
    modules_.push_back(std::move(module));
  }
  void push_back(AnyModule module) { push_back(std::to_string(modules_.size()), std::move(module)); }
  template <class M>
  void push_back(std::shared_ptr<M> module) { push_back(AnyModule(std::move(module))); }
  template <class M>
  void push_back(std::string name, std::shared_ptr<M> module) { push_back(std::move(name), AnyModule(std::move(module))); }
  template <class M, std::enable_if_t<detail::is_module<M>::value, int> = 0>
  void push_back(M&& module) { push_back(AnyModule(detail::shared(std::forward<M>(module)))); }
  template <class M, std::enable_if_t<detail::is_module<M>::value, int> = 0>
  void push_back(std::string name, M&& module) { push_back(std::move(name), AnyModule(detail::shared(std::forward<M>(module)))); }
  template <class M>
  void push_back(const ModuleHolder<M>& holder) { push_back(AnyModule(holder.ptr())); }
  template <class M>
  void push_back(std::string name, const ModuleHolder<M>& holder) { push_back(std::move(name), AnyModule(holder.ptr())); }
  void push_back(const NamedAnyModule& named) { push_back(named.name(), named.module()); }
  template <class Container>
  void extend(const Container& container) { for (const auto& module : container) push_back(module); }

  Iterator begin() { return modules_.begin(); }
  Iterator end() { return modules_.end(); }
  ConstIterator begin() const { return modules_.begin(); }
  ConstIterator end() const { return modules_.end(); }
  std::shared_ptr<Module> ptr(size_t at) const { return modules_.at(at).ptr(); }
  std::shared_ptr<Module> operator[](size_t at) const { return ptr(at); }
  template <class M>
  M& at(size_t at) { return *modules_.at(at).ptr()->as<M>(); }
  size_t size() const noexcept { return modules_.size(); }
  bool is_empty() const noexcept { return modules_.empty(); }

 private:
  std::vector<AnyModule> modules_;
};

class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  using Impl = SequentialImpl;
  Sequential() = default;
  Sequential(std::initializer_list<NamedAnyModule> modules) : ModuleHolder(std::make_shared<SequentialImpl>(modules)) {}
};

class ModuleListImpl : public Cloneable<ModuleListImpl> {
 public:
  using Iterator = std::vector<std::shared_ptr<Module>>::iterator;
  ModuleListImpl() = default;
  template <class... Modules, std::enable_if_t<(sizeof...(Modules) > 0) && !std::disjunction_v<std::is_base_of<ModuleListImpl, std::decay_t<Modules>>...>, int> = 0>
  explicit ModuleListImpl(Modules&&... modules) { (push_back(std::forward<Modules>(modules)), ...); }
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::ModuleList"; }
  void push_back(std::shared_ptr<Module> module) {
    register_module(std::to_string(list_.size()), module);
    list_.push_back(std::move(module));
  }
  template <class M, std::enable_if_t<detail::is_module<M>::value, int> = 0>
  void push_back(M&& module) { push_back(std::shared_ptr<Module>(detail::shared(std::forward<M>(module)))); }
  template <class M>
  void push_back(const ModuleHolder<M>& holder) { push_back(std::shared_ptr<Module>(holder.ptr())); }
  template <class Container>
  void extend(const Container& container) { for (const auto& module : container) push_back(module); }
  Iterator begin() { return list_.begin(); }
  Iterator end() { return list_.end(); }
  std::shared_ptr<Module> ptr(size_t at) const { return list_.at(at); }
  std::shared_ptr<Module> operator[](size_t at) const { return ptr(at); }
  template <class M>
  M& at(size_t at) { return *ptr(at)->as<M>(); }
  template <class M>
  std::shared_ptr<M> ptr(size_t at) const { return std::dynamic_pointer_cast<M>(list_.at(at)); }
  size_t size() const noexcept { return list_.size(); }
  bool is_empty() const noexcept { return list_.empty(); }

 private:
  std::vector<std::shared_ptr<Module>> list_;
};
TORCH_MODULE(ModuleList);

class ModuleDictImpl : public Cloneable<ModuleDictImpl> {
 public:
  ModuleDictImpl() = default;
  explicit ModuleDictImpl(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules) { update(modules); }
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::ModuleDict"; }
  template <class Items>
  void update(const Items& items) { for (const auto& item : items) register_module(item.first, item.second); }
  std::shared_ptr<Module> operator[](const std::string& key) const { return children_[key]; }
  bool contains(const std::string& key) const { return children_.contains(key); }
  std::vector<std::string> keys() const { return children_.keys(); }
  std::vector<std::shared_ptr<Module>> values() const { return children_.values(); }
  size_t size() const noexcept { return children_.size(); }
  bool empty() const noexcept { return children_.is_empty(); }
};
TORCH_MODULE(ModuleDict);

namespace detail {
inline void print_parameters(std::ostream& out, const char* name, const OrderedDict<std::string, Tensor>& parameters) {
  out << name << "(\n";
  for (const auto& item : parameters)
    out << "(" << item.key() << "): Parameter containing: [" << item.value().scalar_type() << " of size " << item.value().sizes() << "]\n";
  out << ")";
}
}  // namespace detail
class ParameterListImpl : public Cloneable<ParameterListImpl> {
 public:
  ParameterListImpl() = default;
  template <class... Tensors, std::enable_if_t<(sizeof...(Tensors) > 0) && std::conjunction_v<std::is_same<std::decay_t<Tensors>, Tensor>...>, int> = 0>
  explicit ParameterListImpl(Tensors&&... parameters) { (append(parameters), ...); }
  explicit ParameterListImpl(const std::vector<Tensor>& parameters) { for (const Tensor& p : parameters) append(p); }
  void reset() override {}
  void append(Tensor parameter) {
    bool requires_grad = parameter.requires_grad();
    register_parameter(std::to_string(parameters_.size()), std::move(parameter), requires_grad);
  }
  Tensor& at(size_t at) { return parameters_[std::to_string(at)]; }
  Tensor& operator[](size_t at) { return this->at(at); }
  template <class Container>
  void extend(const Container& container) { for (const Tensor& p : container) append(p); }
  std::vector<Tensor> values() const { return parameters_.values(); }
  size_t size() const noexcept { return parameters_.size(); }
  bool is_empty() const noexcept { return parameters_.is_empty(); }
  void pretty_print(std::ostream& out) const override { detail::print_parameters(out, "torch::nn::ParameterList", parameters_); }
};
TORCH_MODULE(ParameterList);
class ParameterDictImpl : public Cloneable<ParameterDictImpl> {
 public:
  using Iterator = OrderedDict<std::string, Tensor>::Iterator;
  ParameterDictImpl() = default;
  explicit ParameterDictImpl(const OrderedDict<std::string, Tensor>& parameters) { update(parameters); }
  void reset() override {}
  Tensor& insert(std::string key, Tensor parameter) {
    bool requires_grad = parameter.requires_grad();
    return register_parameter(std::move(key), std::move(parameter), requires_grad);
  }
  // Replaces parameters of the same names.
  void update(const OrderedDict<std::string, Tensor>& parameters) {
    for (const auto& item : parameters) {
      if (contains(item.key())) parameters_[item.key()] = item.value();
      else insert(item.key(), item.value());
    }
  }
  void update(const ParameterDictImpl& other) { update(other.parameters_); }
  Tensor pop(const std::string& key) {
    Tensor found = parameters_[key];
    parameters_.erase(key);
    return found;
  }
  Tensor& get(const std::string& key) { return parameters_[key]; }
  const Tensor& get(const std::string& key) const { return parameters_[key]; }
  Tensor& operator[](const std::string& key) { return parameters_[key]; }
  const Tensor& operator[](const std::string& key) const { return parameters_[key]; }
  std::vector<std::string> keys() const { return parameters_.keys(); }
  std::vector<Tensor> values() const { return parameters_.values(); }
  Iterator begin() { return parameters_.begin(); }
  Iterator end() { return parameters_.end(); }
  bool contains(const std::string& key) const noexcept { return parameters_.contains(key); }
  size_t size() const noexcept { return parameters_.size(); }
  bool empty() const noexcept { return parameters_.is_empty(); }
  void clear() { parameters_.clear(); }
  void pretty_print(std::ostream& out) const override { detail::print_parameters(out, "torch::nn::ParameterDict", parameters_); }
};
TORCH_MODULE(ParameterDict);

// A function as a module, with further arguments bound.
class FunctionalImpl : public Cloneable<FunctionalImpl> {
 public:
  using Function = std::function<Tensor(Tensor)>;
  explicit FunctionalImpl(Function function) : function_(std::move(function)) {}
  template <class Some, class... Args, std::enable_if_t<(sizeof...(Args) > 0), int> = 0>
  explicit FunctionalImpl(Some original, Args&&... args)
      : function_([original, bound = std::make_tuple(std::decay_t<Args>(args)...)](Tensor input) {
          return std::apply([&](const auto&... rest) { return original(input, rest...); }, bound);
        }) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::Functional()"; }
  Tensor forward(Tensor input) { return function_(std::move(input)); }
  Tensor operator()(Tensor input) { return forward(std::move(input)); }

 private:
  Function function_;
};
class Functional : public ModuleHolder<FunctionalImpl> {
 public:
  using ModuleHolder<FunctionalImpl>::ModuleHolder;
  using Impl = FunctionalImpl;
};

}  // namespace nn
}  // namespace torch
