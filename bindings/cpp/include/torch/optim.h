// torch::optim: optimizers with option structs and parameter groups, schedules of learning rates.
#pragma once

#include <torch/nn/attention.h>
#include <torch/nn/losses.h>
#include <torch/nn/others.h>
#include <torch/nn/rnn.h>
#include <torch/nn/spatial.h>

namespace torch {
namespace optim {

// Options of a group by PyTorch's names.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  using Values = std::vector<std::pair<const char*, rl_value>>;
  // All options; values refer to this object.
  virtual Values values() const = 0;
};

namespace detail {
template <class Derived>
class OptionsBase : public OptimizerOptions {
 public:
  // Without a pointer of the derived type, which each of the library's optimizers would instantiate.
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::unique_ptr<OptimizerOptions>(new Derived(static_cast<const Derived&>(*this)));
  }
  double get_lr() const override { return static_cast<const Derived&>(*this).lr(); }
  void set_lr(double lr) override { static_cast<Derived&>(*this).lr(lr); }
};
// Two numbers, kept as an array for the library.
struct Betas {
  Betas(std::tuple<double, double> both) : values{std::get<0>(both), std::get<1>(both)} {}
  operator std::tuple<double, double>() const { return {values[0], values[1]}; }
  double values[2];
};
inline rl_value v(const Betas& betas) { return torch::detail::v(ArrayRef<double>(betas.values, 2)); }
inline rl_value v(double value) { return torch::detail::v(value); }
inline rl_value v(bool value) { return torch::detail::v(value); }
inline rl_value v(int64_t value) { return torch::detail::v(value); }
// Calls a function with each number of options.
template <class F>
void each_number(const OptimizerOptions::Values& values, F&& function) {
  for (const auto& [name, value] : values) {
    if (value.kind == RL_FLOAT) function(value.data.number);
    else if (value.kind == RL_FLOATS) for (size_t i = 0; i < value.count; ++i) function(value.data.numbers[i]);
    else if (value.kind == RL_STRING) function(static_cast<double>(value.count));
    else function(static_cast<double>(value.data.integer));
  }
}
inline std::vector<double> numbers(const OptimizerOptions::Values& values) {
  std::vector<double> all;
  each_number(values, [&](double number) { all.push_back(number); });
  return all;
}
// Whether options have other numbers. Each step asks, so it does not allocate.
inline bool differ(const OptimizerOptions::Values& values, const std::vector<double>& sent) {
  size_t at = 0;
  bool same = true;
  each_number(values, [&](double number) { same = same && at < sent.size() && sent[at] == number, ++at; });
  return !same || at != sent.size();
}
}  // namespace detail

class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params) : params_(std::move(params)) {}
  OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options) : params_(std::move(params)), options_(std::move(options)) {}
  OptimizerParamGroup(const OptimizerParamGroup& other) : params_(other.params_), options_(other.options_ ? other.options_->clone() : nullptr) {}
  OptimizerParamGroup(OptimizerParamGroup&&) = default;
  OptimizerParamGroup& operator=(OptimizerParamGroup&&) = default;
  bool has_options() const { return options_ != nullptr; }
  OptimizerOptions& options() { return *options_; }
  const OptimizerOptions& options() const { return *options_; }
  void set_options(std::unique_ptr<OptimizerOptions> options) { options_ = std::move(options); }
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }

 private:
  std::vector<Tensor> params_;
  std::unique_ptr<OptimizerOptions> options_;
};

class Optimizer {
 public:
  using LossClosure = std::function<Tensor()>;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  Optimizer(Optimizer&& other) noexcept
      : name_(other.name_), groups_(std::move(other.groups_)), defaults_(std::move(other.defaults_)), sent_(std::move(other.sent_)),
        ids_(std::move(other.ids_)), handle_(std::exchange(other.handle_, nullptr)) {}
  virtual ~Optimizer() { rl_optimizer_free(handle_); }

