// torch::data: datasets, transforms, samplers, loaders with workers.
#pragma once

#include <torch/autograd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

namespace torch {
namespace data {

// A sample, or a batch of them.
template <class Data = Tensor, class Target = Tensor>
struct Example {
  using DataType = Data;
  using TargetType = Target;
  Example() = default;
  Example(Data data, Target target) : data(std::move(data)), target(std::move(target)) {}
  Data data;
  Target target;
};
namespace example {
using NoTarget = struct NoTargetType {};
}
template <class Data>
struct Example<Data, example::NoTarget> {
  using DataType = Data;
  using TargetType = example::NoTarget;
  Example() = default;
  Example(Data data) : data(std::move(data)) {}
  operator Data&() { return data; }
  Data data;
};
using TensorExample = Example<Tensor, example::NoTarget>;

// Transforms.
namespace transforms {

template <class Input, class Output>
class BatchTransform {
 public:
  using InputBatchType = Input;
  using OutputBatchType = Output;
  virtual ~BatchTransform() = default;
  virtual Output apply_batch(Input input) = 0;
};
template <class Input, class Output>
class Transform : public BatchTransform<std::vector<Input>, std::vector<Output>> {
 public:
  using InputType = Input;
  using OutputType = Output;
  virtual Output apply(Input input) = 0;
  std::vector<Output> apply_batch(std::vector<Input> inputs) override {
    std::vector<Output> outputs;
    outputs.reserve(inputs.size());
    for (auto& input : inputs) outputs.push_back(apply(std::move(input)));
    return outputs;
  }
};
template <class Target = Tensor>
class TensorTransform : public Transform<Example<Tensor, Target>, Example<Tensor, Target>> {
 public:
  using E = Example<Tensor, Target>;
  virtual Tensor operator()(Tensor input) = 0;
  E apply(E input) override {
    input.data = (*this)(std::move(input.data));
    return input;
  }
};
template <class Input, class Output = Input>
class Lambda : public Transform<Input, Output> {
 public:
  explicit Lambda(std::function<Output(Input)> function) : function_(std::move(function)) {}
  Output apply(Input input) override { return function_(std::move(input)); }

 private:
  std::function<Output(Input)> function_;
};
template <class Target = Tensor>
class TensorLambda : public TensorTransform<Target> {
 public:
  explicit TensorLambda(std::function<Tensor(Tensor)> function) : function_(std::move(function)) {}
  Tensor operator()(Tensor input) override { return function_(std::move(input)); }

 private:
  std::function<Tensor(Tensor)> function_;
};
// Subtracts a mean and divides by a deviation, by channel.
template <class Target = Tensor>
class Normalize : public TensorTransform<Target> {
 public:
  Normalize(ArrayRef<double> mean, ArrayRef<double> stddev) : mean_(channels(mean)), stddev_(channels(stddev)) {}
  Tensor operator()(Tensor input) override { return input.sub(mean_).div(stddev_); }

