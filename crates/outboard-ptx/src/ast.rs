//! The text as a tree: names are not resolved, instructions not checked. Internal to the crate.

use crate::ir::Linkage;
use crate::types::{Space, Type};

#[derive(Debug)]
pub(crate) struct Module<'s> {
    pub(crate) version: (u32, u32),
    pub(crate) target_sm: u32,
    pub(crate) items: Vec<Item<'s>>,
}

#[derive(Debug)]
pub(crate) enum Item<'s> {
    Variable(Variable<'s>),
    Function(Function<'s>),
    Alias { line: u32, name: &'s str, target: &'s str },
}

/// What a declaration allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Reg,
    Memory(Space),
}

/// `.shared .align 4 .f32 a[16], b;`
#[derive(Debug)]
pub(crate) struct Variable<'s> {
    pub(crate) line: u32,
    pub(crate) storage: Storage,
    pub(crate) linkage: Linkage,
    pub(crate) managed: bool,
    pub(crate) align: Option<u32>,
    /// 1, or the elements of `.v2`, `.v4`, `.v8`.
    pub(crate) vector: u32,
    pub(crate) ty: Type,
    pub(crate) names: Vec<Declarator<'s>>,
}

#[derive(Debug)]
pub(crate) struct Declarator<'s> {
    pub(crate) name: &'s str,
    /// `%r<10>`
    pub(crate) count: Option<u32>,
    /// Array dimensions; `None` for `[]`.
    pub(crate) dims: Vec<Option<u64>>,
    pub(crate) init: Option<Init<'s>>,
}

#[derive(Debug)]
pub(crate) enum Init<'s> {
    List(Vec<Init<'s>>),
    Value(Const),
    Symbol { name: &'s str, addend: i64, generic: bool, mask: Option<u64> },
    Str(&'s str),
}

/// A constant as written; floating-point ones by bit pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Const {
    /// Two's complement.
    Int(u64),
    F32(u32),
    F64(u64),
}

#[derive(Debug)]
pub(crate) struct Function<'s> {
    pub(crate) line: u32,
    pub(crate) name: &'s str,
    pub(crate) linkage: Linkage,
    pub(crate) is_kernel: bool,
    pub(crate) rets: Vec<Variable<'s>>,
    pub(crate) params: Vec<Variable<'s>>,
    pub(crate) directives: Directives,
    pub(crate) body: Option<Vec<Stmt<'s>>>,
}

#[derive(Debug, Default)]
pub(crate) struct Directives {
    pub(crate) max_ntid: Option<[u32; 3]>,
    pub(crate) req_ntid: Option<[u32; 3]>,
    pub(crate) min_ncta_per_sm: Option<u32>,
    pub(crate) max_nreg: Option<u32>,
    pub(crate) req_cluster: Option<[u32; 3]>,
    pub(crate) noreturn: bool,
}

#[derive(Debug)]
pub(crate) enum Stmt<'s> {
    Label { line: u32, name: &'s str },
    Scope(Vec<Stmt<'s>>),
    Variable(Variable<'s>),
    Inst(Inst<'s>),
    Prototype { line: u32, name: &'s str, rets: Vec<Variable<'s>>, params: Vec<Variable<'s>> },
    BranchTargets { line: u32, name: &'s str, labels: Vec<&'s str> },
    CallTargets { line: u32, name: &'s str, functions: Vec<&'s str> },
}

#[derive(Debug)]
pub(crate) struct Inst<'s> {
    pub(crate) line: u32,
    /// Name and whether it is negated.
    pub(crate) guard: Option<(&'s str, bool)>,
    pub(crate) opcode: &'s str,
    /// Without their dots.
    pub(crate) mods: Vec<&'s str>,
    pub(crate) operands: Vec<Operand<'s>>,
}

impl Inst<'_> {
    /// The instruction with all modifiers, as written.
    pub(crate) fn form(&self) -> String {
        let mut form = self.opcode.to_owned();
        for modifier in &self.mods {
            form.push('.');
            form.push_str(modifier);
        }
        crate::error::excerpt(&form)
    }
}

#[derive(Debug)]
pub(crate) enum Operand<'s> {
    /// Register, symbol, label or special register, with its suffix (`%tid.x`) and an added
    /// constant.
    Name {
        name: &'s str,
        suffix: Option<&'s str>,
        addend: i64,
    },
    /// `!p`
    Not {
        name: &'s str,
    },
    Const(Const),
    /// `{a, b}`
    Vector(Vec<Operand<'s>>),
    /// `[base+offset]`
    Address {
        base: Option<&'s str>,
        offset: i64,
    },
    /// `[texture, coordinates]`
    Texel {
        object: &'s str,
        coords: Box<Operand<'s>>,
    },
    /// `p|q`
    Pair(Box<Operand<'s>>, Box<Operand<'s>>),
    /// `(a, b)` of a call.
    List(Vec<Operand<'s>>),
    /// `_`
    Sink,
}
