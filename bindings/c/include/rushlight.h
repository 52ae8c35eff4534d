/* Rushlight's C interface. Made from bindings/c/src by the test `headers`; do not edit.
 *
 * Every function may be called from several threads at once. Functions that can fail return a status; rl_last_error
 * returns the text of the calling thread's last error. No function lets a panic pass. */
#ifndef RUSHLIGHT_H
#define RUSHLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RL_ABI_VERSION 1

#define RL_OK 0
#define RL_ERROR 1
#define RL_ERROR_SHAPE 2
#define RL_ERROR_DTYPE 3
#define RL_ERROR_DEVICE 4
#define RL_ERROR_INDEX 5
#define RL_ERROR_VALUE 6
#define RL_ERROR_AUTOGRAD 7
#define RL_ERROR_OUT_OF_MEMORY 8
#define RL_ERROR_UNSUPPORTED 9
#define RL_ERROR_NUMERICAL 10
#define RL_ERROR_IO 11
#define RL_ERROR_TIMEOUT 12

/* Kinds of values. */
#define RL_DEFAULT 0 /* The parameter's default */
#define RL_NONE 1 /* Python's None, an undefined tensor */
#define RL_TENSOR 2 /* tensor */
#define RL_TENSORS 3 /* tensors, count of them */
#define RL_BOOL 4 /* integer is 0 or 1 */
#define RL_INT 5 /* integer */
#define RL_FLOAT 6 /* number */
#define RL_INTS 7 /* integers, count of them */
#define RL_FLOATS 8 /* numbers, count of them */
#define RL_STRING 9 /* text, count bytes of UTF-8 */
#define RL_DTYPE 10 /* integer is a dtype's number */
#define RL_DEVICE 11 /* integer is the device's kind, count its index */
#define RL_MEMORY_FORMAT 12 /* integer is a memory format: 0 contiguous, 1 preserve, 2 channels last, 3 channels last 3d */
#define RL_COMPLEX 13 /* numbers: the real and the imaginary part; rl_value_free frees a result's */

/* Dtypes, with PyTorch's numbers. */
#define RL_DTYPE_UINT8 0
#define RL_DTYPE_INT8 1
#define RL_DTYPE_INT16 2
#define RL_DTYPE_INT32 3
#define RL_DTYPE_INT64 4
#define RL_DTYPE_FLOAT16 5
#define RL_DTYPE_FLOAT32 6
#define RL_DTYPE_FLOAT64 7
#define RL_DTYPE_COMPLEX32 8
#define RL_DTYPE_COMPLEX64 9
#define RL_DTYPE_COMPLEX128 10
#define RL_DTYPE_BOOL 11
#define RL_DTYPE_BFLOAT16 15
#define RL_DTYPE_FLOAT8_E5M2 23
#define RL_DTYPE_FLOAT8_E4M3FN 24
#define RL_DTYPE_FLOAT8_E5M2FNUZ 25
#define RL_DTYPE_FLOAT8_E4M3FNUZ 26
#define RL_DTYPE_UINT16 27
#define RL_DTYPE_UINT32 28
#define RL_DTYPE_UINT64 29
#define RL_DTYPE_FLOAT8_E8M0FNU 44

/* Kinds of devices, with PyTorch's numbers. */
#define RL_CPU 0
#define RL_CUDA 1
#define RL_XPU 12
#define RL_META 14

/* Kinds of entries of an index. */
#define RL_INDEX_INT 0
#define RL_INDEX_SLICE 1
#define RL_INDEX_NONE 2
#define RL_INDEX_ELLIPSIS 3
#define RL_INDEX_TENSOR 4
#define RL_INDEX_BOOL 5