 private:
  static Tensor channels(ArrayRef<double> values) { return torch::tensor(values.vec(), kFloat).unsqueeze(1).unsqueeze(2); }
  Tensor mean_, stddev_;
};
// Joins samples to a batch.
template <class E = Example<>>
class Stack : public BatchTransform<std::vector<E>, E> {
 public:
  E apply_batch(std::vector<E> examples) override {
    std::vector<Tensor> data, target;
    for (auto& example : examples) {
      data.push_back(std::move(example.data));
      if constexpr (!std::is_same_v<typename E::TargetType, example::NoTarget>) target.push_back(std::move(example.target));
    }
    if constexpr (std::is_same_v<typename E::TargetType, example::NoTarget>) return E(torch::stack(data));
    else return E(torch::stack(data), torch::stack(target));
  }
};
template <>
class Stack<Tensor> : public BatchTransform<std::vector<Tensor>, Tensor> {
 public:
  Tensor apply_batch(std::vector<Tensor> examples) override { return torch::stack(examples); }
};
template <class E = Example<>>
using Collation = BatchTransform<std::vector<E>, E>;
template <class E = Example<>>
using Collate = Lambda<std::vector<E>, E>;

}  // namespace transforms

// Datasets.
namespace datasets {

template <class Source, class Applied>
class MapDataset;
template <class D, class T>
MapDataset<D, T> map(D dataset, T transform);

template <class Self, class Batch = std::vector<Example<>>, class Request = ArrayRef<size_t>>
class BatchDataset {
 public:
  using SelfType = Self;
  using BatchType = Batch;
  using BatchRequestType = Request;
  static constexpr bool is_stateful = false;
  virtual ~BatchDataset() = default;
  virtual Batch get_batch(Request request) = 0;
  virtual optional<size_t> size() const = 0;
  template <class T>
  MapDataset<Self, T> map(T transform) & { return MapDataset<Self, T>(static_cast<Self&>(*this), std::move(transform)); }
  template <class T>
  MapDataset<Self, T> map(T transform) && { return MapDataset<Self, T>(std::move(static_cast<Self&>(*this)), std::move(transform)); }
};
template <class Self, class Single = Example<>>
class Dataset : public BatchDataset<Self, std::vector<Single>> {
 public:
  using ExampleType = Single;
  virtual Single get(size_t index) = 0;
  std::vector<Single> get_batch(ArrayRef<size_t> indices) override {
    std::vector<Single> batch;
    batch.reserve(indices.size());
    for (size_t index : indices) batch.push_back(get(index));
    return batch;
  }
};
// Samples in a stream: a batch of a number of samples, or none at the end.
template <class Self, class Batch = std::vector<Example<>>>
using StreamDataset = BatchDataset<Self, Batch, size_t>;

// Batches in an order of the dataset's own, until one is missing; `reset` starts a pass.
template <class Self, class Batch = std::vector<Example<>>, class Request = size_t>
class StatefulDataset : public BatchDataset<Self, optional<Batch>, Request> {
 public:
  static constexpr bool is_stateful = true;
  virtual void reset() = 0;
};

namespace detail {
// A dataset's batch, without its `optional`.
template <class Batch>
struct unwrapped { using type = Batch; };
template <class Batch>
struct unwrapped<optional<Batch>> { using type = Batch; };
template <class Source>
using unwrapped_t = typename unwrapped<typename Source::BatchType>::type;
template <class Source, class Batch>
using batch_of = std::conditional_t<Source::is_stateful, optional<Batch>, Batch>;
}  // namespace detail

// A dataset whose copies are one dataset.
template <class Source>
class SharedBatchDataset : public BatchDataset<SharedBatchDataset<Source>, typename Source::BatchType, typename Source::BatchRequestType> {
 public:
  static constexpr bool is_stateful = Source::is_stateful;
  SharedBatchDataset(std::shared_ptr<Source> dataset) : dataset_(std::move(dataset)) {}
  typename Source::BatchType get_batch(typename Source::BatchRequestType request) override { return dataset_->get_batch(std::move(request)); }
  optional<size_t> size() const override { return dataset_->size(); }
  Source& operator*() { return *dataset_; }
  const Source& operator*() const { return *dataset_; }
  Source* operator->() { return dataset_.get(); }
  const Source* operator->() const { return dataset_.get(); }
  void reset() { dataset_->reset(); }

 private:
  std::shared_ptr<Source> dataset_;
};
template <class Source, class... Args>
SharedBatchDataset<Source> make_shared_dataset(Args&&... args) { return std::make_shared<Source>(std::forward<Args>(args)...); }

template <class Source, class Applied>
class MapDataset : public BatchDataset<MapDataset<Source, Applied>, detail::batch_of<Source, typename Applied::OutputBatchType>, typename Source::BatchRequestType> {
 public:
  using DatasetType = Source;
  using TransformType = Applied;
  static constexpr bool is_stateful = Source::is_stateful;
  MapDataset(Source dataset, Applied transform) : dataset_(std::move(dataset)), transform_(std::move(transform)) {}
  detail::batch_of<Source, typename Applied::OutputBatchType> get_batch(typename Source::BatchRequestType request) override {
    if constexpr (is_stateful) {
      auto batch = dataset_.get_batch(std::move(request));
      if (!batch) return nullopt;
      return transform_.apply_batch(std::move(*batch));
    } else {
      return transform_.apply_batch(dataset_.get_batch(std::move(request)));
    }
  }
  void reset() { dataset_.reset(); }
  optional<size_t> size() const override { return dataset_.size(); }
  const Source& dataset() const { return dataset_; }
  const Applied& transform() const { return transform_; }

