// Layers, losses and functions beyond those of program.cpp, compared with their formulas or with other layers. Compiles over LibTorch too.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <sstream>

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using torch::Tensor;

#define EXPECT(...)                                                                    \
  do {                                                                                 \
    if (!(__VA_ARGS__)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (0)
#define CLOSE(a, b) EXPECT(torch::allclose(a, b, 1e-4, 1e-5))

// Numbers without a generator, so that every library has the same.
Tensor numbers(torch::IntArrayRef sizes, double step = 0.37) {
  int64_t count = 1;
  for (int64_t n : sizes) count *= n;
  return torch::sin(torch::arange(count, torch::kDouble) * step + 0.1).to(torch::kFloat).reshape(sizes);
}
// Fills a module's parameters with such numbers.
template <class M>
void fill(const M& module) {
  torch::NoGradGuard guard;
  double step = 0.11;
  for (Tensor& p : module->parameters()) p.copy_(numbers(p.sizes(), step += 0.05) * 0.3);
}
// Prints numbers that the reference's file has.
void show(const char* name, const Tensor& t) {
  Tensor flat = t.detach().to(torch::kDouble).reshape({-1});
  std::printf("%s %s", name, torch::str(t.sizes()).c_str());
  const int64_t count = flat.numel(), step = count > 12 ? count / 12 : 1;
  for (int64_t i = 0; i < count; i += step) {
    const double value = flat[i].item<double>();
    std::printf(" %.4f", std::abs(value) < 5e-5 ? 0.0 : value);
  }
  std::printf("\n");
}
template <class M>
void text(const M& module) {
  std::ostringstream out;
  out << module;
  std::printf("%s\n", out.str().c_str());
}

void padding() {
  const Tensor x = numbers({1, 2, 4, 5}), line = numbers({2, 3, 6}), cube = numbers({1, 2, 3, 4, 5});
  show("reflection1", nn::ReflectionPad1d(nn::ReflectionPad1dOptions({2, 1}))(line));
  show("reflection2", nn::ReflectionPad2d(1)(x));
  show("reflection3", nn::ReflectionPad3d(1)(cube));
  show("replication1", nn::ReplicationPad1d(nn::ReplicationPad1dOptions({2, 1}))(line));
  show("replication2", nn::ReplicationPad2d(nn::ReplicationPad2dOptions({1, 2, 0, 1}))(x));
  show("replication3", nn::ReplicationPad3d(2)(cube));
  show("zero2", nn::ZeroPad2d(nn::ZeroPad2dOptions({1, 0, 2, 1}))(x));
  show("constant1", nn::ConstantPad1d(2, 3.5)(line));
  show("constant2", nn::ConstantPad2d(nn::ConstantPad2dOptions({1, 2, 0, 1}, -1))(x));
  show("constant3", nn::ConstantPad3d(1, 0.5)(cube));
  show("circular", F::pad(x, F::PadFuncOptions({1, 2, 1, 0}).mode(torch::kCircular)));
  text(nn::ReflectionPad2d(1));
  text(nn::ConstantPad1d(2, 3.5));
  text(nn::ZeroPad2d(2));
}

void resizing() {
  const Tensor x = numbers({1, 4, 4, 6});
  show("shuffle", nn::PixelShuffle(2)(x));
  show("unshuffle", nn::PixelUnshuffle(2)(x));
  EXPECT(nn::PixelUnshuffle(2)(nn::PixelShuffle(2)(x)).equal(x));
  show("nearest", nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 1.5}))(x));
  show("bilinear", nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{7, 9}).mode(torch::kBilinear).align_corners(true))(x));
  show("bicubic", F::interpolate(x, F::InterpolateFuncOptions().size(std::vector<int64_t>{5, 5}).mode(torch::kBicubic).align_corners(false)));
  show("linear", F::interpolate(numbers({1, 2, 5}), F::InterpolateFuncOptions().size(std::vector<int64_t>{8}).mode(torch::kLinear).align_corners(false)));
  show("area", F::interpolate(x, F::InterpolateFuncOptions().size(std::vector<int64_t>{2, 3}).mode(torch::kArea)));
  const Tensor theta = torch::tensor({1.0, 0.2, -0.1, 0.1, 0.9, 0.05}).reshape({1, 2, 3});
  const Tensor grid = F::affine_grid(theta, {1, 4, 5, 5}, false);
  show("grid", grid);
  show("sampled", F::grid_sample(x, grid, F::GridSampleFuncOptions().mode(torch::kBilinear).padding_mode(torch::kBorder).align_corners(true)));
  show("sampled nearest", F::grid_sample(x, grid, F::GridSampleFuncOptions().mode(torch::kNearest).padding_mode(torch::kZeros).align_corners(false)));
  const Tensor columns = nn::Unfold(nn::UnfoldOptions({2, 3}).stride(1).padding(1))(x);
  show("columns", columns);
  show("folded", nn::Fold(nn::FoldOptions({4, 6}, {2, 3}).padding(1))(columns));
  show("unfolded", F::unfold(x, F::UnfoldFuncOptions({2, 2}).stride(2)));
  text(nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 1.5}).mode(torch::kBilinear)));
  text(nn::Fold(nn::FoldOptions({4, 6}, {2, 3})));
  text(nn::Unfold(nn::UnfoldOptions({2, 3})));
  text(nn::PixelShuffle(2));
}