#ifdef __cplusplus
extern "C" {
#endif

/* A reference to a tensor; a program frees each reference it gets, with rl_tensor_free. Null is an undefined tensor. */
typedef struct rl_tensor rl_tensor;
/* An op; never freed. */
typedef struct rl_op rl_op;
/* A value of a file: None, a bool, a number, text, a tensor, a list, a tuple or a dict. */
typedef struct rl_object rl_object;
/* An optimizer. */
typedef struct rl_optimizer rl_optimizer;
/* An exported model. */
typedef struct rl_model rl_model;
/* A forward pass of rl_function_apply. */
typedef struct rl_frame rl_frame;
/* RL_OK, or the class of the error whose text rl_last_error returns. */
typedef int32_t rl_status;
/* The kind of a value. */
typedef int32_t rl_kind;

typedef union rl_data {
  rl_tensor *tensor;
  rl_tensor *const *tensors;
  int64_t integer;
  double number;
  const int64_t *integers;
  const double *numbers;
  const char *text;
} rl_data;

/* An argument or a result. */
typedef struct rl_value {
  rl_kind kind;
  rl_data data;
  size_t count;
} rl_value;

/* An entry of an index: a number or a truth value (start), a slice, a new axis, an ellipsis, a tensor or a mask. */
typedef struct rl_index {
  int32_t kind;
  int32_t given; /* for slices: bit 0, start is given; bit 1, stop is given */
  int64_t start;
  int64_t stop;
  int64_t step;
  const rl_tensor *tensor;
} rl_index;

/* An option of an optimizer's group. */
typedef struct rl_option {
  const char *name;
  rl_value value;
} rl_option;

/* Callbacks may be called from any thread. They return RL_OK, or call rl_set_error and return another status. */
typedef void (*rl_deleter)(void *context);
typedef rl_status (*rl_hook)(void *context, const rl_tensor *gradient, rl_tensor **replacement);
typedef rl_status (*rl_forward)(void *context, rl_frame *frame);
typedef rl_status (*rl_backward_function)(void *context, rl_tensor *const *saved, size_t saved_count, rl_tensor *const *gradients,
                                          size_t gradients_count, rl_tensor **found, size_t inputs_count);
typedef rl_status (*rl_closure)(void *context, rl_tensor **loss);
typedef rl_status (*rl_kernel)(void *context, rl_object *const *arguments, size_t count, rl_object **out);

/* Versions, errors, devices. */

/* The version of the library, for example "0.1.0". */
const char *rl_version(void);

/* The version of this interface; a program compares it with RL_ABI_VERSION. */
uint32_t rl_abi_version(void);

/* The text of this thread's last error, valid until its next one. */
const char *rl_last_error(void);

/* Sets this thread's error text, for callbacks that return a status other than RL_OK. */
void rl_set_error(const char *message);

/* The number of devices of a kind (RL_CPU, RL_CUDA, RL_XPU). */
size_t rl_device_count(int32_t kind);

/* Waits for all work of a device. */
rl_status rl_synchronize(int32_t kind, size_t index);

/* Seeds the generators of all devices. */
void rl_manual_seed(uint64_t seed);

/* The number of threads that ops use. */
size_t rl_num_threads(void);

/* Sets the number of threads that ops use. */
rl_status rl_set_num_threads(size_t threads);

/* The dtype of new tensors for which none is given. */
int32_t rl_default_dtype(void);

/* Sets the dtype of new tensors for which none is given. */
rl_status rl_set_default_dtype(int32_t dtype);

/* Bytes of an element of a dtype. */
rl_status rl_dtype_size(int32_t dtype, size_t *out);

/* Tensors. */

/* Another reference to the same tensor. */
rl_tensor *rl_tensor_ref(const rl_tensor *tensor);

/* Frees a reference; null is allowed. */
void rl_tensor_free(rl_tensor *tensor);

/* The number of dimensions. */
size_t rl_tensor_dim(const rl_tensor *tensor);

/* The sizes, valid as long as the reference. */
const int64_t *rl_tensor_sizes(const rl_tensor *tensor);

/* The strides in elements, valid as long as the reference. */
const int64_t *rl_tensor_strides(const rl_tensor *tensor);

/* The number of elements. */
size_t rl_tensor_numel(const rl_tensor *tensor);

/* The dtype's number; -1 for null. */
int32_t rl_tensor_dtype(const rl_tensor *tensor);

/* The kind of the tensor's device; `index`, unless null, receives its index. */
int32_t rl_tensor_device(const rl_tensor *tensor, size_t *index);

/* The address of the first element, on the tensor's device. Elements lie at multiples of the strides. */
void *rl_tensor_data(const rl_tensor *tensor);

/* Offset of the first element in its storage, in elements. */
size_t rl_tensor_offset(const rl_tensor *tensor);

/* Whether elements lie one after the other in C's order. */
bool rl_tensor_is_contiguous(const rl_tensor *tensor);

/* A number that is the same for references to the same tensor. */
size_t rl_tensor_id(const rl_tensor *tensor);

/* The number of in-place changes of the tensor's memory. */
uint32_t rl_tensor_version(const rl_tensor *tensor);

/* Whether two tensors share memory. */
bool rl_tensor_shares_storage(const rl_tensor *a, const rl_tensor *b);

/* The value of a tensor of one element. */
rl_status rl_tensor_item(const rl_tensor *tensor, rl_value *out);

/* A tensor over memory of the CPU that the caller provides: `dim` sizes, and strides in elements or null. The
 * memory stays valid until `deleter` is called with `context`, from any thread; a null deleter means that it
 * outlives the tensor. */
rl_status rl_tensor_from_blob(void *data, const int64_t *sizes, const int64_t *strides, size_t dim, int32_t dtype,
    rl_deleter deleter, void *context, rl_tensor **out);

/* A tensor with copies of elements of its dtype in C's order. */
rl_status rl_tensor_from_data(const void *data, const int64_t *sizes, size_t dim, int32_t dtype, rl_tensor **out);

/* Copies the elements, in C's order and in the tensor's dtype, to memory of `bytes` bytes; waits for the device. */
rl_status rl_tensor_to_data(const rl_tensor *tensor, void *data, size_t bytes);

/* LibTorch's name of a dtype, for example "Float"; null if there is none of that number. */
const char *rl_dtype_name(int32_t dtype);

/* The dtype that an op of these tensors computes in. */
rl_status rl_result_type(rl_tensor *const *tensors, size_t count, int32_t *out);

/* The dtype that an op of these values, tensors and numbers, computes in. */
rl_status rl_result_type_of(const rl_value *values, size_t count, int32_t *out);

/* The dtype in which tensors of two dtypes combine. */
rl_status rl_promote_types(int32_t a, int32_t b, int32_t *out);

/* Whether in-place ops may write values of one dtype to a tensor of another. */
rl_status rl_can_cast(int32_t from, int32_t to, bool *out);

/* Text. */

/* The tensor as LibTorch prints it, in lines of at most `linesize` characters; rl_string_free frees it. */
rl_status rl_tensor_print(const rl_tensor *tensor, size_t linesize, char **out);

/* Frees a string of this library; null is allowed. */
void rl_string_free(char *text);

/* Indexing. */

/* The elements of an index: a view if it has no tensors. */
rl_status rl_index_get(const rl_tensor *tensor, const rl_index *entries, size_t count, rl_tensor **out);

/* Writes a tensor or a number to the elements of an index. With `accumulate`, adds a tensor to them. */
rl_status rl_index_put(const rl_tensor *tensor, const rl_index *entries, size_t count, const rl_value *value, bool
    accumulate);

/* Ops. */

/* Finds an op: "add", "Tensor.add_", "nn.functional.relu", "linalg.norm". A name with its signature, as
 * rl_op_signature gives it, is that overload alone. Ops live as long as the program. Finding an op takes a lock:
 * keep the result. */
rl_status rl_op_find(const char *name, const rl_op **out);

/* Calls an op with arguments in the order of its signature; those left out have their defaults. The result is a
 * tensor, several, a number, or nothing; rl_value_free frees it. */
rl_status rl_call(const rl_op *op, const rl_value *args, size_t count, rl_value *out);

/* Frees what a result holds. */
void rl_value_free(rl_value *value);

/* Frees the array of a result of kind RL_TENSORS, but not its tensors: the caller has taken them. */
void rl_value_free_array(rl_value *value);

/* The number of signatures of ops. */
size_t rl_op_count(void);

/* A signature of an op with its namespace, by number; null if there are not so many. */
const char *rl_op_signature(size_t at);

/* Autograd. */

/* Whether this thread records ops. */
bool rl_grad_enabled(void);

/* Turns recording of this thread on or off; returns the previous state. */
bool rl_set_grad_enabled(bool enabled);

/* Whether a backward pass checks for numbers that are not a number. */
bool rl_detect_anomaly(void);

/* Turns that check on or off for the whole process; the error names the op. Returns the previous state. */
bool rl_set_detect_anomaly(bool enabled);

/* Turns inference mode of this thread on or off; returns the previous state. */
bool rl_set_inference_mode(bool enabled);

/* Whether ops on the tensor are recorded. */
bool rl_tensor_requires_grad(const rl_tensor *tensor);

/* Sets whether ops on a leaf are recorded. */
rl_status rl_tensor_set_requires_grad(const rl_tensor *tensor, bool requires_grad);

/* Whether the tensor was not computed by a recorded op. */
bool rl_tensor_is_leaf(const rl_tensor *tensor);

/* The name of the recorded op that made the tensor, or null; rl_string_free frees it. */
char *rl_tensor_grad_fn(const rl_tensor *tensor);

/* The gradient, or null; a new reference. */
rl_tensor *rl_tensor_grad(const rl_tensor *tensor);

/* Sets the gradient; null clears it. */
rl_status rl_tensor_set_grad(const rl_tensor *tensor, const rl_tensor *grad);

/* Keeps the gradient of a tensor that is not a leaf. */
rl_status rl_tensor_retain_grad(const rl_tensor *tensor);

/* Clears the gradients of tensors. */
rl_status rl_zero_grad(rl_tensor *const *tensors, size_t count);

/* The same memory without history. */
rl_status rl_tensor_detach(const rl_tensor *tensor, rl_tensor **out);

/* The same memory without history and without a count of changes: Python's `.data`. */
rl_status rl_tensor_untracked(const rl_tensor *tensor, rl_tensor **out);

/* Adds the gradients of `outputs` to the leaves they depend on, or only to `inputs` if there are any. `gradients`
 * is null or has one for each output, which may be null. `retain_graph` is -1 for the default, as `create_graph`
 * says. */
rl_status rl_backward(rl_tensor *const *outputs, size_t count, rl_tensor *const *gradients, int32_t retain_graph,
    bool create_graph, rl_tensor *const *inputs, size_t inputs_count);

/* The gradients of `outputs` by `inputs`, written to `found`; null for those that are not used. */
rl_status rl_grad(rl_tensor *const *outputs, size_t count, rl_tensor *const *inputs, size_t inputs_count, rl_tensor
    *const *gradients, int32_t retain_graph, bool create_graph, bool allow_unused, rl_tensor **found);

/* Calls `hook` when the tensor's gradient is computed. `free` is called with `context` when the hook is dropped. */
rl_status rl_tensor_register_hook(const rl_tensor *tensor, rl_hook hook, void *context, rl_deleter free);

/* Functions with a backward of their own. */

/* Runs `forward` and records it with `backward`; returns its outputs, which rl_value_free frees. `free` is called
 * with `context` when the graph is. */
rl_status rl_function_apply(const char *name, rl_tensor *const *inputs, size_t count, rl_forward forward,
    rl_backward_function backward, void *context, rl_deleter free, rl_value *out);

/* Keeps a tensor for backward. In-place changes until then make backward an error. */
rl_status rl_frame_save(rl_frame *frame, const rl_tensor *tensor);

/* Adds an output. */
rl_status rl_frame_return(rl_frame *frame, const rl_tensor *tensor);

/* State dicts and files. */

/* An object of a plain value or a tensor. */
rl_status rl_object_new(const rl_value *value, rl_object **out);

/* An empty dict; `ordered`: Python's OrderedDict, which state dicts of modules are. */
rl_object *rl_object_dict(bool ordered);

/* An empty list. */
rl_object *rl_object_list(void);

/* An empty tuple. */
rl_object *rl_object_tuple(void);

/* Frees an object; null is allowed. */
void rl_object_free(rl_object *object);

/* Adds an entry to a dict (with `key`) or to a list or a tuple (`key` is null). Takes `entry` over. */
rl_status rl_object_add(rl_object *object, const char *key, rl_object *entry);

/* The number of entries of a dict, a list or a tuple; 0 for others. */
size_t rl_object_count(const rl_object *object);

/* Whether the object is a dict. */
bool rl_object_is_dict(const rl_object *object);

/* Whether the object is a tuple. */
bool rl_object_is_tuple(const rl_object *object);

/* Whether the object is a list. */
bool rl_object_is_list(const rl_object *object);

/* The key of a dict's entry by place; rl_string_free frees it. Null if there is none. */
char *rl_object_key(const rl_object *object, size_t at);

/* An entry by place, as an object of its own. */
rl_status rl_object_entry(const rl_object *object, size_t at, rl_object **out);

/* An entry of a dict by key, as an object of its own; null if there is none. */
rl_status rl_object_find(const rl_object *object, const char *key, rl_object **out);

/* The tensor or the plain value of an object; rl_value_free frees it. Text belongs to the object. */
rl_status rl_object_value(const rl_object *object, rl_value *out);

/* Writes a file that PyTorch's `torch.load` reads. */
rl_status rl_save(const rl_object *object, const char *path);

/* Reads a file of `torch.save`. It runs no code of the file. */
rl_status rl_load(const char *path, rl_object **out);

/* The bytes of a file as rl_save would write it; rl_bytes_free frees them. */
rl_status rl_save_bytes(const rl_object *object, uint8_t **out, size_t *count);

/* Frees the bytes of rl_save_bytes. */
void rl_bytes_free(uint8_t *bytes, size_t count);

/* Reads the bytes of a file of `torch.save`. */
rl_status rl_load_bytes(const uint8_t *bytes, size_t count, rl_object **out);

/* The tensor of a handle as an object. */
rl_status rl_object_tensor(const rl_tensor *tensor, rl_object **out);

/* Optimizers. */

/* An optimizer ("SGD", "AdamW", "LBFGS", …) with one group of parameters. */
rl_status rl_optimizer_new(const char *name, rl_tensor *const *params, size_t count, const rl_option *options,
    size_t options_count, rl_optimizer **out);

/* Frees an optimizer; null is allowed. */
void rl_optimizer_free(rl_optimizer *optimizer);

/* Adds a group of parameters. */
rl_status rl_optimizer_add_group(rl_optimizer *optimizer, rl_tensor *const *params, size_t count, const rl_option
    *options, size_t options_count);

/* Changes an option of a group. */
rl_status rl_optimizer_set(rl_optimizer *optimizer, size_t group, const char *name, const rl_value *value);

/* An option of a group as an object; null if the group has none of that name. */
rl_status rl_optimizer_get(rl_optimizer *optimizer, size_t group, const char *name, rl_object **out);

/* Changes the parameters by their gradients. */
rl_status rl_optimizer_step(rl_optimizer *optimizer);

/* Computes the loss by `closure` as often as the optimizer needs it, and changes the parameters. The closure must
 * not call the optimizer; rl_zero_grad clears gradients. `loss`, unless null, receives the first loss. */
rl_status rl_optimizer_step_closure(rl_optimizer *optimizer, rl_closure closure, void *context, rl_tensor **loss);

/* State and options, with PyTorch's keys. */
rl_status rl_optimizer_state(rl_optimizer *optimizer, rl_object **out);

/* Goes back to a state, this library's or PyTorch's. Nothing changes if it does not fit. */
rl_status rl_optimizer_load_state(rl_optimizer *optimizer, const rl_object *state);

/* Scales gradients so that their norm is at most `max_norm`; returns the norm. */
rl_status rl_clip_grad_norm(rl_tensor *const *params, size_t count, double max_norm, double norm_type, double *out);

/* Exported models. */

/* Reads a .rlm file, an archive of PyTorch's torch.jit or torch.export, or an ONNX file. It runs no code of the
 * file but the ops of this library. */
rl_status rl_model_load(const char *path, rl_model **out);

/* Reads the bytes of such a file. */
rl_status rl_model_load_bytes(const uint8_t *bytes, size_t count, rl_model **out);

/* Frees a model; null is allowed. */
void rl_model_free(rl_model *model);

/* Calls a method ("forward") with the entries of a list; rl_object_free frees the result. */
rl_status rl_model_call(const rl_model *model, const char *method, const rl_object *arguments, rl_object **out);

/* Sets the mode of the model's modules: training or evaluation. */
rl_status rl_model_train(const rl_model *model, bool mode);

/* The weights as a dict of tensors that share memory with the model; parameters are those that require gradients. */
rl_status rl_model_state(const rl_model *model, rl_object **out);

/* A copy of the model with its weights on a device, by the device's kind and index. */
rl_status rl_model_to(const rl_model *model, int32_t kind, size_t index, rl_model **out);

/* A program for inference: constants and batch norms folded. */
rl_status rl_model_freeze(const rl_model *model, rl_model **out);

/* Writes a .rlm file, or a TorchScript archive if the path ends in .pt, .pth or .ts. */
rl_status rl_model_save(const rl_model *model, const char *path);

/* The same with further files: names, and the bytes of each. */
rl_status rl_model_save_with(const rl_model *model, const char *path, const char *const *names, const uint8_t *const
    *contents, const size_t *sizes, size_t count);

/* A further file of a model's archive: its bytes, which rl_bytes_free frees; null if there is none of that name. */
rl_status rl_model_extra(const char *path, const char *name, uint8_t **out, size_t *count);

/* The same of an archive's bytes. */
rl_status rl_model_extra_bytes(const uint8_t *bytes, size_t size, const char *name, uint8_t **out, size_t *count);

/* Ops of other libraries. */

/* Defines an op by its schema in PyTorch's words: "namespace::name(Tensor x, int n=1) -> Tensor". Python has it as
 * torch.ops.namespace.name, and exported models may call it. */
rl_status rl_library_define(const char *schema);

/* Gives an op a kernel for a dispatch key: "CPU", "CUDA", "XPU", "Meta", "Autograd", "CompositeImplicitAutograd".
 * `free` is called with `context` when the kernel is replaced. */
rl_status rl_library_implement(const char *name, const char *key, rl_kernel kernel, void *context, rl_deleter free);

/* The schema of an op; rl_string_free frees it. Null if there is none of that name. */
char *rl_library_schema(const char *name);

/* Calls an op with the entries of a list; rl_object_free frees the result. */
rl_status rl_library_call(const char *name, const rl_object *arguments, rl_object **out);

/* Whether calls of this thread skip kernels of "Autograd"; returns the previous state. */
bool rl_library_below_autograd(bool below);

#ifdef __cplusplus
}
#endif

#endif