 private:
  Source dataset_;
  Applied transform_;
};
template <class D, class T>
MapDataset<D, T> map(D dataset, T transform) { return MapDataset<D, T>(std::move(dataset), std::move(transform)); }

// Rows of a tensor.
class TensorDataset : public Dataset<TensorDataset, TensorExample> {
 public:
  explicit TensorDataset(const std::vector<Tensor>& tensors) : tensor(torch::stack(tensors)) {}
  explicit TensorDataset(Tensor tensor) : tensor(std::move(tensor)) {}
  TensorExample get(size_t index) override { return tensor[static_cast<int64_t>(index)]; }
  optional<size_t> size() const override { return static_cast<size_t>(tensor.size(0)); }
  Tensor tensor;
};

// The MNIST digits, from the four files without compression.
class MNIST : public Dataset<MNIST> {
 public:
  enum class Mode { kTrain, kTest };
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain)
      : train_(mode == Mode::kTrain), images_(images(root, train_)), targets_(targets(root, train_)) {}
  Example<> get(size_t index) override { return {images_[static_cast<int64_t>(index)], targets_[static_cast<int64_t>(index)]}; }
  optional<size_t> size() const override { return static_cast<size_t>(images_.size(0)); }
  bool is_train() const noexcept { return train_; }
  const Tensor& images() const { return images_; }
  const Tensor& targets() const { return targets_; }

 private:
  // An IDX file of bytes: a magic number, sizes, elements.
  static Tensor read(const std::string& root, const char* name, uint32_t magic, size_t dims) {
    std::string path = root + (root.empty() || root.back() == '/' ? "" : "/") + name;
    std::ifstream file(path, std::ios::binary);
    TORCH_CHECK(file, "Error opening data file at ", path);
    auto number = [&] {
      unsigned char b[4] = {};
      TORCH_CHECK(file.read(reinterpret_cast<char*>(b), 4), "Unexpected end of ", path);
      return uint32_t(b[0]) << 24 | uint32_t(b[1]) << 16 | uint32_t(b[2]) << 8 | uint32_t(b[3]);
    };
    TORCH_CHECK(number() == magic, path, " is not a file of MNIST");
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < dims; ++i) sizes.push_back(number());
    TORCH_CHECK(sizes[0] <= 1000000 && (dims == 1 || (sizes[1] == 28 && sizes[2] == 28)), path, " has sizes ", IntArrayRef(sizes));
    Tensor out = torch::empty(sizes, kByte);
    TORCH_CHECK(file.read(static_cast<char*>(out.data_ptr()), out.numel()), "Unexpected end of ", path);
    return out;
  }
  static Tensor images(const std::string& root, bool train) {
    return read(root, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", 2051, 3).unsqueeze(1).to(kFloat).div_(255);
  }
  static Tensor targets(const std::string& root, bool train) {
    return read(root, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte", 2049, 1).to(kLong);
  }
  bool train_;
  Tensor images_, targets_;
};

}  // namespace datasets
template <class Self, class Single = Example<>>
using Dataset = datasets::Dataset<Self, Single>;

// Samplers.
namespace samplers {

template <class Request = std::vector<size_t>>
class Sampler {
 public:
  using BatchRequestType = Request;
  virtual ~Sampler() = default;
  virtual void reset(optional<size_t> new_size) = 0;
  virtual optional<Request> next(size_t batch_size) = 0;
};
// Indices in an order that each pass makes anew.
class OrderSampler : public Sampler<> {
 public:
  void reset(optional<size_t> new_size = nullopt) override {
    if (new_size) size_ = *new_size;
    order_ = order(size_);
    at_ = 0;
  }
  optional<std::vector<size_t>> next(size_t batch_size) override {
    if (at_ >= order_.size()) return nullopt;
    size_t end = std::min(order_.size(), at_ + batch_size);
    std::vector<size_t> batch(order_.begin() + static_cast<std::ptrdiff_t>(at_), order_.begin() + static_cast<std::ptrdiff_t>(end));
    at_ = end;
    return batch;
  }
  size_t index() const noexcept { return at_; }