void pooling() {
  const Tensor x = numbers({2, 3, 6, 6}, 0.7), line = numbers({2, 3, 8}), cube = numbers({2, 2, 4, 5, 6}, 0.7);
  auto [values, places] = nn::MaxPool2d(2)->forward_with_indices(x);
  show("unpooled", nn::MaxUnpool2d(2)(values, places));
  auto [most, at] = nn::MaxPool1d(nn::MaxPool1dOptions(3).stride(2))->forward_with_indices(line);
  show("unpooled1", nn::MaxUnpool1d(nn::MaxUnpool1dOptions(3).stride(2))->forward(most, at, std::vector<int64_t>{2, 3, 8}));
  show("places", at);
  show("adaptive1", nn::AdaptiveMaxPool1d(3)(line));
  show("adaptive2", nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({4, 2}))(x));
  show("adaptive2 own", nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({torch::nullopt, 2}))(x));
  auto [deep, where] = nn::AdaptiveMaxPool3d(nn::AdaptiveMaxPool3dOptions({3, 2, 4}))->forward_with_indices(cube);
  show("adaptive3", deep);
  show("adaptive3 places", where);
  show("lp1", nn::LPPool1d(2, 3)(line));
  show("lp2", nn::LPPool2d(nn::LPPool2dOptions(1.2, 2).stride(1))(x.abs()));
  show("lp3", F::lp_pool3d(cube, F::LPPool3dFuncOptions(2, {2, 2, 3})));
  const Tensor samples = torch::full({2, 3, 2}, 0.4);
  show("fractional", nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(3)._random_samples(samples))(x));
  EXPECT(nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_ratio(0.5))(cube).sizes() == std::vector<int64_t>{2, 2, 2, 2, 3});
  show("response", nn::LocalResponseNorm(nn::LocalResponseNormOptions(2).alpha(0.1))(x));
  show("crossmap", nn::CrossMapLRN2d(nn::CrossMapLRN2dOptions(3).alpha(0.1))(numbers({2, 6, 2, 2})));
  text(nn::MaxPool2d(nn::MaxPool2dOptions(2).stride(1)));
  text(nn::AvgPool2d(3));
  text(nn::LPPool2d(nn::LPPool2dOptions(2, 3)));
  text(nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions(3)));
  text(nn::MaxUnpool1d(3));
  text(nn::LocalResponseNorm(2));
  text(nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(3)));
}

