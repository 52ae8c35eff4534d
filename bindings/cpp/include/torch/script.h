// torch::jit: models that left their source, read from .rlm files, archives of torch.jit and torch.export, ONNX files.
#pragma once

#include <torch/torch.h>

#include <unordered_map>

namespace torch {
namespace jit {
using torch::IValue;
namespace detail {

using torch::detail::check;
using torch::detail::Object;

// A value as an object of the library.
inline Object object(const IValue& value) {
  using torch::detail::v;
  if (value.isTensor()) return Object::of(v(value.toTensor()));
  if (value.isBool()) return Object::of(v(value.toBool()));
  if (value.isInt()) return Object::of(v(value.toInt()));
  if (value.isDouble()) return Object::of(v(value.toDouble()));
  if (value.isString()) return Object::of(v(string_view(value.toStringRef())));
  if (value.isNone()) return Object::of(v(nullopt));
  Object list = Object::list();
  if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector()) list.add(nullptr, object(IValue(tensor)));
    return list;
  }
  TORCH_CHECK(value.isTuple() || value.isList(), "a model takes tensors, numbers, text and lists of them");
  for (const IValue& item : value.toTupleRef().elements()) list.add(nullptr, object(item));
  return list;
}

// An object's value.
inline IValue value(const Object& object) {
  if (object.is_dict()) {
    auto dict = std::make_shared<ivalue::Dict>();
    for (size_t i = 0; i < object.size(); ++i) dict->entries.emplace_back(object.key(i), value(object.entry(i)));
    return IValue(std::move(dict));
  }
  if (object.is_tuple() || object.is_list()) {
    auto items = std::make_shared<ivalue::Tuple>();
    items->is_list = object.is_list();
    for (size_t i = 0; i < object.size(); ++i) items->items.push_back(value(object.entry(i)));
    return IValue(std::move(items));
  }
  return object.value();
}

struct Held {
  explicit Held(rl_model* model) : model(model) {}
  Held(const Held&) = delete;
  ~Held() { rl_model_free(model); }
  rl_model* model;
};

}  // namespace detail

// Files beside the program in an archive, by name.
using ExtraFilesMap = std::unordered_map<std::string, std::string>;

namespace detail {
// Fills the files that are asked for; those that the archive lacks stay as they are.
template <class Read>
void read_extra(ExtraFilesMap& files, Read read) {
  for (auto& [name, content] : files) {
    uint8_t* bytes = nullptr;
    size_t count = 0;
    check(read(name.c_str(), &bytes, &count));
    if (!bytes) continue;
    content.assign(reinterpret_cast<const char*>(bytes), count);
    rl_bytes_free(bytes, count);
  }
}
}  // namespace detail

struct NamedTensor {
  std::string name;
  Tensor value;
};

// A loaded model. Copies are the same model.
class Module {
 public:
  Module() = default;
  explicit Module(rl_model* model) : held_(std::make_shared<detail::Held>(model)) {}
  IValue forward(std::vector<IValue> inputs) { return run("forward", inputs); }
  IValue operator()(std::vector<IValue> inputs) { return run("forward", inputs); }
  template <class... Args>
  IValue run_method(const std::string& name, Args&&... args) {
    return run(name, {IValue(std::forward<Args>(args))...});
  }
  void train(bool on = true) {
    detail::check(rl_model_train(model(), on));
    training_ = on;
  }
  void eval() { train(false); }
  bool is_training() const { return training_; }
  void to(Device device, bool /*non_blocking*/ = false) {
    rl_model* out = nullptr;
    detail::check(rl_model_to(model(), static_cast<int32_t>(device.type()), device.index() < 0 ? 0 : static_cast<size_t>(device.index()), &out));
    held_ = std::make_shared<detail::Held>(out);
  }
  std::vector<NamedTensor> named_parameters() const { return state(true); }
  std::vector<NamedTensor> named_buffers() const { return state(false); }
  std::vector<Tensor> parameters() const { return tensors(true); }
  std::vector<Tensor> buffers() const { return tensors(false); }
  // A TorchScript archive if the path ends in .pt, .pth or .ts, else a .rlm file.
  void save(const std::string& path, const ExtraFilesMap& extra_files = {}) const {
    std::vector<const char*> names;
    std::vector<const uint8_t*> contents;
    std::vector<size_t> sizes;
    for (const auto& [name, content] : extra_files) {
      names.push_back(name.c_str());
      contents.push_back(reinterpret_cast<const uint8_t*>(content.data()));
      sizes.push_back(content.size());
    }
    detail::check(rl_model_save_with(model(), path.c_str(), names.data(), contents.data(), sizes.data(), names.size()));
  }
  Module frozen() const {
    rl_model* out = nullptr;
    detail::check(rl_model_freeze(model(), &out));
    return Module(out);
  }

 private:
  rl_model* model() const {
    TORCH_CHECK(held_, "the module is empty; torch::jit::load reads one");
    return held_->model;
  }
  IValue run(const std::string& method, const std::vector<IValue>& inputs) const {
    detail::Object list = detail::Object::list();
    for (const IValue& input : inputs) list.add(nullptr, detail::object(input));
    rl_object* out = nullptr;
    detail::check(rl_model_call(model(), method.c_str(), list.get(), &out));
    return detail::value(detail::Object(out));
  }
  std::vector<NamedTensor> state(bool wanted) const {
    rl_object* out = nullptr;
    detail::check(rl_model_state(model(), &out));
    detail::Object dict(out);
    std::vector<NamedTensor> found;
    for (size_t i = 0; i < dict.size(); ++i) {
      Tensor tensor = dict.entry(i).value().toTensor();
      if (tensor.requires_grad() == wanted) found.push_back({dict.key(i), tensor});
    }
    return found;
  }
  std::vector<Tensor> tensors(bool wanted) const {
    std::vector<Tensor> found;
    for (auto& entry : state(wanted)) found.push_back(entry.value);
    return found;
  }
  std::shared_ptr<detail::Held> held_;
  bool training_ = true;
};

inline Module load(const std::string& path, optional<Device> device = nullopt) {
  rl_model* out = nullptr;
  detail::check(rl_model_load(path.c_str(), &out));
  Module module(out);
  if (device) module.to(*device);
  return module;
}
inline Module load(const std::string& path, optional<Device> device, ExtraFilesMap& extra_files) {
  Module module = load(path, device);
  detail::read_extra(extra_files, [&](const char* name, uint8_t** bytes, size_t* count) { return rl_model_extra(path.c_str(), name, bytes, count); });
  return module;
}
inline Module load(std::istream& in, optional<Device> device, ExtraFilesMap& extra_files) {
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  rl_model* out = nullptr;
  detail::check(rl_model_load_bytes(data, bytes.size(), &out));
  Module module(out);
  if (device) module.to(*device);
  detail::read_extra(extra_files, [&](const char* name, uint8_t** found, size_t* count) { return rl_model_extra_bytes(data, bytes.size(), name, found, count); });
  return module;
}
inline Module load(std::istream& in, optional<Device> device = nullopt) {
  ExtraFilesMap none;
  return load(in, device, none);
}
inline Module freeze(const Module& module) { return module.frozen(); }
inline Module optimize_for_inference(const Module& module) { return module.frozen(); }

namespace script {
using Module = jit::Module;
}
}  // namespace jit
}  // namespace torch
