// Tensors, dtypes and devices between Python and C++ through pybind11, which is a package of its own.
#pragma once

#include <torch/torch.h>

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

extern "C" {
// Of rushlight's Python module: the tensor of an object (null if it is none); the object of a tensor, whose reference
// it takes over.
rl_tensor* rl_python_tensor(PyObject* object);
PyObject* rl_python_object(rl_tensor* tensor);
}

namespace torch {
namespace detail {

// Python's names of dtypes.
inline constexpr std::pair<ScalarType, const char*> python_dtypes[] = {
    {kByte, "uint8"}, {kChar, "int8"}, {kShort, "int16"}, {kInt, "int32"}, {kLong, "int64"}, {kHalf, "float16"}, {kFloat, "float32"}, {kDouble, "float64"},
    {kBool, "bool"}, {kBFloat16, "bfloat16"}, {kFloat8_e5m2, "float8_e5m2"}, {kFloat8_e4m3fn, "float8_e4m3fn"}, {kUInt16, "uint16"}, {kUInt32, "uint32"},
    {kUInt64, "uint64"}};

}  // namespace detail
}  // namespace torch

inline bool THPVariable_Check(PyObject* object) {
  rl_tensor* handle = rl_python_tensor(object);
  rl_tensor_free(handle);
  return handle != nullptr;
}
inline torch::Tensor THPVariable_Unpack(PyObject* object) { return torch::Tensor(rl_python_tensor(object)); }
inline PyObject* THPVariable_Wrap(const torch::Tensor& tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  return rl_python_object(rl_tensor_ref(tensor.handle()));
}

namespace pybind11 {
namespace detail {

template <>
struct type_caster<torch::Tensor> {
  PYBIND11_TYPE_CASTER(torch::Tensor, const_name("torch.Tensor"));
  bool load(handle object, bool) {
    rl_tensor* found = rl_python_tensor(object.ptr());
    if (!found) return false;
    value = torch::Tensor(found);
    return true;
  }
  static handle cast(const torch::Tensor& tensor, return_value_policy, handle) {
    PyObject* object = THPVariable_Wrap(tensor);
    if (!object) throw error_already_set();
    return object;
  }
};

template <>
struct type_caster<torch::IntArrayRef> {
  PYBIND11_TYPE_CASTER(torch::IntArrayRef, const_name("List[int]"));
  bool load(handle object, bool convert) {
    if (!isinstance<sequence>(object) || isinstance<str>(object)) return false;
    make_caster<std::vector<int64_t>> list;
    if (!list.load(object, convert)) return false;
    held_ = cast_op<std::vector<int64_t>>(std::move(list));
    value = held_;
    return true;
  }
  static handle cast(torch::IntArrayRef list, return_value_policy policy, handle parent) {
    return make_caster<std::vector<int64_t>>::cast(list.vec(), policy, parent);
  }

 private:
  std::vector<int64_t> held_;
};

template <>
struct type_caster<torch::ScalarType> {
  PYBIND11_TYPE_CASTER(torch::ScalarType, const_name("torch.dtype"));
  bool load(handle object, bool) {
    if (!isinstance(object, module_::import("rushlight").attr("dtype"))) return false;
    const std::string text = str(object), name = text.substr(text.find('.') + 1);
    for (const auto& [type, known] : torch::detail::python_dtypes) {
      if (name == known) {
        value = type;
        return true;
      }
    }
    return false;
  }
  static handle cast(torch::ScalarType type, return_value_policy, handle) {
    for (const auto& [known, name] : torch::detail::python_dtypes)
      if (type == known) return object(module_::import("rushlight").attr(name)).release();
    throw type_error("a dtype that Python does not have");
  }
};

template <>
struct type_caster<torch::Device> {
  PYBIND11_TYPE_CASTER(torch::Device, const_name("torch.device"));
  type_caster() : value(torch::kCPU) {}
  bool load(handle object, bool) {
    if (!isinstance<str>(object) && !isinstance(object, module_::import("rushlight").attr("device"))) return false;
    value = torch::Device(std::string(str(object)));
    return true;
  }
  static handle cast(const torch::Device& device, return_value_policy, handle) {
    return module_::import("rushlight").attr("device")(device.str()).release();
  }
};

template <>
struct type_caster<torch::Scalar> {
  PYBIND11_TYPE_CASTER(torch::Scalar, const_name("Union[int, float, bool]"));
  bool load(handle object, bool) {
    if (PyBool_Check(object.ptr())) value = torch::Scalar(object.ptr() == Py_True);
    else if (PyLong_Check(object.ptr())) value = torch::Scalar(pybind11::cast<int64_t>(object));
    else if (PyFloat_Check(object.ptr())) value = torch::Scalar(PyFloat_AsDouble(object.ptr()));
    else return false;
    return true;
  }
  static handle cast(const torch::Scalar& scalar, return_value_policy, handle) {
    if (scalar.isBoolean()) return pybind11::bool_(scalar.toBool()).release();
    if (scalar.isFloatingPoint()) return pybind11::float_(scalar.toDouble()).release();
    return pybind11::int_(scalar.toLong()).release();
  }
};

}  // namespace detail
}  // namespace pybind11

namespace py = pybind11;