void losses() {
  const Tensor x = numbers({4, 5}), y = numbers({4, 5}, 0.9), z = numbers({4, 5}, 1.3);
  const Tensor signs = torch::tensor({1, -1, 1, -1}, torch::kFloat), classes = torch::tensor({1, 0, 4, 2});
  show("hinge", nn::HingeEmbeddingLoss(nn::HingeEmbeddingLossOptions().margin(0.7))(x, torch::sign(y)));
  show("multi margin", nn::MultiMarginLoss(nn::MultiMarginLossOptions().p(2).margin(0.5))(x, classes));
  show("cosine", nn::CosineEmbeddingLoss(nn::CosineEmbeddingLossOptions().margin(0.2))(x, y, signs));
  show("multilabel margin", nn::MultiLabelMarginLoss(torch::kSum)(x, torch::tensor({{3, 0, -1, 1, 2}, {1, -1, 0, 0, 0}, {0, 1, 2, 3, 4}, {4, 2, -1, 0, 0}})));
  show("soft margin", nn::SoftMarginLoss()(x, torch::sign(y)));
  show("multilabel soft", nn::MultiLabelSoftMarginLoss()(x, (y > 0).to(torch::kFloat)));
  show("triplet", nn::TripletMarginLoss(nn::TripletMarginLossOptions().margin(2).swap(true).reduction(torch::kNone))(x, y, z));
  show("triplet distance", nn::TripletMarginWithDistanceLoss(nn::TripletMarginWithDistanceLossOptions().margin(2).distance_function(
                               [](const Tensor& a, const Tensor& b) { return (a - b).abs().sum(1); }))(x, y, z));
  const Tensor scores = torch::log_softmax(numbers({6, 2, 5}), 2);
  show("ctc", nn::CTCLoss(nn::CTCLossOptions().reduction(torch::kSum))(scores, torch::tensor({{1, 2, 3}, {2, 2, 4}}), torch::tensor({6, 6}), torch::tensor({3, 2})));
  show("poisson", nn::PoissonNLLLoss(nn::PoissonNLLLossOptions().full(true))(x, (y + 1) * 3));
  show("ranking", nn::MarginRankingLoss(nn::MarginRankingLossOptions().margin(0.1))(x.select(1, 0), y.select(1, 0), signs));
  show("at losses", torch::stack({torch::hinge_embedding_loss(x, torch::sign(y)), torch::soft_margin_loss(x, torch::sign(y)),
                                  torch::margin_ranking_loss(x, y, torch::sign(z)), torch::triplet_margin_loss(x, y, z),
                                  torch::cosine_embedding_loss(x, y, signs), torch::poisson_nll_loss(x, y, true, false, 1e-8, 1)}));
  text(nn::TripletMarginLoss());
  text(nn::HingeEmbeddingLoss());
  text(nn::CTCLoss());
}

void bags() {
  nn::EmbeddingBag bag(nn::EmbeddingBagOptions(7, 3).mode(torch::kSum).padding_idx(2));
  fill(bag);
  const Tensor indices = torch::tensor({1, 2, 4, 5, 4, 3, 2, 6}), offsets = torch::tensor({0, 3, 3, 5});
  show("bag sum", bag(indices, offsets));
  show("bag weighted", bag->forward(indices, offsets, numbers({8})));
  const Tensor weight = bag->weight.detach();
  show("bag mean", F::embedding_bag(indices.reshape({2, 4}), weight));
  show("bag max", F::embedding_bag(indices, weight, F::EmbeddingBagFuncOptions().offsets(offsets).mode(torch::kMax)));
  show("bag last", F::embedding_bag(indices, weight, F::EmbeddingBagFuncOptions().offsets(torch::tensor({0, 3, 8})).include_last_offset(true)));
  const auto all = torch::embedding_bag(weight, indices, offsets);
  show("bag at", std::get<0>(all));
  bag(indices, offsets).sum().backward();
  show("bag gradient", bag->weight.grad());
  EXPECT(!nn::EmbeddingBag::from_pretrained(weight)->weight.requires_grad() && !nn::Embedding::from_pretrained(weight)->weight.requires_grad());
  EXPECT(nn::Embedding::from_pretrained(weight, nn::EmbeddingFromPretrainedOptions().freeze(false))->weight.requires_grad());
  text(bag);
  const Tensor x = numbers({4, 5}), y = numbers({4, 5}, 0.9);
  show("similarity", nn::CosineSimilarity(nn::CosineSimilarityOptions().dim(1))(x, y));
  show("distance", nn::PairwiseDistance(nn::PairwiseDistanceOptions().p(1).keepdim(true))(x, y));
  text(nn::PairwiseDistance());
  text(nn::CosineSimilarity());
  nn::AdaptiveLogSoftmaxWithLoss adaptive(nn::AdaptiveLogSoftmaxWithLossOptions(8, 12, {4, 8}).div_value(2));
  fill(adaptive);
  const Tensor input = numbers({5, 8}, 0.6), target = torch::tensor({0, 5, 11, 3, 8});
  auto found = adaptive->forward(input, target);
  show("adaptive output", found.output);
  EXPECT(std::abs(found.output.mean().item<double>() + torch::tensor(found.loss).item<double>()) < 1e-5);
  show("adaptive log_prob", adaptive->log_prob(input));
  show("adaptive predict", adaptive->predict(input));
}