  void add_param_group(OptimizerParamGroup group) {
    if (!group.has_options()) group.set_options(defaults_->clone());
    for (const Tensor& p : group.params()) TORCH_CHECK(p.is_leaf(), "can't optimize a non-leaf Tensor");
    groups_.push_back(std::move(group));
    send(groups_.size() - 1);
  }
  void add_parameters(const std::vector<Tensor>& parameters) {
    groups_.at(0).params().insert(groups_.at(0).params().end(), parameters.begin(), parameters.end());
    renew();
  }
  // Clears the gradients.
  void zero_grad(bool set_to_none = true) {
    for (auto& group : groups_) torch::detail::clear_gradients(group.params(), set_to_none);
  }
  virtual Tensor step(LossClosure closure = nullptr) {
    update();
    Tensor loss;
    if (closure) {
      AutoGradMode enabled(true);
      loss = closure();
    }
    torch::detail::check(rl_optimizer_step(handle_));
    return loss;
  }
  std::vector<OptimizerParamGroup>& param_groups() noexcept { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const noexcept { return groups_; }
  OptimizerOptions& defaults() noexcept { return *defaults_; }
  size_t size() const noexcept {
    size_t count = 0;
    for (const auto& group : groups_) count += group.params().size();
    return count;
  }
  std::vector<Tensor>& parameters() noexcept { return groups_.at(0).params(); }

  // State and options, in PyTorch's form.
  virtual void save(serialize::OutputArchive& archive) const {
    rl_object* out = nullptr;
    torch::detail::check(rl_optimizer_state(handle_, &out));
    archive.set(torch::detail::Object(out));
  }
  virtual void load(serialize::InputArchive& archive) {
    update();
    torch::detail::check(rl_optimizer_load_state(handle_, archive.file().get()));
  }

 protected:
  Optimizer(const char* name, std::vector<OptimizerParamGroup> groups, std::unique_ptr<OptimizerOptions> defaults)
      : name_(name), defaults_(std::move(defaults)) {
    try {
      for (auto& group : groups) add_param_group(std::move(group));
      TORCH_CHECK(handle_, "optimizer got an empty parameter list");
    } catch (...) {
      rl_optimizer_free(handle_);
      throw;
    }
  }
  // Sends options that have changed, and parameters that Module::to has replaced.
  void update() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      const auto& params = groups_[g].params();
      bool moved = ids_[g].size() != params.size();
      for (size_t i = 0; !moved && i < params.size(); ++i) moved = ids_[g][i] != rl_tensor_id(params[i].need());
      if (moved) return renew();
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      auto values = groups_[g].options().values();
      if (!detail::differ(values, sent_[g])) continue;
      for (const auto& [name, value] : values) torch::detail::check(rl_optimizer_set(handle_, g, name, &value));
      sent_[g] = detail::numbers(values);
    }
  }
  rl_optimizer* handle() const { return handle_; }

 private:
  void send(size_t at) {
    torch::detail::Handles params(groups_[at].params());
    auto values = groups_[at].options().values();
    std::vector<rl_option> options;
    for (const auto& [name, value] : values) options.push_back(rl_option{name, value});
    if (handle_) torch::detail::check(rl_optimizer_add_group(handle_, params.list.data(), params.list.size(), options.data(), options.size()));
    else torch::detail::check(rl_optimizer_new(name_, params.list.data(), params.list.size(), options.data(), options.size(), &handle_));
    std::vector<size_t> ids;
    for (rl_tensor* p : params.list) ids.push_back(rl_tensor_id(p));
    ids_.resize(groups_.size());
    sent_.resize(groups_.size());
    ids_[at] = std::move(ids);
    sent_[at] = detail::numbers(values);
  }
  // The same optimizer over parameters that have been replaced; its state follows.
  void renew() {
    rl_object* state = nullptr;
    rl_optimizer* before = std::exchange(handle_, nullptr);
    torch::detail::check(rl_optimizer_state(before, &state));
    torch::detail::Object kept(state);
    rl_optimizer_free(before);
    for (size_t g = 0; g < groups_.size(); ++g) send(g);
    torch::detail::check(rl_optimizer_load_state(handle_, kept.get()));
  }
  const char* name_;
  std::vector<OptimizerParamGroup> groups_;
  std::unique_ptr<OptimizerOptions> defaults_;
  std::vector<std::vector<double>> sent_;
  std::vector<std::vector<size_t>> ids_;
  rl_optimizer* handle_ = nullptr;
};

inline std::ostream& operator<<(std::ostream& out, const Optimizer& optimizer) { return out << "Optimizer over " << optimizer.size() << " parameters"; }

#define RL_VALUE(name) {#name, detail::v(name())}
// An optimizer of the library with its options. A template, so that only programs that use it compile it.
template <class Options>
class OptimizerOf : public Optimizer {
 public:
  explicit OptimizerOf(const std::vector<OptimizerParamGroup>& groups, Options defaults = Options())
      : Optimizer(Options::key, groups, std::unique_ptr<OptimizerOptions>(new Options(std::move(defaults)))) {}
  explicit OptimizerOf(std::vector<Tensor> params, Options defaults = Options())
      : OptimizerOf(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, std::move(defaults)) {}
};
#define RL_OPTIMIZER(Name)                              \
  class Name : public OptimizerOf<Name##Options> {      \
   public:                                              \
    using OptimizerOf<Name##Options>::OptimizerOf;      \
  }

