// torch::nn::Module, its holder, and the types that hold modules of any kind.
#pragma once

#include <torch/ordered_dict.h>
#include <torch/serialize.h>

#include <any>
#include <typeinfo>

#if defined(__GNUG__)
#include <cxxabi.h>
#endif

// An option of a struct: a setter that returns the struct, and getters.
#define TORCH_ARG(T, name)                                                                 \
 public:                                                                                   \
  auto name(T new_##name) -> decltype(*this) { /* NOLINT */                                \
    this->name##_ = static_cast<T&&>(new_##name);                                          \
    return *this;                                                                          \
  }                                                                                        \
  const T& name() const noexcept { return this->name##_; }                                 \
  T& name() noexcept { return this->name##_; }                                             \
                                                                                           \
 private:                                                                                  \
  T name##_ /* NOLINT */

namespace torch {
namespace nn {

using AnyValue = std::any;
class Module;

namespace detail {
inline std::string type_name(const std::type_info& type) {
  std::string name = type.name();
#if defined(__GNUG__)
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  if (status == 0) name = text;
  std::free(text);
#endif
  return name;
}
}  // namespace detail

template <class T>
class ModuleHolder;

class Module : public std::enable_shared_from_this<Module> {
  template <class M, class = void>
  struct impl_of { using type = M; };
  template <class M>
  struct impl_of<M, std::void_t<typename M::ContainedType>> { using type = typename M::ContainedType; };

 public:
  Module() = default;
  explicit Module(std::string name) : name_(std::move(name)) {}
  Module(const Module&) = default;
  Module& operator=(const Module&) = default;
  virtual ~Module() = default;

  const std::string& name() const {
    if (!name_) {
      std::string full = detail::type_name(typeid(*this));
      if (full.size() > 4 && full.compare(full.size() - 4, 4, "Impl") == 0) full.resize(full.size() - 4);
      name_ = full;
    }
    return *name_;
  }
  bool is_training() const noexcept { return training_; }
  virtual void train(bool on = true) {
    for (auto& child : children_) child.value()->train(on);
    training_ = on;
  }
  void eval() { train(false); }

  std::vector<Tensor> parameters(bool recurse = true) const { return named_parameters(recurse).values(); }
  OrderedDict<std::string, Tensor> named_parameters(bool recurse = true) const { return collect(&Module::parameters_, recurse); }
  std::vector<Tensor> buffers(bool recurse = true) const { return named_buffers(recurse).values(); }
  OrderedDict<std::string, Tensor> named_buffers(bool recurse = true) const { return collect(&Module::buffers_, recurse); }
  std::vector<std::shared_ptr<Module>> children() const { return children_.values(); }
  OrderedDict<std::string, std::shared_ptr<Module>> named_children() const { return children_; }
  std::vector<std::shared_ptr<Module>> modules(bool include_self = true) const { return named_modules("", include_self).values(); }
  OrderedDict<std::string, std::shared_ptr<Module>> named_modules(const std::string& prefix = {}, bool include_self = true) const {
    OrderedDict<std::string, std::shared_ptr<Module>> all;
    if (include_self) {
      auto self = std::const_pointer_cast<Module>(weak_from_this().lock());
      TORCH_CHECK(self, "modules(include_self=true) needs a module held by a shared_ptr");
      all.insert(prefix, self);
    }
    descend(prefix, [&](const std::string& path, const std::shared_ptr<Module>& module) { all.insert(path, module); });
    return all;
  }
  void apply(const std::function<void(Module&)>& function) {
    function(*this);
    for (auto& child : children_) child.value()->apply(function);
  }
  void apply(const std::function<void(const std::string&, Module&)>& function, const std::string& prefix = {}) {
    function(prefix, *this);
    for (auto& child : children_) child.value()->apply(function, prefix.empty() ? child.key() : prefix + "." + child.key());
  }

  virtual void zero_grad(bool set_to_none = true) { torch::detail::clear_gradients(parameters(), set_to_none); }
  virtual void to(Device device, ScalarType type, bool non_blocking = false) { move(device, type, non_blocking); }
  virtual void to(ScalarType type, bool non_blocking = false) { move(nullopt, type, non_blocking); }
  virtual void to(Device device, bool non_blocking = false) { move(device, nullopt, non_blocking); }
  void to(DeviceType device, bool non_blocking = false) { to(Device(device), non_blocking); }

  virtual void save(serialize::OutputArchive& archive) const {
    for (const auto& parameter : parameters_) if (parameter.value().defined()) archive.write(parameter.key(), parameter.value());
    for (const auto& buffer : buffers_) if (buffer.value().defined()) archive.write(buffer.key(), buffer.value(), true);
    for (const auto& child : children_) {
      serialize::OutputArchive nested;
      child.value()->save(nested);
      archive.write(child.key(), nested);
    }
  }
  virtual void load(serialize::InputArchive& archive) {
    for (auto& parameter : parameters_) if (parameter.value().defined()) archive.read(parameter.key(), parameter.value());
    for (auto& buffer : buffers_) if (buffer.value().defined()) archive.read(buffer.key(), buffer.value(), true);
    for (auto& child : children_) {
      serialize::InputArchive nested;
      archive.read(child.key(), nested);
      child.value()->load(nested);
    }
  }

  virtual void pretty_print(std::ostream& out) const { out << name(); }
  // A copy with parameters of its own.
  virtual std::shared_ptr<Module> clone(const optional<Device>& device = nullopt) const {
    NoGradGuard no_grad;
    std::shared_ptr<Module> copy(copied());
    TORCH_CHECK_NOT_IMPLEMENTED(copy, "clone() has not been implemented for ", name(), ". Subclass torch::nn::Cloneable<", name(),
                                "> instead of torch::nn::Module to inherit the ability to clone.");
    copy->parameters_.clear();
    copy->buffers_.clear();
    copy->children_.clear();
    copy->remake();
    auto fill = [&](OrderedDict<std::string, Tensor> to, const OrderedDict<std::string, Tensor>& from) {
      TORCH_CHECK(to.size() == from.size(), "The cloned module does not have the same number of parameters or buffers as the original module "
                  "after calling reset(). Are you sure you called register_parameter() inside reset() and not the constructor?");
      for (const auto& item : from) {
        Tensor value = item.value().clone();
        to[item.key()].set_data(device ? value.to(*device) : value);
      }
    };
    fill(copy->named_parameters(), named_parameters());
    fill(copy->named_buffers(), named_buffers());
    return copy;
  }

  // This module as one of another type, or null.
  template <class M>
  auto as() noexcept { return dynamic_cast<typename impl_of<M>::type*>(this); }
  template <class M>
  auto as() const noexcept { return dynamic_cast<const typename impl_of<M>::type*>(this); }

  Tensor& register_parameter(std::string name, Tensor tensor, bool requires_grad = true) {
    check_name("Parameter", name);
    if (tensor.defined() && tensor.is_floating_point()) tensor.set_requires_grad(requires_grad);
    return parameters_.insert(std::move(name), std::move(tensor));
  }
  Tensor& register_buffer(std::string name, Tensor tensor) {
    check_name("Buffer", name);
    return buffers_.insert(std::move(name), std::move(tensor));
  }
  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    check_name("Submodule", name);
    return std::dynamic_pointer_cast<M>(children_.insert(std::move(name), std::move(module)));
  }
  template <class M>
  std::shared_ptr<M> register_module(std::string name, ModuleHolder<M> holder) { return register_module(std::move(name), holder.ptr()); }
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, std::shared_ptr<M> module) {
    children_[name] = module;
    return module;
  }
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, ModuleHolder<M> holder) { return replace_module(name, holder.ptr()); }
  void unregister_module(const std::string& name) {
    TORCH_CHECK(children_.contains(name), "No Module with name `", name, "` is registered");
    children_.erase(name);
  }

  // For FORWARD_HAS_DEFAULT_ARGS.
  virtual unsigned _forward_num_required_args() { return 0; }
  virtual bool _forward_has_default_args() { return false; }
  virtual std::vector<AnyValue> _forward_populate_default_args(std::vector<AnyValue> arguments) { return arguments; }

 protected:
  // A copy of the object, and its parameters made anew; for Cloneable.
  virtual Module* copied() const { return nullptr; }
  virtual void remake() {}

  OrderedDict<std::string, Tensor> parameters_, buffers_;
  OrderedDict<std::string, std::shared_ptr<Module>> children_;

 private:
  template <class F>
  void descend(const std::string& prefix, const F& function) const {
    for (const auto& child : children_) {
      std::string path = prefix.empty() ? child.key() : prefix + "." + child.key();
      function(path, child.value());
      child.value()->descend(path, function);
    }
  }
  OrderedDict<std::string, Tensor> collect(OrderedDict<std::string, Tensor> Module::*kept, bool recurse) const {
    OrderedDict<std::string, Tensor> all;
    for (const auto& item : this->*kept) if (item.value().defined()) all.insert(item.key(), item.value());
    if (recurse)
      descend("", [&](const std::string& path, const std::shared_ptr<Module>& module) {
        for (const auto& item : (*module).*kept) if (item.value().defined()) all.insert(path + "." + item.key(), item.value());
      });
    return all;
  }
  void move(optional<Device> device, optional<ScalarType> type, bool non_blocking) {
    for (auto& child : children_) child.value()->move(device, type, non_blocking);
    for (auto* kept : {&parameters_, &buffers_})
      for (auto& item : *kept) {
        Tensor& tensor = item.value();
        if (!tensor.defined()) continue;
        TensorOptions options;
        if (device) options = options.device(*device);
        if (type && (tensor.is_floating_point() || !isFloatingType(*type))) options = options.dtype(*type);
        Tensor moved = tensor.to(options, non_blocking);
        if (!moved.is_same(tensor)) tensor.set_data(moved);
      }
  }
  void check_name(const char* kind, const std::string& name) const {
    TORCH_CHECK(!name.empty(), kind, " name must not be empty");
    TORCH_CHECK(name.find('.') == std::string::npos, kind, " name must not contain a dot (got '", name, "')");
  }

  mutable optional<std::string> name_;
  bool training_ = true;
};

inline void print_module(std::ostream& out, const Module& module, const std::string& indent) {
  module.pretty_print(out);
  auto children = module.named_children();
  if (children.is_empty()) return;
  out << "(\n";
  for (const auto& child : children) {
    out << indent << "  (" << child.key() << "): ";
    print_module(out, *child.value(), indent + "  ");
    out << '\n';
  }
  out << indent << ")";
}
inline std::ostream& operator<<(std::ostream& out, const Module& module) {
  print_module(out, module, "");
  return out;
}

// A module that can copy itself: `reset` makes its parameters and children.
template <class Derived>
class Cloneable : public Module {
 public:
  using Module::Module;
  virtual void reset() = 0;

 protected:
  Module* copied() const override { return new Derived(static_cast<const Derived&>(*this)); }
  void remake() override { reset(); }
};

}  // namespace nn
}  // namespace torch