void attention() {
  nn::MultiheadAttention plain(nn::MultiheadAttentionOptions(8, 2)), other(nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6).add_bias_kv(true).add_zero_attn(true));
  fill(plain);
  fill(other);
  const Tensor x = numbers({4, 3, 8}), mask = torch::triu(torch::ones({4, 4}), 1).to(torch::kBool);
  auto [out, weights] = plain(x, x, x);
  show("attention", out);
  show("attention weights", weights);
  auto masked = plain->forward(x, x, x, Tensor(), false, mask.to(torch::kFloat) * -1e9);
  show("attention masked", std::get<0>(masked));
  EXPECT(!std::get<1>(masked).defined());
#ifdef TORCH_RUSHLIGHT
  // LibTorch adds a mask of truth values as ones, and takes no input without a batch.
  CLOSE(std::get<0>(plain->forward(x, x, x, Tensor(), true, mask)), std::get<0>(masked));
  CLOSE(std::get<0>(plain(x.select(1, 1), x.select(1, 1), x.select(1, 1))), out.select(1, 1));
#endif
  const Tensor padding = torch::tensor({{false, false, true, true}, {false, false, false, false}, {false, true, false, true}});
  auto [hidden, seen] = plain->forward(x, x, x, padding, true, Tensor(), false);
  show("attention padded", hidden);
  show("attention each", seen);
  show("attention mixed", std::get<0>(other(x, numbers({5, 3, 6}), numbers({5, 3, 6}, 0.2))));

  nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.0).activation(torch::kGELU));
  fill(layer);
  show("encoder layer", layer(x));
  nn::TransformerDecoderLayer decoder(nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.0));
  fill(decoder);
  show("decoder layer", decoder->forward(x, numbers({6, 3, 8}, 0.2), mask.to(torch::kFloat) * -1e9));
  nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(layer, 2).norm(nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({8})))));
  fill(encoder);
  show("encoder", encoder->forward(x, Tensor(), padding));
  nn::Transformer model(nn::TransformerOptions(8, 2, 1, 2).dim_feedforward(16).dropout(0.0));
  fill(model);
  const Tensor mask4 = nn::TransformerImpl::generate_square_subsequent_mask(4);
  show("mask", torch::exp(mask4));
  Tensor made = model->forward(numbers({5, 3, 8}, 0.5), x, Tensor(), mask4);
  show("transformer", made);
  made.sum().backward();
  show("transformer gradient", model->parameters()[0].grad());
  for (const auto& item : model->named_parameters()) std::printf("%s\n", item.key().c_str());
}

void recurrent() {
  nn::RNNCell rnn(nn::RNNCellOptions(4, 3).nonlinearity(torch::kReLU));
  nn::LSTMCell lstm(nn::LSTMCellOptions(4, 3).bias(false));
  nn::GRUCell gru(4, 3);
  fill(rnn);
  fill(lstm);
  fill(gru);
  const Tensor x = numbers({2, 4}), h = numbers({2, 3}, 0.8);
  show("rnn cell", rnn(x, h));
#ifdef TORCH_RUSHLIGHT
  CLOSE(rnn(x[0]), rnn(x)[0]);
#endif
  auto [hidden, cell] = lstm(x);
  show("lstm cell", hidden);
  show("lstm cell again", std::get<1>(lstm->forward(x, std::make_tuple(hidden, cell))));
  show("gru cell", gru(x, h));
  text(rnn);
  text(gru);

  namespace R = nn::utils::rnn;
  const std::vector<Tensor> lines = {numbers({2, 4}), numbers({5, 4}, 0.5), numbers({3, 4}, 0.9)};
  const Tensor padded = R::pad_sequence(lines, true, -1);
  show("padded", padded);
  const R::PackedSequence packed = R::pack_padded_sequence(padded, torch::tensor({2, 5, 3}), true, false);
  show("packed", packed.data());
  show("batches", packed.batch_sizes());
  auto [back, lengths] = R::pad_packed_sequence(packed, true, -1, 6);
  show("unpacked", back);
  show("lengths", lengths);
  nn::LSTM network(nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true));
  fill(network);
  auto [out, state] = network->forward_with_packed_input(packed);
  show("packed lstm", std::get<0>(R::pad_packed_sequence(out)));
  show("packed lstm state", std::get<0>(state));
  nn::GRU gates(nn::GRUOptions(4, 3));
  fill(gates);
  auto [steps, last] = gates->forward_with_packed_input(R::pack_sequence({numbers({3, 4}), numbers({2, 4}, 0.5)}), numbers({1, 2, 3}, 0.8));
  show("packed gru", steps.data());
  show("packed gru state", last);
}

