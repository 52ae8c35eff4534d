/* A linear model trained in C: ops by name, gradients, an optimizer, a file, errors. */
#include <rushlight.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                   \
  do {                                                                                \
    if ((call) != RL_OK) {                                                            \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, rl_last_error()); \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)
#define EXPECT(condition)                                                    \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

static rl_value of_tensor(rl_tensor *tensor) {
  rl_value v = {RL_TENSOR, {.tensor = tensor}, 1};
  return v;
}
static rl_value of_float(double number) {
  rl_value v = {RL_FLOAT, {.number = number}, 0};
  return v;
}
static rl_value of_ints(const int64_t *list, size_t count) {
  rl_value v = {RL_INTS, {.integers = list}, count};
  return v;
}

static rl_tensor *call(const char *name, const rl_value *args, size_t count) {
  const rl_op *op = NULL;
  rl_value out;
  CHECK(rl_op_find(name, &op));
  CHECK(rl_call(op, args, count, &out));
  EXPECT(out.kind == RL_TENSOR);
  return out.data.tensor;
}

static int freed = 0;
static void count_free(void *context) {
  (void)context;
  ++freed;
}

int main(void) {
  EXPECT(rl_abi_version() == RL_ABI_VERSION);
  EXPECT(rl_op_count() > 500);
  rl_manual_seed(0);

  /* y = x @ [[1], [-2], [0.5]] */
  const int64_t sizes[] = {64, 3}, column[] = {3, 1};
  rl_value size = of_ints(sizes, 2);
  rl_tensor *x = call("randn", &size, 1);
  const float truth_values[] = {1.0f, -2.0f, 0.5f};
  rl_tensor *truth = NULL, *w = NULL;
  CHECK(rl_tensor_from_data(truth_values, column, 2, RL_DTYPE_FLOAT32, &truth));
  rl_value product[] = {of_tensor(x), of_tensor(truth)};
  rl_tensor *y = call("matmul", product, 2);

  rl_value shape = of_ints(column, 2);
  w = call("zeros", &shape, 1);
  CHECK(rl_tensor_set_requires_grad(w, true));
  rl_optimizer *optimizer = NULL;
  rl_option options[] = {{"lr", of_float(0.1)}, {"momentum", of_float(0.5)}};
  CHECK(rl_optimizer_new("SGD", &w, 1, options, 2, &optimizer));
  double last = 1e9;
  for (int step = 0; step < 100; ++step) {
    CHECK(rl_zero_grad(&w, 1));
    rl_value forward[] = {of_tensor(x), of_tensor(w)};
    rl_tensor *out = call("matmul", forward, 2);
    rl_value both[] = {of_tensor(out), of_tensor(y)};
    rl_tensor *loss = call("nn.functional.mse_loss", both, 2);
    CHECK(rl_backward(&loss, 1, NULL, -1, false, NULL, 0));
    CHECK(rl_optimizer_step(optimizer));
    rl_value item;
    CHECK(rl_tensor_item(loss, &item));
    last = item.data.number;
    rl_tensor_free(out);
    rl_tensor_free(loss);
  }
  EXPECT(last < 1e-6);
  float learned[3];
  CHECK(rl_tensor_to_data(w, learned, sizeof learned));
  for (int i = 0; i < 3; ++i) EXPECT(learned[i] > truth_values[i] - 1e-2 && learned[i] < truth_values[i] + 1e-2);

  /* Errors are values. */
  rl_value wrong[] = {of_tensor(x), of_tensor(x)};
  const rl_op *matmul = NULL;
  rl_value out;
  CHECK(rl_op_find("matmul", &matmul));
  EXPECT(rl_call(matmul, wrong, 2, &out) == RL_ERROR_SHAPE);
  EXPECT(strstr(rl_last_error(), "64x3") || strstr(rl_last_error(), "[64, 3]"));
  EXPECT(rl_op_find("no_such_op", &matmul) == RL_ERROR_UNSUPPORTED);
  EXPECT(rl_call(NULL, wrong, 2, &out) == RL_ERROR_VALUE);
  EXPECT(rl_optimizer_new("Nothing", &w, 1, NULL, 0, &optimizer) == RL_ERROR_VALUE);
  rl_value none = {RL_TENSOR, {.tensor = NULL}, 1};
  CHECK(rl_op_find("relu", &matmul));
  EXPECT(rl_call(matmul, &none, 1, &out) == RL_ERROR_VALUE);

  /* Memory of the caller. */
  float own[] = {1, 2, 3, 4};
  const int64_t four[] = {4};
  rl_tensor *view = NULL;
  CHECK(rl_tensor_from_blob(own, four, NULL, 1, RL_DTYPE_FLOAT32, count_free, NULL, &view));
  rl_value twice[] = {of_tensor(view), of_float(2)};
  rl_tensor *same = call("Tensor.mul_", twice, 2);
  EXPECT(own[3] == 8.0f && rl_tensor_data(view) == own);
  rl_tensor_free(same);
  EXPECT(freed == 0);
  rl_tensor_free(view);
  EXPECT(freed == 1);

  /* A file. */
  rl_object *dict = rl_object_dict(true), *entry = NULL, *read = NULL, *found = NULL;
  CHECK(rl_object_tensor(w, &entry));
  CHECK(rl_object_add(dict, "weight", entry));
  CHECK(rl_save(dict, "c_weights.pt"));
  CHECK(rl_load("c_weights.pt", &read));
  CHECK(rl_object_find(read, "weight", &found));
  rl_value kept;
  CHECK(rl_object_value(found, &kept));
  EXPECT(kept.kind == RL_TENSOR && rl_tensor_numel(kept.data.tensor) == 3);
  rl_value_free(&kept);
  rl_object_free(found);
  rl_object_free(read);
  rl_object_free(dict);
  EXPECT(rl_load("no_such_file.pt", &read) == RL_ERROR_IO);

  /* Several results. */
  const rl_op *chunk = NULL;
  CHECK(rl_op_find("chunk", &chunk));
  rl_value parts[] = {of_tensor(x), {RL_INT, {.integer = 4}, 0}};
  CHECK(rl_call(chunk, parts, 2, &out));
  EXPECT(out.kind == RL_TENSORS && out.count == 4 && rl_tensor_sizes(out.data.tensors[0])[0] == 16);
  rl_value_free(&out);

  /* Complex numbers: an argument is a pair of numbers, a result is freed. */
  const float parts_of_z[] = {1, 2};
  const double i[] = {0, 1};
  const int64_t single[] = {1};
  rl_tensor *z = NULL;
  CHECK(rl_tensor_from_data(parts_of_z, single, 1, RL_DTYPE_COMPLEX64, &z));
  rl_value factors[] = {of_tensor(z), {RL_COMPLEX, {.numbers = i}, 2}};
  rl_tensor *turned = call("mul", factors, 2);
  EXPECT(rl_tensor_dtype(turned) == RL_DTYPE_COMPLEX64);
  CHECK(rl_tensor_item(turned, &out));
  EXPECT(out.kind == RL_COMPLEX && out.data.numbers[0] == -2 && out.data.numbers[1] == 1);
  rl_value_free(&out);
  int32_t dtype = -1;
  CHECK(rl_result_type_of(factors, 2, &dtype));
  EXPECT(dtype == RL_DTYPE_COMPLEX64);
  rl_tensor_free(z);
  rl_tensor_free(turned);

  rl_optimizer_free(optimizer);
  rl_tensor_free(x);
  rl_tensor_free(y);
  rl_tensor_free(w);
  rl_tensor_free(truth);
  puts("program.c: ok");
  return 0;
}
