//! Python's pickle machine, reduced to the opcodes that build tensors and containers.
//!
//! Objects live in an arena and refer to each other by number, so that a hostile pickle can neither make a deep
//! structure that overflows the stack nor a cycle that is never freed. Each opcode makes at most one object, so the
//! arena is bounded by the pickle's length.

use super::globals::{CheckpointClass, Global};
use super::numpy::ElementType;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::collections::HashMap;
use std::rc::Rc;

/// An object's place in the arena.
pub(crate) type Ref = u32;

pub(crate) enum Object {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Box<str>),
    Bytes(Box<[u8]>),
    Tuple(Box<[Ref]>),
    List(Vec<Ref>),
    /// A set; read as a list.
    Set(Vec<Ref>),
    Dict(Vec<(Ref, Ref)>),
    OrderedDict(OrderedDict),
    Global(Global),
    Storage(Rc<crate::pt::LoadedStorage>),
    Tensor(Tensor),
    /// The elements of a NumPy array.
    ElementType(ElementType),
    /// A NumPy array that has no contents yet.
    Array,
    /// An object of a distributed checkpoint's metadata, and its state.
    Instance(CheckpointClass, Option<Ref>),
    /// An object of a TorchScript class, and the state that `BUILD` gave it.
    Script(u32, Option<Ref>),
}

/// `collections.OrderedDict`: its entries, and the state that `BUILD` gave it.
#[derive(Default)]
pub(crate) struct OrderedDict {
    pub(crate) entries: Vec<(Ref, Ref)>,
    pub(crate) attributes: Option<Ref>,
}

impl Object {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Object::None => "None",
            Object::Bool(_) => "a bool",
            Object::Int(_) => "an integer",
            Object::Float(_) => "a float",
            Object::Str(_) => "a string",
            Object::Bytes(_) => "bytes",
            Object::Tuple(_) => "a tuple",
            Object::List(_) => "a list",
            Object::Set(_) => "a set",
            Object::Dict(_) | Object::OrderedDict(_) => "a dictionary",
            Object::Global(_) => "a function or class",
            Object::Storage(_) => "a storage",
            Object::Tensor(_) => "a tensor",
            Object::ElementType(_) => "NumPy's dtype",
            Object::Array => "an array without contents",
            Object::Instance(..) => "metadata of a checkpoint",
            Object::Script(..) => "an object of a TorchScript class",
        }
    }
}

/// The environment of a pickle: allowed names, their calls, storages.
pub(crate) trait World {
    /// The meaning of a name, if it is allowed.
    fn find(&self, module: &str, name: &str) -> Option<Global>;
    fn persistent(&mut self, arena: &Arena, id: Ref) -> Result<Object>;
    fn call(&mut self, arena: &Arena, function: Global, args: &[Ref]) -> Result<Reply>;
    /// Applies a state to an object (`BUILD`).
    fn build(&mut self, arena: &Arena, target: Ref, state: Ref) -> Result<Reply> {
        let _ = state;
        match arena.get(target) {
            // Attributes of a parameter have no place in a `Value`; the machine keeps those of an `OrderedDict`.
            Object::Dict(_) | Object::OrderedDict(_) | Object::Tensor(_) => Ok(Reply::Same(target)),
            other => Err(corrupt(format_args!("it sets the state of {}", other.kind()))),
        }
    }
}

/// The result of a call: one of its arguments, so that calls cannot multiply large arguments, or a new object.
pub(crate) enum Reply {
    Same(Ref),
    New(Object),
}

/// All objects of a pickle.
#[derive(Default)]
pub(crate) struct Arena(Vec<Object>);

impl Arena {
    pub(crate) fn get(&self, r: Ref) -> &Object {
        &self.0[r as usize]
    }

    fn push(&mut self, object: Object) -> Result<Ref> {
        let r = Ref::try_from(self.0.len()).map_err(|_| corrupt("it has more than four thousand million objects"))?;
        self.0.push(object);
        Ok(r)
    }
}

pub(crate) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::io(format!("it holds no pickle this reader understands: {what}"))
}

/// Runs a pickle; gives its objects and which of them is the result.
pub(crate) fn run(pickle: &[u8], world: &mut impl World) -> Result<(Arena, Ref)> {
    let mut machine =
        Machine { input: pickle, arena: Arena::default(), stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
    loop {
        if machine.step(world)? {
            let top = machine.pop()?;
            return Ok((machine.arena, top));
        }
    }
}

struct Machine<'a> {
    input: &'a [u8],
    arena: Arena,
    stack: Vec<Ref>,
    /// Heights of the stack at open marks; nothing below the last may be popped.
    marks: Vec<usize>,
    memo: HashMap<u32, Ref>,
}