void functions() {
  const Tensor a = torch::tensor({1, 2, 2, 3, 1, 1}), b = torch::tensor({4.0, 5.0});
  auto grids = torch::meshgrid({torch::arange(3), torch::arange(2)}, "xy");
  show("grid0", grids[0]);
  show("grid1", torch::meshgrid({torch::arange(3), torch::arange(2)}, "ij")[1]);
  auto [values, inverse, counts] = torch::unique_consecutive(a, true, true);
  show("consecutive", values);
  show("consecutive inverse", inverse);
  show("consecutive counts", counts);
  EXPECT(std::get<1>(torch::unique_consecutive(a)).numel() == 0);
  show("unique_dim", std::get<0>(torch::unique_dim(torch::tensor({{3, 1}, {1, 2}, {3, 1}}), 0)));
  show("unique2", std::get<2>(torch::_unique2(a, true, false, true)));
  show("cartesian", torch::cartesian_prod({a.slice(0, 0, 2), torch::tensor({7, 8})}));
  show("tensordot", torch::tensordot(numbers({2, 3, 4}), numbers({4, 3, 5}), {2, 1}, {0, 1}));
  show("block_diag", torch::block_diag({torch::ones({2, 1}), torch::full({1, 2}, 2.0)}));
  EXPECT(torch::atleast_1d(torch::tensor(2)).dim() == 1 && torch::atleast_2d(b).sizes() == std::vector<int64_t>{1, 2} && torch::atleast_3d(b).dim() == 3);
  EXPECT(torch::broadcast_tensors({torch::ones({2, 1}), torch::ones({3})})[0].size(1) == 3);
  show("chain", torch::chain_matmul({numbers({2, 3}), numbers({3, 4}), numbers({4, 1})}));
  EXPECT(torch::promote_types(torch::kInt, torch::kHalf) == torch::kHalf && torch::promote_types(torch::kByte, torch::kChar) == torch::kShort);
  EXPECT(torch::result_type(torch::ones({2}, torch::kInt), 1.5) == torch::kFloat && torch::result_type(torch::ones({2}, torch::kHalf), torch::tensor(1.0)) == torch::kHalf);
  EXPECT(torch::result_type(torch::ones({2}), c10::Scalar(c10::complex<double>(1, 2))) == torch::kComplexFloat);
  EXPECT(torch::can_cast(torch::kInt, torch::kFloat) && !torch::can_cast(torch::kFloat, torch::kInt));
  auto [cells, edges] = torch::histogram(numbers({50}), 4);
  show("histogram", cells);
  show("edges", edges);

  const Tensor signal = numbers({2, 40}), window = torch::hann_window(8);
  const Tensor spectrum = torch::stft(signal, 8, 4, 8, window, true, "reflect", false, torch::nullopt, true);
  show("stft", torch::view_as_real(spectrum));
  show("stft plain", torch::view_as_real(torch::stft(signal[0], 8, 2, 6, torch::hann_window(6), false, "reflect", true, torch::nullopt, true)));
  show("istft", torch::istft(spectrum, 8, 4, 8, window));
  CLOSE(torch::istft(spectrum, 8, 4, 8, window), signal);
  show("fftfreq", torch::fft::fftfreq(5, 0.5));
  show("rfftfreq", torch::fft::rfftfreq(6, 1.0, torch::kFloat));
}

