// torch::data::datasets of chunks: parts of a dataset, such as files, that threads read ahead.
#pragma once

#include <torch/data.h>

namespace torch {
namespace data {
namespace datasets {

// Reads the chunks of a dataset. Threads call read_chunk at the same time.
template <class Single, class Chunk = std::vector<Single>>
class ChunkDataReader {
 public:
  using ChunkType = Chunk;
  using BatchType = Chunk;
  using ExampleType = Single;
  virtual ~ChunkDataReader() = default;
  virtual Chunk read_chunk(size_t chunk_index) = 0;
  virtual size_t chunk_count() = 0;
  // Called before each pass.
  virtual void reset() = 0;
};

struct ChunkDatasetOptions {
  // preloader_count threads read; cache_size examples wait at most; the examples of cross_chunk_shuffle_count chunks
  // are mixed.
  ChunkDatasetOptions(size_t preloader_count, size_t batch_size, size_t cache_size = 2048, size_t cross_chunk_shuffle_count = 1)
      : preloader_count_(preloader_count), batch_size_(batch_size), cache_size_(cache_size), cross_chunk_shuffle_count_(cross_chunk_shuffle_count) {
    TORCH_CHECK(preloader_count > 0, "Preloader count is 0. At least one preloader needs to be specified.");
    TORCH_CHECK(batch_size > 0, "Batch size is 0. A positive batch size needs to be specified.");
    TORCH_CHECK(cache_size > 0, "Cache size is 0. A positive cache size needs to be specified.");
    TORCH_CHECK(cache_size >= batch_size, "Cache size is less than batch size. Cache needs to be large enough to hold at least one batch.");
    TORCH_CHECK(cross_chunk_shuffle_count > 0, "cross_chunk_shuffle_count needs to be greater than 0.");
  }
  size_t preloader_count() const { return preloader_count_; }
  size_t batch_size() const { return batch_size_; }
  size_t cache_size() const { return cache_size_; }
  size_t cross_chunk_shuffle_count() const { return cross_chunk_shuffle_count_; }

 private:
  size_t preloader_count_, batch_size_, cache_size_, cross_chunk_shuffle_count_;
};

// Batches of the examples of chunks. Which batches there are does not depend on the threads' timing: chunks are used in
// the order of their sampler.
template <class Reader, class ChunkSampler = samplers::RandomSampler, class ExampleSampler = samplers::RandomSampler>
class ChunkDataset final : public StatefulDataset<ChunkDataset<Reader, ChunkSampler, ExampleSampler>, typename Reader::BatchType> {
 public:
  using UnwrappedBatchType = typename Reader::BatchType;
  using BatchType = optional<UnwrappedBatchType>;
  using ChunkSamplerType = ChunkSampler;
  using ExampleSamplerType = ExampleSampler;
  using Policy = std::function<void(UnwrappedBatchType&)>;

  ChunkDataset(Reader reader, ChunkSampler chunks, ExampleSampler examples, ChunkDatasetOptions options, Policy policy = Policy())
      : reader_(std::move(reader)), chunks_(std::move(chunks)), examples_(std::move(examples)), options_(options), policy_(std::move(policy)) {}
  ~ChunkDataset() override { stop(); }
  ChunkDataset(const ChunkDataset&) = delete;
  ChunkDataset& operator=(const ChunkDataset&) = delete;

  // The next batch; none at the end of the pass.
  BatchType get_batch(size_t batch_size) override {
    TORCH_CHECK(batch_size == options_.batch_size(), "The requested batch size does not match with the initialized batch size.\n The requested batch size is ",
                batch_size, ", while the dataset is created with batch size equal to ", options_.batch_size());
    // One caller fills its batch before the next one begins: no two batches share a chunk's end.
    std::lock_guard<std::mutex> turn(turn_);
    std::unique_lock<std::mutex> lock(mutex_);
    TORCH_CHECK(started_, "Dataset needs to call reset() before calling get_batch().");
    UnwrappedBatchType batch;
    while (batch.size() < batch_size) {
      auto indices = at_ < current_.size() ? examples_.next(std::min(batch_size - batch.size(), current_.size() - at_)) : nullopt;
      if (!indices) {
        if (!advance(lock)) break;
        continue;
      }
      for (size_t index : *indices) batch.push_back(current_[index]);
      at_ += indices->size();
    }
    if (batch.size() == 0) return nullopt;
    return BatchType(std::move(batch));
  }
  BatchType get_batch() { return get_batch(options_.batch_size()); }
  // Starts a pass.
  void reset() override {
    stop();
    reader_.reset();
    chunks_.reset(reader_.chunk_count());
    current_ = UnwrappedBatchType();
    at_ = taken_ = used_ = waiting_ = 0;
    stopping_ = ended_ = false;
    started_ = true;
    for (size_t i = 0; i < options_.preloader_count(); ++i) threads_.emplace_back([this] { preload(); });
  }
  optional<size_t> size() const override { return nullopt; }
  ChunkSampler& chunk_sampler() { return chunks_; }

 private:
  struct Loaded {
    UnwrappedBatchType examples;
    std::exception_ptr error;
  };
  // Makes the next chunks the current ones; false at the end.
  bool advance(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return loaded_.count(used_) > 0 || (ended_ && used_ == taken_); });
    auto found = loaded_.find(used_);
    if (found == loaded_.end()) return false;
    Loaded next = std::move(found->second);
    loaded_.erase(found);
    ++used_;
    waiting_ -= next.examples.size();
    changed_.notify_all();
    if (next.error) std::rethrow_exception(next.error);
    current_ = std::move(next.examples);
    at_ = 0;
    examples_.reset(current_.size());
    return true;
  }
  void preload() {
    for (;;) {
      size_t number = 0;
      std::vector<size_t> wanted;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        // What is used next is always read, however full the cache is.
        changed_.wait(lock, [&] { return stopping_ || ended_ || waiting_ < options_.cache_size() || taken_ == used_; });
        if (stopping_ || ended_) return;
        if (auto next = chunks_.next(options_.cross_chunk_shuffle_count())) wanted = std::move(*next);
        if (wanted.empty()) {
          ended_ = true;
          changed_.notify_all();
          return;
        }
        number = taken_++;
      }
      Loaded made;
      try {
        for (size_t chunk : wanted) {
          auto examples = reader_.read_chunk(chunk);
          for (auto& example : examples) made.examples.push_back(std::move(example));
        }
        if (policy_) policy_(made.examples);
      } catch (...) {
        made.examples = UnwrappedBatchType();
        made.error = std::current_exception();
      }
      std::lock_guard<std::mutex> lock(mutex_);
      waiting_ += made.examples.size();
      loaded_.emplace(number, std::move(made));
      changed_.notify_all();
    }
  }
  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (auto& thread : threads_) thread.join();
    threads_.clear();
    loaded_.clear();
  }
  Reader reader_;
  ChunkSampler chunks_;
  ExampleSampler examples_;
  ChunkDatasetOptions options_;
  Policy policy_;
  std::vector<std::thread> threads_;
  std::mutex mutex_, turn_;
  std::condition_variable changed_;
  // Chunks that were read, by their numbers in the order of the sampler.
  std::map<size_t, Loaded> loaded_;
  UnwrappedBatchType current_;
  // Examples used of the current chunk; chunks given to threads, and used; examples that wait.
  size_t at_ = 0, taken_ = 0, used_ = 0, waiting_ = 0;
  bool stopping_ = false, ended_ = false, started_ = false;
};

}  // namespace datasets
}  // namespace data
}  // namespace torch
