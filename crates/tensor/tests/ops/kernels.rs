//! Kernels of users: texts on the device that `RUSHLIGHT_TEST_DEVICE` names, functions on the CPU.

use crate::support::data::device;
use rushlight_core::{DType, Result};
use rushlight_tensor::autograd::{gradcheck, no_grad};
use rushlight_tensor::kernel::{DeviceKernel, Kernel, KernelArg, Language, address};
use rushlight_tensor::{Tensor, capture};

const CUDA: &str = r#"
extern "C" __global__ void blend(const float* x, const float* y, float* sum, int* sign, float weight, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    sum[i] = x[i] + weight * y[i];
    sign[i] = sum[i] > 0 ? 1 : -1;
}"#;
const OPENCL: &str = r#"
__kernel void blend(__global const float* x, __global const float* y, __global float* sum, __global int* sign, float weight, long n) {
    long i = get_global_id(0);
    if (i >= n) return;
    sum[i] = x[i] + weight * y[i];
    sign[i] = sum[i] > 0 ? 1 : -1;
}"#;

/// `x + weight * y` and its sign. On a device with a text the function must not be used.
fn blend() -> Result<Kernel> {
    Kernel::builder("blend")
        .cuda(CUDA)
        .opencl(OPENCL)
        .block(64)
        .outputs(|call| {
            let shape = call.inputs[0].shape().to_vec();
            Ok(vec![(shape.clone(), DType::F32), (shape, DType::I32)])
        })
        .cpu(|call| {
            assert_eq!(Language::of(call.inputs[0].device())?, None);
            let sum = (&call.inputs[0] + &call.inputs[1] * call.float(0)?).eval()?;
            let sign = (sum.gt(0)?.to_dtype(DType::I32)? * 2 - 1).eval()?;
            Ok(vec![sum, sign])
        })
        .backward(|call, outputs, grads| {
            assert_eq!(outputs.len(), 2);
            Ok(vec![Some(grads[0].clone()), Some(grads[0].mul(call.float(0)?)?)])
        })
        .build()
}

#[test]
fn a_text_and_a_function_are_one_op() -> Result<()> {
    let device = device();
    let kernel = blend()?;
    let x = Tensor::linspace(-2.0, 2.0, 300)?.reshape([3, 100])?;
    // Elements in another order: the kernel gets them row by row.
    let y = Tensor::linspace(1.0, -1.0, 300)?.reshape([100, 3])?.t()?;
    let want = (&x + &y * 0.5).eval()?;
    let [x, y] = [x.to(device)?.requires_grad_(true)?, y.to(device)?.requires_grad_(true)?];
    let outputs = kernel.call(&[&x, &y], &[0.5f32.into()])?;
    assert_eq!(outputs[0].to_vec::<f32>()?, want.to_vec::<f32>()?);
    let signs = want.to_vec::<f32>()?.into_iter().map(|v| if v > 0.0 { 1 } else { -1 }).collect::<Vec<i32>>();
    assert_eq!(outputs[1].to_vec::<i32>()?, signs);
    outputs[0].sum(..)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.0; 300]);
    assert_eq!(y.grad().unwrap().to_vec::<f32>()?, [0.5; 300]);
    // An empty tensor launches nothing.
    let none = Tensor::zeros([0])?.to(device)?;
    assert_eq!(kernel.call(&[&none, &none], &[0.5f32.into()])?[0].shape(), [0]);
    Ok(())
}

#[test]
fn a_function_alone_has_derivatives() -> Result<()> {
    let kernel = Kernel::builder("cubed")
        .cpu(|call| Ok(vec![call.inputs[0].pow(3)?]))
        .backward(|call, _, grads| Ok(vec![Some(grads[0].mul(&call.inputs[0].square()?.mul(3)?)?)]))
        .build()?;
    let x = Tensor::new([1.0, -0.5, 2.0])?.to_dtype(DType::F64)?.requires_grad_(true)?;
    gradcheck(|inputs| Ok(vec![kernel.call(&[&inputs[0]], &[])?.remove(0)]), &[x])
}

