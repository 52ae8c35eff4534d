// torch::serialize: archives in files that PyTorch's torch.load reads.
#pragma once

#include <torch/autograd.h>

namespace torch {
namespace detail {

// A value of a file.
class Object {
 public:
  Object() = default;
  explicit Object(rl_object* object) : object_(object) {}
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { rl_object_free(object_); }
  static Object dict(bool ordered) { return Object(rl_object_dict(ordered)); }
  static Object list() { return Object(rl_object_list()); }
  static Object of(const rl_value& value) {
    rl_object* out = nullptr;
    check(rl_object_new(&value, &out));
    return Object(out);
  }
  static Object load(const std::string& path) {
    rl_object* out = nullptr;
    check(rl_load(path.c_str(), &out));
    return Object(out);
  }
  static Object load(std::istream& in) {
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    rl_object* out = nullptr;
    check(rl_load_bytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &out));
    return Object(out);
  }
  void save(const std::string& path) const { check(rl_save(object_, path.c_str())); }
  void save(std::ostream& out) const {
    uint8_t* bytes = nullptr;
    size_t count = 0;
    check(rl_save_bytes(object_, &bytes, &count));
    out.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(count));
    rl_bytes_free(bytes, count);
  }
  void add(const char* key, Object entry) { check(rl_object_add(object_, key, std::exchange(entry.object_, nullptr))); }
  size_t size() const { return rl_object_count(object_); }
  bool is_dict() const { return rl_object_is_dict(object_); }
  bool is_tuple() const { return rl_object_is_tuple(object_); }
  bool is_list() const { return rl_object_is_list(object_); }
  std::string key(size_t at) const {
    char* text = rl_object_key(object_, at);
    std::string key = text ? text : "";
    rl_string_free(text);
    return key;
  }
  Object entry(size_t at) const {
    rl_object* out = nullptr;
    check(rl_object_entry(object_, at, &out));
    return Object(out);
  }
  Object find(const std::string& key) const {
    rl_object* out = nullptr;
    check(rl_object_find(object_, key.c_str(), &out));
    return Object(out);
  }
  explicit operator bool() const { return object_ != nullptr; }
  rl_object* get() const { return object_; }
  rl_object* release() { return std::exchange(object_, nullptr); }
  IValue value() const {
    rl_value value;
    check(rl_object_value(object_, &value));
    switch (value.kind) {
      case RL_TENSOR: return IValue(Tensor(value.data.tensor));
      case RL_BOOL: return IValue(value.data.integer != 0);
      case RL_INT: return IValue(value.data.integer);
      case RL_FLOAT: return IValue(value.data.number);
      case RL_STRING: return IValue(std::string(value.data.text, value.count));
      default: return IValue();
    }
  }

 private:
  rl_object* object_ = nullptr;
};

}  // namespace detail

namespace serialize {

// Named tensors and values; entries of inner archives have names with a dot.
class OutputArchive {
  using Entry = std::pair<std::string, IValue>;

 public:
  void write(const std::string& key, const Tensor& tensor, bool /*is_buffer*/ = false) { entries_.push_back(Entry(key, tensor)); }
  void write(const std::string& key, OutputArchive& nested) {
    for (auto& entry : nested.entries_) entries_.push_back(Entry(key + "." + entry.first, entry.second));
  }
  void write(const std::string& key, const IValue& value) { entries_.push_back(Entry(key, value)); }
  // The whole file, for values that are not named tensors.
  void set(detail::Object object) { whole_ = std::make_shared<detail::Object>(std::move(object)); }
  template <class Target>
  void save_to(Target&& target) const {
    if (whole_) return whole_->save(target);
    detail::Object dict = detail::Object::dict(true);
    for (const auto& [key, value] : entries_) dict.add(key.c_str(), object(value));
    dict.save(target);
  }

