// torch::jit::load: archives of PyTorch run and agree with PyTorch's answers; argument: the folder of the fixtures.
#include <torch/script.h>

#include <fstream>
#include <iostream>

namespace {

void agree(const torch::Tensor& found, const torch::Tensor& wanted, const std::string& name) {
  TORCH_CHECK(torch::allclose(found, wanted, 1e-4, 1e-5), name, ": outputs differ");
}

void run(const std::string& folder, const std::string& name, const std::string& ending, const std::string& known = ".answers.pt") {
  torch::jit::script::Module module = torch::jit::load(folder + "/" + name + ending);
  module.eval();
  auto answers = torch::detail::Object::load(folder + "/" + name + known);
  torch::NoGradGuard guard;
  std::vector<torch::jit::IValue> inputs;
  inputs.push_back(answers.find("input").value().toTensor());
  torch::IValue out = module.forward(inputs);
  auto wanted = answers.find("outputs");
  if (out.isTensor()) {
    TORCH_CHECK(wanted.size() == 1, name, ": one output");
    agree(out.toTensor(), wanted.entry(0).value().toTensor(), name);
  } else {
    TORCH_CHECK(out.toTuple()->elements().size() == wanted.size(), name, ": outputs");
    for (size_t i = 0; i < wanted.size(); ++i) agree(out.toTuple()->elements()[i].toTensor(), wanted.entry(i).value().toTensor(), name);
  }
}

}  // namespace

int main(int argc, const char** argv) {
  TORCH_CHECK(argc == 2, "takes the folder of the fixtures");
  const std::string folder = argv[1];
  for (const char* name : {"resnet_trace", "bert_script", "recurrent_trace", "control_script"}) run(folder + "/script", name, ".pt");
  run(folder + "/pt2", "transformer", ".pt2");
  // Exported from Rust.
  run(folder + "/rust", "net", ".rlm", ".pt");
  auto module = torch::jit::load(folder + "/script/resnet_trace.pt");
  TORCH_CHECK(!module.named_parameters().empty() && !module.buffers().empty(), "a model has its weights");
  auto x = torch::ones({1, 3, 16, 16});
  auto y = module.forward({x}).toTensor();
  y.sum().backward();
  TORCH_CHECK(module.parameters()[0].grad().defined(), "a loaded model trains");
  agree(torch::jit::freeze(module).forward({x}).toTensor(), y.detach(), "frozen");
  std::ifstream file(folder + "/script/resnet_trace.pt", std::ios::binary);
  auto copy = torch::jit::load(file, torch::kCPU);
  agree(copy.forward({x}).toTensor(), y.detach(), "from a stream");
  TORCH_CHECK(torch::equal(y.slice(1, 0, 2), y.index({torch::indexing::Slice(), torch::indexing::Slice(0, 2)})), "slice");
  // As TorchScript, with files beside it.
  for (const char* ending : {"/back.pt", "/back.rlm"}) {
    const std::string back = std::string(".") + ending;
    module.save(back, {{"note", "written"}, {"empty", ""}});
    torch::jit::ExtraFilesMap files{{"note", ""}, {"other", "kept"}};
    agree(torch::jit::load(back, torch::nullopt, files).forward({x}).toTensor(), y.detach(), "written back");
    TORCH_CHECK(files["note"] == "written" && files["other"] == "kept", "files of an archive");
    std::ifstream stream(back, std::ios::binary);
    files["note"].clear();
    torch::jit::load(stream, torch::kCPU, files);
    TORCH_CHECK(files["note"] == "written", "files of a stream's archive");
  }
  bool failed = false;
  try {
    torch::jit::load(folder + "/none.pt");
  } catch (const c10::Error&) {
    failed = true;
  }
  TORCH_CHECK(failed, "a missing file is an error");
  std::cout << "script.cpp: ok\n";
}
