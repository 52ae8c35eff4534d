//! cuDNN's graphs: operations on tensors, described one by one, for which the library finds an engine that does them together.
//!
//! Everything is a descriptor: an object made of attributes, then finalized. Numbers are those of `cudnn_graph.h`.

use super::Cudnn;
use super::plan::Target;
use crate::driver::Handle;
use std::ffi::{c_int, c_void};

/// What the library did not do, and the status it gave.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    pub call: &'static str,
    pub status: i32,
}

pub type Answer<T> = Result<T, Refusal>;

pub fn answer(call: &'static str, status: i32) -> Answer<()> {
    if status == 0 { Ok(()) } else { Err(Refusal { call, status }) }
}

/// `CUDNN_BACKEND_…_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Kind {
    Pointwise = 0,
    Engine = 2,
    EngineConfig = 3,
    EngineHeuristics = 4,
    ExecutionPlan = 5,
    KnobChoice = 7,
    OperationPointwise = 13,
    OperationGraph = 15,
    VariantPack = 16,
    Tensor = 17,
    Matmul = 18,
    OperationMatmul = 19,
    Reduction = 21,
    OperationReduction = 22,
    OperationReshape = 31,
    #[cfg(test)]
    DeviceProperties = 38,
}

/// `CUDNN_ATTR_…`.
pub mod attribute {
    use std::ffi::c_int;

    pub const POINTWISE_MODE: c_int = 0;
    pub const POINTWISE_MATH_PREC: c_int = 1;
    pub const POINTWISE_AXIS: c_int = 9;
    pub const ENGINEHEUR_MODE: c_int = 200;
    pub const ENGINEHEUR_OPERATION_GRAPH: c_int = 201;
    pub const ENGINEHEUR_RESULTS: c_int = 202;
    pub const ENGINEHEUR_DEVICEPROP: c_int = 204;
    pub const ENGINECFG_ENGINE: c_int = 300;
    pub const ENGINECFG_KNOB_CHOICES: c_int = 302;
    pub const EXECUTION_PLAN_ENGINE_CONFIG: c_int = 401;
    pub const EXECUTION_PLAN_WORKSPACE_SIZE: c_int = 402;
    pub const KNOB_CHOICE_KNOB_TYPE: c_int = 600;
    pub const KNOB_CHOICE_KNOB_VALUE: c_int = 601;
    pub const OPERATION_POINTWISE_PW_DESCRIPTOR: c_int = 750;
    pub const OPERATION_POINTWISE_XDESC: c_int = 751;
    pub const OPERATION_POINTWISE_BDESC: c_int = 752;
    pub const OPERATION_POINTWISE_YDESC: c_int = 753;
    pub const OPERATION_POINTWISE_TDESC: c_int = 758;
    pub const OPERATIONGRAPH_HANDLE: c_int = 800;
    pub const OPERATIONGRAPH_OPS: c_int = 801;
    pub const TENSOR_BYTE_ALIGNMENT: c_int = 900;
    pub const TENSOR_DATA_TYPE: c_int = 901;
    pub const TENSOR_DIMENSIONS: c_int = 902;
    pub const TENSOR_STRIDES: c_int = 903;
    pub const TENSOR_UNIQUE_ID: c_int = 906;
    pub const TENSOR_IS_VIRTUAL: c_int = 907;
    pub const TENSOR_IS_BY_VALUE: c_int = 908;
    pub const VARIANT_PACK_UNIQUE_IDS: c_int = 1000;
    pub const VARIANT_PACK_DATA_POINTERS: c_int = 1001;
    pub const VARIANT_PACK_WORKSPACE: c_int = 1003;
    pub const ENGINE_OPERATION_GRAPH: c_int = 1300;
    pub const ENGINE_GLOBAL_INDEX: c_int = 1301;
    pub const ENGINE_NUMERICAL_NOTE: c_int = 1303;
    pub const ENGINE_DEVICEPROP: c_int = 1307;
    pub const MATMUL_COMP_TYPE: c_int = 1500;
    pub const OPERATION_MATMUL_ADESC: c_int = 1520;
    pub const OPERATION_MATMUL_BDESC: c_int = 1521;
    pub const OPERATION_MATMUL_CDESC: c_int = 1522;
    pub const OPERATION_MATMUL_DESC: c_int = 1523;
    pub const REDUCTION_OPERATOR: c_int = 1600;
    pub const REDUCTION_COMP_TYPE: c_int = 1601;
    pub const OPERATION_REDUCTION_XDESC: c_int = 1610;
    pub const OPERATION_REDUCTION_YDESC: c_int = 1611;
    pub const OPERATION_REDUCTION_DESC: c_int = 1612;
    pub const OPERATION_RESHAPE_XDESC: c_int = 2200;
    pub const OPERATION_RESHAPE_YDESC: c_int = 2201;
    #[cfg(test)]
    pub const DEVICEPROP_JSON_REPRESENTATION: c_int = 2702;
}

