// A dictionary in order of insertion.
#pragma once

#include <torch/base.h>

#include <unordered_map>

namespace torch {

template <class Key, class Value>
class OrderedDict {
 public:
  class Item {
   public:
    Item(Key key, Value value) : pair_(std::move(key), std::move(value)) {}
    Value& operator*() { return value(); }
    const Value& operator*() const { return value(); }
    Value* operator->() { return &value(); }
    const Value* operator->() const { return &value(); }
    const Key& key() const noexcept { return pair_.first; }
    Value& value() noexcept { return pair_.second; }
    const Value& value() const noexcept { return pair_.second; }
    const std::pair<Key, Value>& pair() const noexcept { return pair_; }

   private:
    std::pair<Key, Value> pair_;
  };
  using Iterator = typename std::vector<Item>::iterator;
  using ConstIterator = typename std::vector<Item>::const_iterator;

  explicit OrderedDict(std::string description = "Key") : description_(std::move(description)) {}
  OrderedDict(std::initializer_list<Item> items) : OrderedDict() {
    for (const auto& item : items) insert(item.key(), item.value());
  }
  size_t size() const noexcept { return items_.size(); }
  bool is_empty() const noexcept { return items_.empty(); }
  bool contains(const Key& key) const noexcept { return index_.count(key) != 0; }
  Iterator begin() { return items_.begin(); }
  Iterator end() { return items_.end(); }
  ConstIterator begin() const { return items_.begin(); }
  ConstIterator end() const { return items_.end(); }
  Item& front() { return items_.front(); }
  Item& back() { return items_.back(); }
  Item& operator[](size_t at) { return items_.at(at); }
  const Item& operator[](size_t at) const { return items_.at(at); }
  Value& operator[](const Key& key) {
    Value* found = find(key);
    TORCH_CHECK(found, description_, " '", key, "' is not defined");
    return *found;
  }
  const Value& operator[](const Key& key) const { return const_cast<OrderedDict&>(*this)[key]; }
  Value* find(const Key& key) noexcept {
    auto found = index_.find(key);
    return found == index_.end() ? nullptr : &items_[found->second].value();
  }
  const Value* find(const Key& key) const noexcept { return const_cast<OrderedDict&>(*this).find(key); }
  template <class V>
  Value& insert(Key key, V&& value) {
    TORCH_CHECK(!contains(key), description_, " '", key, "' already defined");
    index_.emplace(key, items_.size());
    items_.emplace_back(std::move(key), Value(std::forward<V>(value)));
    return items_.back().value();
  }
  void update(const OrderedDict& other) {
    for (const auto& item : other) insert(item.key(), item.value());
  }
  void erase(const Key& key) {
    size_t at = index_.at(key);
    items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(at));
    index_.clear();
    for (size_t i = 0; i < items_.size(); ++i) index_.emplace(items_[i].key(), i);
  }
  void clear() {
    items_.clear();
    index_.clear();
  }
  void reserve(size_t count) { items_.reserve(count); }
  const std::vector<Item>& items() const noexcept { return items_; }
  std::vector<Key> keys() const {
    std::vector<Key> all;
    for (const auto& item : items_) all.push_back(item.key());
    return all;
  }
  std::vector<Value> values() const {
    std::vector<Value> all;
    for (const auto& item : items_) all.push_back(item.value());
    return all;
  }
  std::vector<std::pair<Key, Value>> pairs() const {
    std::vector<std::pair<Key, Value>> all;
    for (const auto& item : items_) all.push_back(item.pair());
    return all;
  }

 private:
  std::unordered_map<Key, size_t> index_;
  std::vector<Item> items_;
  std::string description_;
};

}  // namespace torch
