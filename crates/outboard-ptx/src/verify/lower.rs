//! A body that is being lowered: what its names stand for, and the instructions so far.

mod declare;

use std::collections::HashMap;
use std::rc::Rc;

use super::context::Context;
use crate::error::{ErrorKind, excerpt};
use crate::ir::{
    Address, Base, Block, BlockId, Body, FuncId, Guard, Inst, MemOrder, Op, Operand, Reg, Scope,
    Signature, Symbol, Var, VarId,
};
use crate::types::{Space, Type};

/// What a name inside a function stands for.
#[derive(Clone, Debug)]
pub(super) enum Name {
    Reg(Reg),
    /// A register declared `.v2` or `.v4`.
    VectorReg(Rc<[Reg]>),
    Var(VarId),
    Param(u32),
    Ret(u32),
    Global(crate::ir::GlobalId),
    Func(FuncId),
    Label(u32),
    Prototype(Rc<Signature>),
    BranchTargets(Rc<[u32]>),
}

/// `.reg .b32 %r<10>`: registers appear when they are used.
struct Range<'s> {
    prefix: &'s str,
    count: u32,
    ty: Type,
    vector: u32,
}

#[derive(Default)]
struct ScopeNames<'s> {
    names: HashMap<&'s str, Name>,
    ranges: Vec<Range<'s>>,
}

/// State while a body is lowered. The instruction rules use [`Lower::emit`] and the operand
/// helpers.
pub(super) struct Lower<'c, 's> {
    pub(super) cx: &'c mut Context<'s>,
    pub(super) regs: Vec<Type>,
    vars: Vec<Var>,
    frame_size: u64,
    frame_align: u32,
    scopes: Vec<ScopeNames<'s>>,
    insts: Vec<Inst>,
    /// For each label the instruction before which it stands, once it has been met.
    labels: Vec<Option<usize>>,
    /// Results kept in registers (`.func (.reg .u32 r) f`), stored before each return.
    ret_regs: Vec<(u32, Reg, Type)>,
    pub(super) guard: Option<Guard>,
    pub(super) line: u32,
}

impl<'c, 's> Lower<'c, 's> {
    /// A body that begins in `line`.
    pub(super) fn new(cx: &'c mut Context<'s>, line: u32) -> Lower<'c, 's> {
        Lower {
            cx,
            regs: Vec::new(),
            vars: Vec::new(),
            frame_size: 0,
            frame_align: 1,
            scopes: vec![ScopeNames::default()],
            insts: Vec::new(),
            labels: Vec::new(),
            ret_regs: Vec::new(),
            guard: None,
            line,
        }
    }
}