struct SGDOptions : detail::OptionsBase<SGDOptions> {
  static constexpr const char* key = "SGD";
  SGDOptions(double lr = 1e-3) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(double, dampening) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, nesterov) = false;

 public:
  Values values() const override { return {RL_VALUE(lr), RL_VALUE(momentum), RL_VALUE(dampening), RL_VALUE(weight_decay), RL_VALUE(nesterov)}; }
};
RL_OPTIMIZER(SGD);

#define RL_ADAM_OPTIONS(Name, text, decay)                                                                                      \
  struct Name : detail::OptionsBase<Name> {                                                                                     \
    static constexpr const char* key = text;                                                                                    \
    Name(double lr = 1e-3) : lr_(lr) {}                                                                                         \
    Name& betas(std::tuple<double, double> both) { betas_ = both; return *this; }                                               \
    std::tuple<double, double> betas() const { return betas_; }                                                                 \
    TORCH_ARG(double, lr);                                                                                                      \
    TORCH_ARG(double, eps) = 1e-8;                                                                                              \
    TORCH_ARG(double, weight_decay) = decay;                                                                                    \
    TORCH_ARG(bool, amsgrad) = false;                                                                                           \
    detail::Betas betas_ = std::tuple<double, double>(0.9, 0.999);                                                              \
                                                                                                                                \
   public:                                                                                                                      \
    Values values() const override {                                                                                            \
      return {RL_VALUE(lr), {"betas", detail::v(betas_)}, RL_VALUE(eps), RL_VALUE(weight_decay), RL_VALUE(amsgrad)};            \
    }                                                                                                                           \
  }
RL_ADAM_OPTIONS(AdamOptions, "Adam", 0);
RL_ADAM_OPTIONS(AdamWOptions, "AdamW", 1e-2);
#undef RL_ADAM_OPTIONS
RL_OPTIMIZER(Adam);
RL_OPTIMIZER(AdamW);

struct RMSpropOptions : detail::OptionsBase<RMSpropOptions> {
  static constexpr const char* key = "RMSprop";
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, alpha) = 0.99;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(bool, centered) = false;

 public:
  Values values() const override { return {RL_VALUE(lr), RL_VALUE(alpha), RL_VALUE(eps), RL_VALUE(weight_decay), RL_VALUE(momentum), RL_VALUE(centered)}; }
};
RL_OPTIMIZER(RMSprop);

struct AdagradOptions : detail::OptionsBase<AdagradOptions> {
  static constexpr const char* key = "Adagrad";
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, lr_decay) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, initial_accumulator_value) = 0;
  TORCH_ARG(double, eps) = 1e-10;

 public:
  Values values() const override { return {RL_VALUE(lr), RL_VALUE(lr_decay), RL_VALUE(weight_decay), RL_VALUE(initial_accumulator_value), RL_VALUE(eps)}; }
};
RL_OPTIMIZER(Adagrad);

struct LBFGSOptions : detail::OptionsBase<LBFGSOptions> {
  LBFGSOptions(double lr = 1) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(int64_t, max_iter) = 20;
  TORCH_ARG(optional<int64_t>, max_eval) = nullopt;
  TORCH_ARG(double, tolerance_grad) = 1e-7;
  TORCH_ARG(double, tolerance_change) = 1e-9;
  TORCH_ARG(int64_t, history_size) = 100;
  TORCH_ARG(optional<std::string>, line_search_fn) = nullopt;

 public:
  Values values() const override {
    using torch::detail::v;
    return {{"lr", v(lr())}, {"max_iter", v(max_iter())}, {"max_eval", v(max_eval())}, {"tolerance_grad", v(tolerance_grad())},
            {"tolerance_change", v(tolerance_change())}, {"history_size", v(history_size())},
            {"line_search_fn", line_search_fn() ? v(string_view(*line_search_fn())) : v(nullopt)}};
  }
};
template <class Options>
class LBFGSOf : public Optimizer {
 public:
  explicit LBFGSOf(const std::vector<OptimizerParamGroup>& groups, Options defaults = {}) : Optimizer("LBFGS", groups, std::unique_ptr<OptimizerOptions>(new Options(std::move(defaults)))) {
    TORCH_CHECK(param_groups().size() == 1, "LBFGS doesn't support per-parameter options (parameter groups)");
  }
  explicit LBFGSOf(std::vector<Tensor> params, Options defaults = {})
      : LBFGSOf(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, std::move(defaults)) {}
  Tensor step(LossClosure closure = nullptr) override {
    TORCH_CHECK(closure, "LBFGS requires a closure function");
    update();
    auto call = [](void* context, rl_tensor** loss) -> rl_status {
      try {
        AutoGradMode enabled(true);
        *loss = rl_tensor_ref((*static_cast<LossClosure*>(context))().need());
        return RL_OK;
      } catch (...) {
        return torch::detail::report();
      }
    };
    rl_tensor* loss = nullptr;
    torch::detail::check(rl_optimizer_step_closure(handle(), call, &closure, &loss));
    return Tensor(loss);
  }
};
class LBFGS : public LBFGSOf<LBFGSOptions> {
 public:
  using LBFGSOf<LBFGSOptions>::LBFGSOf;
};
#undef RL_OPTIMIZER
#undef RL_VALUE