 private:
  static detail::Object object(const IValue& value) {
    using detail::v;
    if (value.isTensor()) return detail::Object::of(v(value.toTensor()));
    if (value.isBool()) return detail::Object::of(v(value.toBool()));
    if (value.isInt()) return detail::Object::of(v(value.toInt()));
    if (value.isDouble()) return detail::Object::of(v(value.toDouble()));
    if (value.isString()) return detail::Object::of(v(string_view(value.toStringRef())));
    return detail::Object::of(v(nullopt));
  }
  std::vector<Entry> entries_;
  std::shared_ptr<detail::Object> whole_;
};

class InputArchive {
 public:
  template <class Source>
  void load_from(Source&& source) { file_ = std::make_shared<detail::Object>(detail::Object::load(source)); }
  void load_from(const std::string& path, optional<Device>) { load_from(path); }
  bool try_read(const std::string& key, Tensor& tensor, bool /*is_buffer*/ = false) {
    IValue value;
    if (!try_read(key, value) || !value.isTensor()) return false;
    Tensor found = value.toTensor();
    if (!tensor.defined()) {
      tensor = found;
    } else {
      NoGradGuard no_grad;
      TORCH_CHECK(tensor.sizes() == found.sizes(), "size mismatch for ", prefix_, key, ": the file has ", found.sizes(), ", the model ", tensor.sizes());
      tensor.data().copy_(found.to(tensor.options()));
    }
    return true;
  }
  bool try_read(const std::string& key, IValue& value) {
    if (!file_ || !file_->is_dict()) return false;
    detail::Object found = file_->find(prefix_ + key);
    if (!found) return false;
    value = found.value();
    return true;
  }
  bool try_read(const std::string& key, InputArchive& nested) {
    nested.file_ = file_;
    nested.prefix_ = prefix_ + key + ".";
    return file_ != nullptr;
  }
  void read(const std::string& key, Tensor& tensor, bool is_buffer = false) {
    TORCH_CHECK(try_read(key, tensor, is_buffer), "No such serialized tensor '", prefix_, key, "'");
  }
  void read(const std::string& key, IValue& value) { TORCH_CHECK(try_read(key, value), "No such serialized value '", prefix_, key, "'"); }
  void read(const std::string& key, InputArchive& nested) { TORCH_CHECK(try_read(key, nested), "No such serialized submodule: '", prefix_, key, "'"); }
  const detail::Object& file() const { return *file_; }

 private:
  std::shared_ptr<detail::Object> file_;
  std::string prefix_;
};

}  // namespace serialize

namespace detail {
template <class T, class = void>
struct is_archivable : std::false_type {};
template <class T>
struct is_archivable<T, std::void_t<decltype(std::declval<const T&>().save(std::declval<serialize::OutputArchive&>()))>> : std::true_type {};
}  // namespace detail

// Writes a tensor, tensors, a module or an optimizer to a path or a stream.
template <class Target>
void save(const Tensor& tensor, Target&& target) { detail::Object::of(detail::v(tensor)).save(target); }
template <class Target>
void save(const std::vector<Tensor>& tensors, Target&& target) {
  detail::Object list = detail::Object::list();
  for (const Tensor& tensor : tensors) list.add(nullptr, detail::Object::of(detail::v(tensor)));
  list.save(target);
}
template <class T, class Target, std::enable_if_t<!std::is_convertible_v<const T&, Tensor>, int> = 0>
void save(const T& value, Target&& target) {
  serialize::OutputArchive archive;
  if constexpr (detail::is_archivable<T>::value) value.save(archive);
  else value->save(archive);
  archive.save_to(target);
}

// Reads what save wrote, or a state dict that PyTorch wrote.
template <class Source>
void load(Tensor& tensor, Source&& source) {
  detail::Object file = detail::Object::load(source);
  if (file.size() == 1) file = file.entry(0);
  tensor = file.value().toTensor();
}
template <class Source>
void load(std::vector<Tensor>& tensors, Source&& source) {
  detail::Object file = detail::Object::load(source);
  for (size_t i = 0; i < file.size(); ++i) tensors.push_back(file.entry(i).value().toTensor());
}
template <class T, class Source, class... Rest>
void load(T& value, Source&& source, Rest&&...) {
  serialize::InputArchive archive;
  archive.load_from(source);
  if constexpr (detail::is_archivable<T>::value) value.load(archive);
  else value->load(archive);
}

}  // namespace torch