impl<'s> Lower<'_, 's> {
    /// Stores the results that are kept in registers.
    pub(super) fn store_results(&mut self) {
        let guard = self.guard.take();
        for (index, reg, ty) in self.ret_regs.clone() {
            self.emit(Op::St {
                space: Space::Param,
                ty,
                order: MemOrder::Weak,
                scope: Scope::Cta,
                srcs: vec![Operand::Reg(reg)],
                addr: Address { base: Base::Ret(index), offset: 0 },
            });
        }
        self.guard = guard;
    }

    pub(super) fn enter_scope(&mut self) {
        self.scopes.push(ScopeNames::default());
    }

    pub(super) fn leave_scope(&mut self) {
        self.scopes.pop();
    }

    pub(super) fn define(&mut self, name: &'s str, what: Name) -> Result<(), ErrorKind> {
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        match scope.names.insert(name, what) {
            None => Ok(()),
            Some(_) => Err(ErrorKind::Redefined(excerpt(name))),
        }
    }

    /// What `name` stands for at this place.
    pub(super) fn look_up(&mut self, name: &'s str) -> Result<Name, ErrorKind> {
        for index in (0..self.scopes.len()).rev() {
            if let Some(found) = self.scopes[index].names.get(name) {
                return Ok(found.clone());
            }
            if let Some((ty, vector)) = self.scopes[index].find_range(name) {
                let found = self.new_name(ty, vector);
                self.scopes[index].names.insert(name, found.clone());
                return Ok(found);
            }
        }
        match self.cx.names.get(name) {
            Some(Symbol::Global(id)) => Ok(Name::Global(*id)),
            Some(Symbol::Func(id)) => Ok(Name::Func(*id)),
            None => Err(ErrorKind::Undefined(excerpt(name))),
        }
    }

    /// `Local` or `Param`.
    pub(super) fn var_space(&self, id: VarId) -> Space {
        self.vars[id.0 as usize].space
    }

    /// Bytes of a variable in the frame.
    pub(super) fn var_size(&self, id: VarId) -> u32 {
        self.vars[id.0 as usize].size
    }

    pub(super) fn new_reg(&mut self, ty: Type) -> Reg {
        self.regs.push(ty);
        Reg((self.regs.len() - 1) as u32)
    }

    /// Adds an instruction with the guard of the statement.
    pub(super) fn emit(&mut self, op: Op) {
        self.insts.push(Inst { guard: self.guard, op, line: self.line });
    }

    /// Adds an instruction that prepares an operand, harmless when the guard does not hold.
    pub(super) fn emit_always(&mut self, op: Op) {
        self.insts.push(Inst { guard: None, op, line: self.line });
    }

    pub(super) fn declare_label(&mut self, name: &'s str) -> Result<(), ErrorKind> {
        let label = self.labels.len() as u32;
        self.labels.push(None);
        self.define(name, Name::Label(label))
    }

    /// The label stands before the next instruction.
    pub(super) fn place_label(&mut self, name: &'s str) {
        if let Ok(Name::Label(label)) = self.look_up(name) {
            self.labels[label as usize] = Some(self.insts.len());
        }
    }

    pub(super) fn label(&mut self, name: &'s str) -> Result<u32, ErrorKind> {
        match self.look_up(name)? {
            Name::Label(label) => Ok(label),
            _ => Err(ErrorKind::Declaration(format!("'{}' is not a label", excerpt(name)))),
        }
    }

    /// Cuts the instructions into blocks and turns label numbers into block numbers.
    pub(super) fn finish(self) -> Body {
        let Lower { mut insts, labels, regs, vars, frame_size, frame_align, .. } = self;
        let mut starts = vec![false; insts.len() + 1];
        for at in labels.iter().flatten() {
            starts[*at] = true;
        }
        for (index, inst) in insts.iter().enumerate() {
            if inst.op.is_terminator() && index + 1 < insts.len() {
                starts[index + 1] = true;
            }
        }
        // Number of the block that begins at (or contains) each instruction.
        let mut block_of = Vec::with_capacity(starts.len());
        let mut current = 0u32;
        for (index, &start) in starts.iter().enumerate() {
            if start && index > 0 {
                current += 1;
            }
            block_of.push(current);
        }
        let block = |label: BlockId| {
            let at = labels.get(label.0 as usize).copied().flatten().unwrap_or(0);
            BlockId(block_of[at])
        };
        for inst in &mut insts {
            match &mut inst.op {
                Op::Bra { target } => *target = block(*target),
                Op::BrxIdx { targets, .. } => {
                    targets.iter_mut().for_each(|target| *target = block(*target))
                }
                _ => {}
            }
        }
        let mut blocks: Vec<Block> = (0..=current).map(|_| Block::default()).collect();
        for (index, inst) in insts.into_iter().enumerate() {
            blocks[block_of[index] as usize].insts.push(inst);
        }
        Body { regs, vars, frame_size: frame_size as u32, frame_align, blocks }
    }
}

impl ScopeNames<'_> {
    /// The type and vector size of `name` if it is one of a range of registers.
    fn find_range(&self, name: &str) -> Option<(Type, u32)> {
        if self.ranges.is_empty() {
            return None;
        }
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(10);
        for length in 1..=digits {
            let (prefix, number) = name.split_at(name.len() - length);
            // `%r01` is not `%r1`.
            if number.len() > 1 && number.starts_with('0') {
                continue;
            }
            let Ok(number) = number.parse::<u32>() else { continue };
            if let Some(range) =
                self.ranges.iter().find(|range| range.prefix == prefix && number < range.count)
            {
                return Some((range.ty, range.vector));
            }
        }
        None
    }
}