#[test]
fn a_captured_step_repeats_it() -> Result<()> {
    let device = device();
    let kernel = blend()?;
    let (x, y) = (Tensor::ones([64])?.to(device)?, Tensor::ones([64])?.to(device)?);
    let mut step = capture(|[x, y]: &[Tensor; 2]| {
        let sum = kernel.call(&[x, y], &[2.0f32.into()])?.remove(0);
        (&sum * 2.0).eval()
    });
    for i in 0..4 {
        let given = x.mul(f64::from(i))?;
        let out = step.run(&[given, y.clone()])?;
        assert_eq!(out.to_vec::<f32>()?, [2.0 * (i as f32 + 2.0); 64]);
    }
    Ok(())
}

#[test]
fn a_text_is_launched_by_hand() -> Result<()> {
    let device = device();
    let Some(language) = Language::of(device)? else {
        let error = DeviceKernel::compile(device, CUDA, "blend").err().expect("the CPU compiles no text");
        assert!(error.to_string().contains("compiles no text"), "{error}");
        return Ok(());
    };
    let text = match language {
        Language::Cuda | Language::Hip => {
            // The emulated GPU finds the end of a kernel by a brace at the start of a line.
            r#"extern "C" __global__ void shifted(const int* x, int* y, int by, long long n, double scale) {
    int i = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)((x[i] + by) * scale);
}"#
        }
        Language::OpenCl => {
            r#"__kernel void shifted(__global const int* x, __global int* y, int by, long n, double scale) {
                int i = (get_group_id(1) * get_num_groups(0) + get_group_id(0)) * get_local_size(0) + get_local_id(0);
                if (i < n) y[i] = (int)((x[i] + by) * scale);
            }"#
        }
    };
    let kernel = DeviceKernel::compile(device, text, "shifted")?;
    let x = Tensor::arange(0, 100, 1)?.to_dtype(DType::I32)?.to(device)?;
    let y = x.zeros_like()?;
    let args = [
        KernelArg::Memory(address(&x)),
        KernelArg::Memory(address(&y)),
        KernelArg::I32(-3),
        KernelArg::I64(100),
        KernelArg::F64(2.0),
    ];
    // SAFETY: the arguments are the text's, which stays within 100 elements.
    unsafe { kernel.launch([2, 2, 1], [32, 1, 1], 0, &args)? };
    assert_eq!(y.to_vec::<i32>()?, (0..100).map(|i| (i - 3) * 2).collect::<Vec<i32>>());
    let error = DeviceKernel::compile(device, "this is no text", "shifted").err().expect("it does not compile");
    assert!(error.to_string().contains("shifted"), "{error}");
    Ok(())
}

#[test]
fn misuse_is_told() -> Result<()> {
    let kernel = Kernel::builder("half").cpu(|call| Ok(vec![call.inputs[0].mul(call.float(1)?)?])).build()?;
    let x = Tensor::ones([2])?;
    let told = |e: Result<Vec<Tensor>>| e.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(told(kernel.call(&[&x], &[1.0f32.into()])).contains("no number 1"));
    assert!(told(kernel.call(&[], &[])).contains("needs an input"));
    assert!(told(kernel.call(&[&x], &[KernelArg::Memory(0)])).contains("an address is no number"));
    let leaf = x.copy()?.requires_grad_(true)?;
    let numbers = [0.0f32.into(), 0.5f32.into()];
    assert!(told(kernel.call(&[&leaf], &numbers)).contains("no backward"));
    assert_eq!(no_grad(|| kernel.call(&[&leaf], &numbers))?[0].to_vec::<f32>()?, [0.5, 0.5]);
    for wrong in [Kernel::builder("a b").cuda(""), Kernel::builder("nothing"), Kernel::builder("x").cuda("").block(0)] {
        assert!(wrong.build().is_err());
    }
    Ok(())
}