 protected:
  explicit OrderSampler(size_t size) : size_(size) {}
  virtual std::vector<size_t> order(size_t size) = 0;
  static std::vector<size_t> permutation(size_t size) {
    Tensor shuffled = torch::randperm(static_cast<int64_t>(size));
    const int64_t* data = shuffled.data_ptr<int64_t>();
    return std::vector<size_t>(data, data + size);
  }
  static std::vector<size_t> sequence(size_t size) {
    std::vector<size_t> all(size);
    std::iota(all.begin(), all.end(), size_t(0));
    return all;
  }

 private:
  size_t size_;
  std::vector<size_t> order_;
  size_t at_ = 0;
};
class SequentialSampler : public OrderSampler {
 public:
  explicit SequentialSampler(size_t size) : OrderSampler(size) { reset(); }

 protected:
  std::vector<size_t> order(size_t size) override { return sequence(size); }
};
class RandomSampler : public OrderSampler {
 public:
  explicit RandomSampler(size_t size, ScalarType = kLong) : OrderSampler(size) { reset(); }

 protected:
  std::vector<size_t> order(size_t size) override { return permutation(size); }
};
// The part of a rank; all ranks have as many samples.
class DistributedSampler : public OrderSampler {
 public:
  void set_epoch(size_t epoch) { epoch_ = epoch; }
  size_t epoch() const { return epoch_; }

 protected:
  DistributedSampler(size_t size, size_t replicas, size_t rank, bool allow_duplicates)
      : OrderSampler(size), replicas_(replicas), rank_(rank), allow_duplicates_(allow_duplicates) {}
  std::vector<size_t> part(std::vector<size_t> all) const {
    size_t each = allow_duplicates_ ? (all.size() + replicas_ - 1) / replicas_ : all.size() / replicas_;
    std::vector<size_t> mine;
    for (size_t i = 0; i < each && !all.empty(); ++i) mine.push_back(all[(rank_ + i * replicas_) % all.size()]);
    return mine;
  }
  size_t epoch_ = 0;

 private:
  size_t replicas_, rank_;
  bool allow_duplicates_;
};
class DistributedRandomSampler : public DistributedSampler {
 public:
  explicit DistributedRandomSampler(size_t size, size_t replicas = 1, size_t rank = 0, bool allow_duplicates = true)
      : DistributedSampler(size, replicas, rank, allow_duplicates) { reset(); }

 protected:
  std::vector<size_t> order(size_t size) override {
    auto all = sequence(size);
    // All ranks need the same order, whatever their generators: one from the epoch alone.
    uint64_t state = epoch_ + 0x9e3779b97f4a7c15;
    for (size_t i = all.size(); i > 1; --i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      std::swap(all[i - 1], all[(state >> 33) % i]);
    }
    return part(std::move(all));
  }
};
class DistributedSequentialSampler : public DistributedSampler {
 public:
  explicit DistributedSequentialSampler(size_t size, size_t replicas = 1, size_t rank = 0, bool allow_duplicates = true)
      : DistributedSampler(size, replicas, rank, allow_duplicates) { reset(); }