/// A type that attributes' values have.
///
/// # Safety
/// Values lie in memory as the library's type of that number does.
pub unsafe trait Value: Copy {
    /// `CUDNN_TYPE_…`.
    const TYPE: c_int;
}

/// An enumeration of the library, or one of its types by a name of its own.
macro_rules! values {
    ($($(#[$doc:meta])* $Name:ident($inner:ty) = $number:literal { $($(#[$about:meta])* $value:ident = $code:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $Name(pub $inner);

        impl $Name {
            $($(#[$about])* pub const $value: $Name = $Name($code);)*
        }

        // SAFETY: of the size and meaning that the header gives the type of this number.
        unsafe impl Value for $Name {
            const TYPE: c_int = $number;
        }
    )*};
}

values! {
    /// `cudnnHandle_t`.
    LibraryHandle(Handle) = 0 {}
    /// `cudnnDataType_t`.
    DataType(c_int) = 1 { FLOAT = 0, HALF = 2, INT32 = 4, BFLOAT16 = 9, BOOLEAN = 11 }
    /// An address: on the device, or of a number on the host.
    Address(u64) = 6 {}
    /// `cudnnBackendHeurMode_t`.
    HeurMode(c_int) = 8 { A = 3 }
    /// `cudnnBackendKnobType_t`.
    Knob(c_int) = 9 { STAGES = 14, KERNEL_CFG = 24, TILE_CGA_M = 27, STREAM_K = 38, TILE_M = 40, TILE_N = 41 }
    /// `cudnnBackendNumericalNote_t`.
    NumericalNote(c_int) = 11 { NONDETERMINISTIC = 4 }
    /// `cudnnPointwiseMode_t`.
    PointwiseMode(c_int) = 14 {
        ADD = 0, MUL = 1, DIV = 6, SUB = 9, EXP = 13, LOG = 15, CMP_GE = 303, GEN_INDEX = 501, BINARY_SELECT = 601,
    }
    /// A descriptor as a value of another's attribute.
    Reference(Handle) = 15 {}
    /// `cudnnReduceTensorOp_t`.
    Reduce(c_int) = 18 { ADD = 0, MAX = 3 }
}

// SAFETY: the library's `bool`, `int64_t` and `char`.
unsafe impl Value for bool {
    const TYPE: c_int = 2;
}
// SAFETY: as above.
unsafe impl Value for i64 {
    const TYPE: c_int = 3;
}
// SAFETY: as above.
unsafe impl Value for u8 {
    const TYPE: c_int = 24;
}

/// A descriptor, destroyed when dropped.
pub struct Descriptor {
    pub api: &'static Cudnn,
    raw: Handle,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: ours, and no longer used.
        unsafe { (self.api.descriptor_destroy)(self.raw) };
    }
}

impl Descriptor {
    pub fn new(api: &'static Cudnn, kind: Kind) -> Answer<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a handle to write to.
        answer("cudnnBackendCreateDescriptor", unsafe { (api.descriptor_create)(kind as c_int, &mut raw) })?;
        Ok(Self { api, raw })
    }

    pub fn set<V: Value>(self, attribute: c_int, values: &[V]) -> Answer<Self> {
        let data = values.as_ptr().cast::<c_void>();
        // SAFETY: as many values as is said, of the type that is said; the library copies them.
        let rc = unsafe { (self.api.descriptor_set)(self.raw, attribute, V::TYPE, values.len() as i64, data) };
        answer("cudnnBackendSetAttribute", rc).map(|()| self)
    }

    pub fn finalize(self) -> Answer<Self> {
        // SAFETY: a descriptor of ours.
        answer("cudnnBackendFinalize", unsafe { (self.api.descriptor_finalize)(self.raw) }).map(|()| self)
    }

    pub fn reference(&self) -> Reference {
        Reference(self.raw)
    }

    /// Reads an attribute into `room`; says how many values there are.
    pub fn get<V: Value>(&self, attribute: c_int, room: &mut [V]) -> Answer<usize> {
        let (mut count, data) = (0i64, room.as_mut_ptr().cast::<c_void>());
        let data = if room.is_empty() { std::ptr::null_mut() } else { data };
        // SAFETY: room for as many values as is said, of the type that is said.
        let rc =
            unsafe { (self.api.descriptor_get)(self.raw, attribute, V::TYPE, room.len() as i64, &mut count, data) };
        answer("cudnnBackendGetAttribute", rc).map(|()| count.max(0) as usize)
    }

    pub fn number(&self, attribute: c_int) -> Answer<i64> {
        let mut number = [0i64];
        self.get(attribute, &mut number).map(|_| number[0])
    }
}

/// A tensor of a graph.
#[derive(Clone, Copy)]
pub struct Tensor(usize);

/// Sizes or strides: batch, head, row, column.
pub type Four = [i64; 4];

/// Strides of a row-major tensor.
pub fn packed([_, b, c, d]: Four) -> Four {
    [b * c * d, c * d, d, 1]
}

/// Rows for columns.
pub fn turned([a, b, c, d]: Four) -> Four {
    [a, b, d, c]
}

/// A graph in the making.
pub struct Graph {
    api: &'static Cudnn,
    tensors: Vec<(Descriptor, Four)>,
    /// Those that are given at execution, in the order they were described: tensors in memory, and numbers.
    operands: Vec<i64>,
    operations: Vec<Descriptor>,
    /// What operations refer to.
    parts: Vec<Descriptor>,
}

impl Graph {
    pub fn new(api: &'static Cudnn) -> Self {
        Self { api, tensors: Vec::new(), operands: Vec::new(), operations: Vec::new(), parts: Vec::new() }
    }

    fn describe(&mut self, sizes: Four, strides: Four, of: DataType, flag: Option<c_int>) -> Answer<Tensor> {
        let number = self.tensors.len();
        let mut made = Descriptor::new(self.api, Kind::Tensor)?
            .set(attribute::TENSOR_DATA_TYPE, &[of])?
            .set(attribute::TENSOR_DIMENSIONS, &sizes)?
            .set(attribute::TENSOR_STRIDES, &strides)?
            .set(attribute::TENSOR_UNIQUE_ID, &[number as i64 + 1])?
            .set(attribute::TENSOR_BYTE_ALIGNMENT, &[16i64])?;
        if let Some(flag) = flag {
            made = made.set(flag, &[true])?;
        }
        if flag != Some(attribute::TENSOR_IS_VIRTUAL) {
            self.operands.push(number as i64 + 1);
        }
        self.tensors.push((made.finalize()?, sizes));
        Ok(Tensor(number))
    }

    /// A tensor in memory, whose address is a multiple of 16.
    pub fn tensor(&mut self, sizes: Four, strides: Four, of: DataType) -> Answer<Tensor> {
        self.describe(sizes, strides, of, None)
    }

    /// A number that is given as an `f32` of the host.
    pub fn number(&mut self) -> Answer<Tensor> {
        self.describe([1; 4], [1; 4], DataType::FLOAT, Some(attribute::TENSOR_IS_BY_VALUE))
    }

    /// A result that another operation takes and no memory holds.
    pub fn between(&mut self, sizes: Four, strides: Four, of: DataType) -> Answer<Tensor> {
        self.describe(sizes, strides, of, Some(attribute::TENSOR_IS_VIRTUAL))
    }

    fn reference(&self, tensor: Tensor) -> Reference {
        self.tensors[tensor.0].0.reference()
    }

    pub fn sizes(&self, tensor: Tensor) -> Four {
        self.tensors[tensor.0].1
    }

    /// A pointwise operation written to `y`. Of three inputs, the last chooses between the others.
    pub fn pointwise_to(&mut self, mode: PointwiseMode, inputs: &[Tensor], y: Tensor) -> Answer<()> {
        self.pointwise_in(mode, DataType::FLOAT, None, inputs, y)
    }

    fn pointwise_in(
        &mut self,
        mode: PointwiseMode,
        precision: DataType,
        axis: Option<i64>,
        inputs: &[Tensor],
        y: Tensor,
    ) -> Answer<()> {
        let mut what = Descriptor::new(self.api, Kind::Pointwise)?
            .set(attribute::POINTWISE_MODE, &[mode])?
            .set(attribute::POINTWISE_MATH_PREC, &[precision])?;
        if let Some(axis) = axis {
            what = what.set(attribute::POINTWISE_AXIS, &[axis])?;
        }
        let what = what.finalize()?;
        let mut operation = Descriptor::new(self.api, Kind::OperationPointwise)?
            .set(attribute::OPERATION_POINTWISE_PW_DESCRIPTOR, &[what.reference()])?
            .set(attribute::OPERATION_POINTWISE_YDESC, &[self.reference(y)])?;
        let names = [
            attribute::OPERATION_POINTWISE_XDESC,
            attribute::OPERATION_POINTWISE_BDESC,
            attribute::OPERATION_POINTWISE_TDESC,
        ];
        for (name, &input) in names.into_iter().zip(inputs) {
            operation = operation.set(name, &[self.reference(input)])?;
        }
        self.operations.push(operation.finalize()?);
        self.parts.push(what);
        Ok(())
    }

    /// A pointwise operation of `f32`, of the first input's size.
    pub fn pointwise(&mut self, mode: PointwiseMode, inputs: &[Tensor]) -> Answer<Tensor> {
        let sizes = self.sizes(inputs[0]);
        let y = self.between(sizes, packed(sizes), DataType::FLOAT)?;
        self.pointwise_to(mode, inputs, y).map(|()| y)
    }

    /// `x` where the row is not before the column, else `other`.
    pub fn lower_triangle(&mut self, x: Tensor, other: Tensor) -> Answer<Tensor> {
        let sizes = self.sizes(x);
        let [row, column] = [2, 3].map(|axis| {
            let index = self.between(sizes, packed(sizes), DataType::INT32)?;
            self.pointwise_in(PointwiseMode::GEN_INDEX, DataType::FLOAT, Some(axis), &[x], index).map(|()| index)
        });
        let (row, column) = (row?, column?);
        let keep = self.between(sizes, packed(sizes), DataType::BOOLEAN)?;
        self.pointwise_in(PointwiseMode::CMP_GE, DataType::BOOLEAN, None, &[row, column], keep)?;
        self.pointwise(PointwiseMode::BINARY_SELECT, &[x, other, keep])
    }

    /// The product of matrices, written to `c`.
    pub fn matmul(&mut self, a: Tensor, b: Tensor, c: Tensor) -> Answer<()> {
        let what = Descriptor::new(self.api, Kind::Matmul)?
            .set(attribute::MATMUL_COMP_TYPE, &[DataType::FLOAT])?
            .finalize()?;
        let operation = Descriptor::new(self.api, Kind::OperationMatmul)?
            .set(attribute::OPERATION_MATMUL_ADESC, &[self.reference(a)])?
            .set(attribute::OPERATION_MATMUL_BDESC, &[self.reference(b)])?
            .set(attribute::OPERATION_MATMUL_CDESC, &[self.reference(c)])?
            .set(attribute::OPERATION_MATMUL_DESC, &[what.reference()])?;
        self.operations.push(operation.finalize()?);
        self.parts.push(what);
        Ok(())
    }

    /// What is left of dimensions where `y` has size one.
    pub fn reduce_to(&mut self, operator: Reduce, x: Tensor, y: Tensor) -> Answer<()> {
        let what = Descriptor::new(self.api, Kind::Reduction)?
            .set(attribute::REDUCTION_OPERATOR, &[operator])?
            .set(attribute::REDUCTION_COMP_TYPE, &[DataType::FLOAT])?
            .finalize()?;
        let operation = Descriptor::new(self.api, Kind::OperationReduction)?
            .set(attribute::OPERATION_REDUCTION_XDESC, &[self.reference(x)])?
            .set(attribute::OPERATION_REDUCTION_YDESC, &[self.reference(y)])?
            .set(attribute::OPERATION_REDUCTION_DESC, &[what.reference()])?;
        self.operations.push(operation.finalize()?);
        self.parts.push(what);
        Ok(())
    }

    /// One `f32` for each row.
    pub fn reduce_rows(&mut self, operator: Reduce, x: Tensor) -> Answer<Tensor> {
        let [a, b, c, _] = self.sizes(x);
        let y = self.between([a, b, c, 1], packed([a, b, c, 1]), DataType::FLOAT)?;
        self.reduce_to(operator, x, y).map(|()| y)
    }

    /// The same elements with other sizes, strides or type.
    pub fn reshape(&mut self, x: Tensor, sizes: Four, strides: Four, of: DataType) -> Answer<Tensor> {
        let y = self.between(sizes, strides, of)?;
        let operation = Descriptor::new(self.api, Kind::OperationReshape)?
            .set(attribute::OPERATION_RESHAPE_XDESC, &[self.reference(x)])?
            .set(attribute::OPERATION_RESHAPE_YDESC, &[self.reference(y)])?;
        self.operations.push(operation.finalize()?);
        Ok(y)
    }

    /// The graph closed, for a device, with the operands that an execution gives.
    pub fn close(self, target: &Target) -> Answer<Closed> {
        let references: Vec<Reference> = self.operations.iter().map(Descriptor::reference).collect();
        let graph = Descriptor::new(self.api, Kind::OperationGraph)?.set(attribute::OPERATIONGRAPH_OPS, &references)?;
        let graph = target.of_graph(graph)?.finalize()?;
        Ok(Closed { graph, operands: self.operands, _made_of: [self.operations, self.parts], _tensors: self.tensors })
    }
}

/// A graph that engines can be asked for. Holds all it is made of.
pub struct Closed {
    pub graph: Descriptor,
    pub operands: Vec<i64>,
    _made_of: [Vec<Descriptor>; 2],
    _tensors: Vec<(Descriptor, Four)>,
}
