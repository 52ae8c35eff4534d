// A dictionary in order of insertion.
#pragma once

#include <torch/base.h>

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
  bool contains(const Key& key) const noexcept { return find(key) != nullptr; }
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
    const size_t at = place(key);
    return found(at, key) ? &items_[order_[at]].value() : nullptr;
  }
  const Value* find(const Key& key) const noexcept { return const_cast<OrderedDict&>(*this).find(key); }
  template <class V>
  Value& insert(Key key, V&& value) {
    const size_t at = place(key);
    TORCH_CHECK(!found(at, key), description_, " '", key, "' already defined");
    order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(at), items_.size());
    items_.emplace_back(std::move(key), Value(std::forward<V>(value)));
    return items_.back().value();
  }
  void update(const OrderedDict& other) {
    for (const auto& item : other) insert(item.key(), item.value());
  }
  void erase(const Key& key) {
    const size_t at = place(key);
    TORCH_CHECK(found(at, key), description_, " '", key, "' is not defined");
    const size_t gone = order_[at];
    order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(at));
    for (size_t& number : order_) number -= number > gone;
    items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(gone));
  }
  void clear() {
    items_.clear();
    order_.clear();
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
  // The first place in `order_`, items' numbers by key, whose key is not less. A hash table would take compile time.
  size_t place(const Key& key) const noexcept {
    size_t from = 0, to = order_.size();
    while (from < to) {
      const size_t middle = (from + to) / 2;
      if (items_[order_[middle]].key() < key) from = middle + 1;
      else to = middle;
    }
    return from;
  }
  bool found(size_t at, const Key& key) const noexcept { return at < order_.size() && items_[order_[at]].key() == key; }
  std::vector<size_t> order_;
  std::vector<Item> items_;
  std::string description_;
};

}  // namespace torch