 protected:
  std::vector<size_t> order(size_t size) override { return part(sequence(size)); }
};
// The size of the next batch of a stream.
class StreamSampler : public Sampler<size_t> {
 public:
  explicit StreamSampler(size_t epoch_size) : left_(epoch_size), epoch_size_(epoch_size) {}
  void reset(optional<size_t> new_size = nullopt) override {
    if (new_size) epoch_size_ = *new_size;
    left_ = epoch_size_;
  }
  optional<size_t> next(size_t batch_size) override {
    if (left_ == 0) return nullopt;
    size_t count = std::min(left_, batch_size);
    left_ -= count;
    return count;
  }

 private:
  size_t left_, epoch_size_;
};

// Asks a stateful dataset for batches until it has no more.
class RequestSampler : public Sampler<size_t> {
 public:
  void reset(optional<size_t>) override {}
  optional<size_t> next(size_t batch_size) override { return batch_size; }
};

}  // namespace samplers

struct DataLoaderOptions {
  DataLoaderOptions() = default;
  DataLoaderOptions(size_t batch_size) : batch_size_(batch_size) {}
#define RL_DATA_OPTION(T, name)                                                   \
  DataLoaderOptions& name(T value) { name##_ = std::move(value); return *this; }  \
  const T& name() const { return name##_; }
  RL_DATA_OPTION(size_t, batch_size)
  RL_DATA_OPTION(size_t, workers)
  RL_DATA_OPTION(optional<size_t>, max_jobs)
  RL_DATA_OPTION(optional<std::chrono::milliseconds>, timeout)
  RL_DATA_OPTION(bool, enforce_ordering)
  RL_DATA_OPTION(bool, drop_last)
#undef RL_DATA_OPTION

 private:
  size_t batch_size_ = 1, workers_ = 0;
  optional<size_t> max_jobs_;
  optional<std::chrono::milliseconds> timeout_;
  bool enforce_ordering_ = true, drop_last_ = false;
};

// Batches of a dataset, made by worker threads ahead of their use. Each worker has a copy of the dataset.
template <class Source, class Sampler>
class DataLoader {
 public:
  using BatchType = datasets::detail::unwrapped_t<Source>;
  DataLoader(Source dataset, Sampler sampler, DataLoaderOptions options) : dataset_(std::move(dataset)), sampler_(std::move(sampler)), options_(options) {}
  ~DataLoader() { stop(); }
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;
  const DataLoaderOptions& options() const { return options_; }

  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = BatchType;
    using pointer = BatchType*;
    using reference = BatchType&;
    using iterator_category = std::input_iterator_tag;
    Iterator() = default;
    explicit Iterator(DataLoader* loader) : loader_(loader) { ++*this; }
    Iterator& operator++() {
      batch_ = loader_->next();
      if (!batch_) loader_ = nullptr;
      return *this;
    }
    BatchType& operator*() { return *batch_; }
    BatchType* operator->() { return &*batch_; }
    bool operator==(const Iterator& other) const { return loader_ == other.loader_; }
    bool operator!=(const Iterator& other) const { return !(*this == other); }

   private:
    DataLoader* loader_ = nullptr;
    optional<BatchType> batch_;
  };
  // Starts a pass over the dataset; one at a time.
  Iterator begin() {
    stop();
    sampler_.reset(nullopt);
    if constexpr (Source::is_stateful) dataset_.reset();
    start();
    return Iterator(this);
  }
  Iterator end() { return Iterator(); }

 private:
  using Request = typename Sampler::BatchRequestType;
  struct Made {
    optional<BatchType> batch;
    std::exception_ptr error;
  };
  optional<Request> request() {
    auto next = sampler_.next(options_.batch_size());
    if constexpr (std::is_same_v<Request, std::vector<size_t>>)
      if (next && options_.drop_last() && next->size() < options_.batch_size()) return nullopt;
    return next;
  }
  // A batch; none at the end of a stateful dataset.
  template <class D>
  static optional<BatchType> fetch(D& dataset, const Request& request) {
    if constexpr (std::is_same_v<Request, std::vector<size_t>>) return dataset.get_batch(ArrayRef<size_t>(request));
    else return dataset.get_batch(request);
  }
  void start() {
    stopping_ = ended_ = false;
    submitted_ = delivered_ = 0;
    for (size_t i = 0; i < options_.workers(); ++i)
      workers_.emplace_back([this, dataset = dataset_]() mutable { work(dataset); });
    if (!workers_.empty()) for (size_t i = 0; i < options_.max_jobs().value_or(2 * workers_.size()); ++i) submit();
  }
  void submit() {
    if (ended_) return;
    auto next = request();
    if (!next) return;
    std::lock_guard<std::mutex> lock(mutex_);
    requests_.emplace_back(submitted_++, std::move(*next));
    changed_.notify_all();
  }
  void work(Source& dataset) {
    for (;;) {
      std::pair<size_t, Request> job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || !requests_.empty(); });
        if (stopping_) return;
        job = std::move(requests_.front());
        requests_.pop_front();
      }
      Made made;
      try {
        made.batch = fetch(dataset, job.second);
      } catch (...) {
        made.error = std::current_exception();
      }
      std::lock_guard<std::mutex> lock(mutex_);
      made_.emplace(job.first, std::move(made));
      changed_.notify_all();
    }
  }
  optional<BatchType> next() {
    if (workers_.empty()) {
      auto wanted = request();
      return wanted ? fetch(dataset_, *wanted) : nullopt;
    }
    for (;;) {
      if (delivered_ == submitted_) {
        stop();
        return nullopt;
      }
      Made made = wait();
      if (made.error) {
        submit();
        std::rethrow_exception(made.error);
      }
      // Batches that other workers have got before the end are still to come.
      ended_ = ended_ || !made.batch;
      submit();
      if (made.batch) return std::move(made.batch);
    }
  }
  // The next batch that is made.
  Made wait() {
    Made made;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      auto there = [&] { return options_.enforce_ordering() ? made_.count(delivered_) > 0 : !made_.empty(); };
      if (options_.timeout()) TORCH_CHECK(changed_.wait_for(lock, *options_.timeout(), there), "Timeout in DataLoader queue while waiting for next batch");
      else changed_.wait(lock, there);
      auto found = options_.enforce_ordering() ? made_.find(delivered_) : made_.begin();
      made = std::move(found->second);
      made_.erase(found);
      ++delivered_;
    }
    return made;
  }
  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (auto& worker : workers_) worker.join();
    workers_.clear();
    requests_.clear();
    made_.clear();
  }
  Source dataset_;
  Sampler sampler_;
  DataLoaderOptions options_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<size_t, Request>> requests_;
  std::map<size_t, Made> made_;
  size_t submitted_ = 0, delivered_ = 0;
  bool stopping_ = false, ended_ = false;
};
template <class Source, class Sampler>
using StatelessDataLoader = DataLoader<Source, Sampler>;
template <class Source>
using StatefulDataLoader = DataLoader<Source, samplers::RequestSampler>;

template <class Source, class Sampler>
std::unique_ptr<DataLoader<Source, Sampler>> make_data_loader(Source dataset, Sampler sampler, DataLoaderOptions options) {
  return std::make_unique<DataLoader<Source, Sampler>>(std::move(dataset), std::move(sampler), options);
}
template <class Sampler = samplers::RandomSampler, class Source, std::enable_if_t<Source::is_stateful, int> = 0>
std::unique_ptr<StatefulDataLoader<Source>> make_data_loader(Source dataset, DataLoaderOptions options = DataLoaderOptions()) {
  return make_data_loader(std::move(dataset), samplers::RequestSampler(), options);
}
template <class Sampler = samplers::RandomSampler, class Source, std::enable_if_t<!Source::is_stateful, int> = 0>
std::unique_ptr<DataLoader<Source, Sampler>> make_data_loader(Source dataset, DataLoaderOptions options = DataLoaderOptions()) {
  optional<size_t> size = dataset.size();
  TORCH_CHECK(size, "Expected the dataset to be sized in order to construct the Sampler");
  return make_data_loader(std::move(dataset), Sampler(*size), options);
}

}  // namespace data
}  // namespace torch