void complex_numbers() {
  const Tensor re = numbers({3}), im = numbers({3}, 0.9), z = torch::complex(re, im);
  EXPECT(z.is_complex() && z.dtype() == torch::kComplexFloat && !z.is_floating_point() && z.element_size() == 8);
  EXPECT(torch::real(z).equal(re) && torch::imag(z).equal(im) && torch::view_as_complex(torch::view_as_real(z)).equal(z));
  CLOSE(torch::real(torch::polar(torch::ones({3}), re)), torch::cos(re));
  const auto first = z[0].item<c10::complex<float>>();
  EXPECT(first.real() == re[0].item<float>() && first.imag() == im[0].item<float>());
  EXPECT(z.data_ptr<c10::complex<float>>()[2] == z[2].item<c10::complex<float>>());
  const Tensor product = z * c10::complex<float>(0, 1);
  CLOSE(torch::real(product), -im);
  EXPECT(torch::fft::fft(re).dtype() == torch::kComplexFloat && torch::toString(torch::kComplexDouble) == std::string("ComplexDouble"));
  const Tensor made = torch::tensor({c10::complex<double>(1, 2), c10::complex<double>(-1.5, 0.25)});
  EXPECT(made.dtype() == torch::kComplexDouble && made.sum().item<c10::complex<double>>() == c10::complex<double>(-0.5, 2.25));
  std::cout << made << "\n" << z << "\n" << torch::view_as_complex(numbers({2, 2, 2}) * 1000) << "\n" << torch::zeros({2}, torch::kComplexFloat)[0] << std::endl;
  std::cout << made[0].item() << " " << c10::complex<float>(1, -2) << std::endl;
}

void training() {
  nn::ParameterDict dict(torch::OrderedDict<std::string, Tensor>({{"a", torch::ones({2})}, {"b", torch::zeros({3})}}));
  EXPECT(dict->size() == 2 && dict->contains("b") && dict["a"].size(0) == 2 && dict->pop("a").numel() == 2 && dict->keys() == std::vector<std::string>{"b"});
  nn::ParameterList list(torch::ones({2}), torch::ones({1}));
  EXPECT(list->size() == 2 && list[1].numel() == 1 && list->named_parameters().contains("0"));

  torch::optim::SGD sgd({torch::ones({1}, torch::requires_grad())}, torch::optim::SGDOptions(1.0));
  torch::optim::ReduceLROnPlateauScheduler plateau(sgd, torch::optim::ReduceLROnPlateauScheduler::min, 0.5, 1);
  std::vector<double> rates;
  for (float loss : {3.0f, 2.0f, 2.0f, 2.0f, 2.0f, 1.0f, 1.5f, 1.5f}) {
    plateau.step(loss);
    rates.push_back(static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options()).lr());
  }
  show("rates", torch::tensor(rates));

  nn::Linear linear(2, 2);
  const Tensor flat = nn::utils::parameters_to_vector(linear->parameters()).detach();
  nn::utils::vector_to_parameters(flat * 2, linear->parameters());
  CLOSE(nn::utils::parameters_to_vector(linear->parameters()), flat * 2);
  EXPECT(nn::init::dirac_(torch::empty({2, 2, 3})).sum().item<float>() == 2);
  show("sparse", (nn::init::sparse_(torch::empty({10, 3}), 0.3) == 0).sum(0));
  {
    torch::autograd::DetectAnomalyGuard guard;
    Tensor x = torch::zeros({1}, torch::requires_grad());
    bool failed = false;
    try {
      (torch::sqrt(x) * 0).backward();
    } catch (const c10::Error&) {
      failed = true;
    }
    EXPECT(failed && torch::autograd::AnomalyMode::is_enabled());
  }
  EXPECT(!torch::autograd::AnomalyMode::is_enabled());
  // Copies of layers have parameters of their own.
  nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(4, 2));
  auto copy = std::dynamic_pointer_cast<nn::TransformerEncoderLayerImpl>(layer->clone());
  fill(layer);
  EXPECT(!copy->linear1->weight.equal(layer->linear1->weight) && copy->parameters().size() == layer->parameters().size());
}

int main() {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  torch::manual_seed(0);
  padding();
  resizing();
  pooling();
  losses();
  bags();
  attention();
  recurrent();
  functions();
  complex_numbers();
  training();
}