impl Machine<'_> {
    /// One opcode; true at the end.
    fn step(&mut self, world: &mut impl World) -> Result<bool> {
        match self.take(1)?[0] {
            // Protocol; frames only matter to readers that prefetch.
            0x80 => match self.take(1)?[0] {
                2..=5 => {}
                p => return Err(Error::unsupported(format!("pickle protocol {p}; 2 to 5 are read"))),
            },
            0x95 => drop(self.take(8)?),
            b'.' => return Ok(true),

            b'N' => self.push(Object::None)?,
            0x88 => self.push(Object::Bool(true))?,
            0x89 => self.push(Object::Bool(false))?,
            b'J' => {
                let x = self.number(4)? as u32 as i32;
                self.push(Object::Int(x.into()))?;
            }
            b'K' => {
                let x = self.number(1)?;
                self.push(Object::Int(x as i64))?;
            }
            b'M' => {
                let x = self.number(2)?;
                self.push(Object::Int(x as i64))?;
            }
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            b'G' => {
                let x = f64::from_bits(self.number(8)?.swap_bytes());
                self.push(Object::Float(x))?;
            }

            0x8c => self.text(1)?,
            b'X' => self.text(4)?,
            0x8d => self.text(8)?,
            b'C' => self.bytes(1)?,
            b'B' => self.bytes(4)?,
            0x8e | 0x96 => self.bytes(8)?,
            b'U' => self.old_text(1)?,
            b'T' => self.old_text(4)?,

            b')' => self.push(Object::Tuple(Box::default()))?,
            b']' => self.push(Object::List(Vec::new()))?,
            b'}' => self.push(Object::Dict(Vec::new()))?,
            0x8f => self.push(Object::Set(Vec::new()))?,
            b'(' => self.marks.push(self.stack.len()),
            b't' => {
                let items = self.pop_mark()?;
                self.push(Object::Tuple(items.into()))?;
            }
            0x85 => self.tuple(1)?,
            0x86 => self.tuple(2)?,
            0x87 => self.tuple(3)?,
            b'l' => {
                let items = self.pop_mark()?;
                self.push(Object::List(items))?;
            }
            0x91 => {
                let items = self.pop_mark()?;
                self.push(Object::Set(items))?;
            }
            b'd' => {
                let items = self.pop_mark()?;
                self.push(Object::Dict(Vec::new()))?;
                self.set_items(&items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' | 0x90 => {
                let items = self.pop_mark()?;
                self.append(&items)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set_items(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.set_items(&items)?;
            }

            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'q' => self.put(1)?,
            b'r' => self.put(4)?,
            0x94 => {
                let (slot, top) = (self.memo.len() as u32, self.top()?);
                self.memo.insert(slot, top);
            }
            b'h' => self.recall(1)?,
            b'j' => self.recall(4)?,

            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(world, &module, &name)?;
            }
            0x93 => {
                let (name, module) = (self.pop_text()?, self.pop_text()?);
                self.global(world, &module, &name)?;
            }
            b'R' | 0x81 => {
                let (args, function) = (self.pop()?, self.pop()?);
                let (Object::Tuple(args), &Object::Global(function)) = (self.arena.get(args), self.arena.get(function))
                else {
                    return Err(corrupt("a call of something that is not a function, or without arguments"));
                };
                match world.call(&self.arena, function, args)? {
                    Reply::Same(r) => self.stack.push(r),
                    Reply::New(object) => self.push(object)?,
                }
            }
            b'b' => {
                let state = self.pop()?;
                let target = self.top()?;
                if let Reply::New(object) = world.build(&self.arena, target, state)? {
                    self.arena.0[target as usize] = object;
                } else if let Object::OrderedDict(dict) = &mut self.arena.0[target as usize] {
                    dict.attributes = Some(state);
                }
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = world.persistent(&self.arena, id)?;
                self.push(storage)?;
            }
            op => return Err(corrupt(format_args!("opcode 0x{op:02x}"))),
        }
        Ok(false)
    }

    fn take(&mut self, n: usize) -> Result<&[u8]> {
        let (head, tail) = self.input.split_at_checked(n).ok_or_else(|| corrupt("it ends early"))?;
        self.input = tail;
        Ok(head)
    }

    fn number(&mut self, n: usize) -> Result<u64> {
        Ok(self.take(n)?.iter().rev().fold(0, |x, &b| x << 8 | u64::from(b)))
    }

    /// Bytes preceded by their length.
    fn counted(&mut self, width: usize) -> Result<&[u8]> {
        let n = usize::try_from(self.number(width)?).unwrap_or(usize::MAX);
        self.take(n)
    }

    fn push(&mut self, object: Object) -> Result<()> {
        let r = self.arena.push(object)?;
        self.stack.push(r);
        Ok(())
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Ref> {
        let top = self.stack.last().filter(|_| self.stack.len() > self.floor());
        top.copied().ok_or_else(|| corrupt("the stack is empty where a value is needed"))
    }

    fn pop(&mut self) -> Result<Ref> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_mark(&mut self) -> Result<Vec<Ref>> {
        let mark = self.marks.pop().ok_or_else(|| corrupt("no mark where one is needed"))?;
        Ok(self.stack.split_off(mark))
    }

    fn tuple(&mut self, n: usize) -> Result<()> {
        if self.stack.len() < self.floor() + n {
            return Err(corrupt("the stack is empty where a value is needed"));
        }
        let items = self.stack.split_off(self.stack.len() - n);
        self.push(Object::Tuple(items.into()))
    }

    /// A signed integer of any length.
    fn long(&mut self, width: usize) -> Result<()> {
        let bytes = self.counted(width)?;
        let sign = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
        let (low, high) = bytes.split_at(bytes.len().min(8));
        let mut x = [sign; 8];
        x[..low.len()].copy_from_slice(low);
        let x = i64::from_le_bytes(x);
        if high.iter().any(|&b| b != sign) || (!high.is_empty() && (x < 0) != (sign != 0)) {
            return Err(Error::unsupported("an integer that does not fit 64 bits"));
        }
        self.push(Object::Int(x))
    }

    fn text(&mut self, width: usize) -> Result<()> {
        let bytes = self.counted(width)?;
        let text = std::str::from_utf8(bytes).map_err(|_| corrupt("a string that is not UTF-8"))?.into();
        self.push(Object::Str(text))
    }

    fn bytes(&mut self, width: usize) -> Result<()> {
        let bytes = self.counted(width)?.into();
        self.push(Object::Bytes(bytes))
    }

    /// A Python 2 string: text if it is valid UTF-8, bytes otherwise.
    fn old_text(&mut self, width: usize) -> Result<()> {
        let bytes = self.counted(width)?;
        let object = match std::str::from_utf8(bytes) {
            Ok(text) => Object::Str(text.into()),
            Err(_) => Object::Bytes(bytes.into()),
        };
        self.push(object)
    }

    fn line(&mut self) -> Result<String> {
        let n = self.input.iter().position(|&b| b == b'\n').ok_or_else(|| corrupt("it ends early"))?;
        let line = std::str::from_utf8(self.take(n)?).map_err(|_| corrupt("a name that is not UTF-8"))?.to_string();
        self.take(1)?;
        Ok(line)
    }

    fn pop_text(&mut self) -> Result<String> {
        let r = self.pop()?;
        match self.arena.get(r) {
            Object::Str(text) => Ok(text.to_string()),
            other => Err(corrupt(format_args!("{} as a name", other.kind()))),
        }
    }

    fn global(&mut self, world: &impl World, module: &str, name: &str) -> Result<()> {
        let global = world.find(module, name).ok_or_else(|| {
            // The name comes from the file and may be long: keep the message short.
            let shown: String = format!("{module}.{name}").chars().take(200).collect();
            Error::unsupported(format!(
                "the file uses '{shown}', which is not among the names that tensors and containers need. Nothing was run. \
                 Save plain tensors, numbers, strings, lists and dictionaries, for example model.state_dict()"
            ))
        })?;
        self.push(Object::Global(global))
    }

    fn append(&mut self, items: &[Ref]) -> Result<()> {
        let target = self.top()?;
        match &mut self.arena.0[target as usize] {
            Object::List(list) | Object::Set(list) => {
                list.extend(items);
                Ok(())
            }
            other => Err(corrupt(format_args!("it appends to {}", other.kind()))),
        }
    }

    fn set_items(&mut self, items: &[Ref]) -> Result<()> {
        let target = self.top()?;
        let kind = self.arena.get(target).kind();
        match &mut self.arena.0[target as usize] {
            Object::Dict(dict) | Object::OrderedDict(OrderedDict { entries: dict, .. })
                if items.len().is_multiple_of(2) =>
            {
                dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
                Ok(())
            }
            _ => Err(corrupt(format_args!("it sets items of {kind}, or half an item"))),
        }
    }

    fn put(&mut self, width: usize) -> Result<()> {
        let (slot, top) = (self.number(width)? as u32, self.top()?);
        self.memo.insert(slot, top);
        Ok(())
    }

    fn recall(&mut self, width: usize) -> Result<()> {
        let slot = self.number(width)? as u32;
        let r = *self.memo.get(&slot).ok_or_else(|| corrupt(format_args!("memo {slot} was never set")))?;
        self.stack.push(r);
        Ok(())
    }
}