// Schedules.
class LRScheduler {
 public:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {}
  virtual ~LRScheduler() = default;
  void step() {
    ++step_count_;
    auto rates = get_lrs();
    for (size_t i = 0; i < rates.size(); ++i) optimizer_.param_groups()[i].options().set_lr(rates[i]);
  }

 protected:
  virtual std::vector<double> get_lrs() = 0;
  std::vector<double> get_current_lrs() const {
    std::vector<double> all;
    for (const auto& group : optimizer_.param_groups()) all.push_back(group.options().get_lr());
    return all;
  }
  unsigned step_count_ = 0;
  Optimizer& optimizer_;
};
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, unsigned step_size, double gamma = 0.1) : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {}

 private:
  std::vector<double> get_lrs() override {
    auto rates = get_current_lrs();
    if (step_count_ % step_size_ == 0) for (double& rate : rates) rate *= gamma_;
    return rates;
  }
  unsigned step_size_;
  double gamma_;
};
// Lowers rates when a metric has stopped to improve.
class ReduceLROnPlateauScheduler {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode = min, float factor = 0.1, int patience = 10, double threshold = 1e-4,
                             ThresholdMode threshold_mode = rel, int cooldown = 0, const std::vector<float>& min_lr = {}, double eps = 1e-8, bool verbose = false)
      : optimizer_(optimizer), mode_(mode), factor_(factor), patience_(patience), threshold_(threshold), threshold_mode_(threshold_mode), cooldown_(cooldown),
        eps_(eps), verbose_(verbose) {
    TORCH_CHECK(factor < 1.0, "Factor should be < 1.0.");
    const size_t groups = optimizer.param_groups().size();
    TORCH_CHECK(min_lr.size() <= 1 || min_lr.size() == groups, "Number of learning rates not equal to the number of param groups");
    for (size_t i = 0; i < groups; ++i) min_lrs_.push_back(min_lr.empty() ? 0.0f : min_lr[min_lr.size() == 1 ? 0 : i]);
    reset();
  }
  virtual ~ReduceLROnPlateauScheduler() = default;
  void step(float metric) {
    ++epoch_;
    if (is_better(metric)) {
      best_ = metric;
      bad_epochs_ = 0;
    } else {
      ++bad_epochs_;
    }
    if (cooldown_left_ > 0) {
      --cooldown_left_;
      bad_epochs_ = 0;
    }
    if (bad_epochs_ <= patience_) return;
    auto& groups = optimizer_.param_groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      const double before = groups[i].options().get_lr(), after = std::max(before * factor_, static_cast<double>(min_lrs_[i]));
      if (before - after <= eps_) continue;
      groups[i].options().set_lr(after);
      if (verbose_) std::cout << "Epoch " << epoch_ << ": reducing learning rate of group " << i << " to " << after << std::endl;
    }
    cooldown_left_ = cooldown_;
    bad_epochs_ = 0;
  }

 private:
  void reset() {
    best_ = mode_ == min ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
    bad_epochs_ = cooldown_left_ = epoch_ = 0;
  }
  bool is_better(double metric) const {
    const double margin = threshold_mode_ == rel ? best_ * threshold_ : threshold_;
    if (std::isinf(best_)) return mode_ == min ? metric < best_ : metric > best_;
    return mode_ == min ? metric < best_ - margin : metric > best_ + margin;
  }
  Optimizer& optimizer_;
  SchedulerMode mode_;
  float factor_;
  int patience_;
  double threshold_;
  ThresholdMode threshold_mode_;
  int cooldown_;
  double eps_;
  bool verbose_;
  std::vector<float> min_lrs_;
  double best_ = 0;
  int bad_epochs_ = 0, cooldown_left_ = 0, epoch_ = 0;
};

}  // namespace optim
}  // namespace torch
