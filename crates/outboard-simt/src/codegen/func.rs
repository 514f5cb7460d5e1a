//! One PTX function becomes one machine function: registers, control flow, and the small tools that
//! the instruction families use.
//!
//! One CUDA thread is one activation, so predicates and divergence are plain branches. PTX
//! registers are variables that the builder turns into SSA values. Every function takes the block's
//! context, the thread's context, the address of its frame in local memory, and the addresses of
//! its argument and result areas; it returns a status (see [`crate::exec::context`]).

use crate::codegen::analysis::Facts;
use crate::codegen::program::Unit;
use crate::codegen::steps::Steps;
use crate::codegen::types::{classes, computed};
use crate::exec::context::{BlockContext, STATUS_DONE, STATUS_EXIT, STATUS_FAULT, ThreadContext};
use crate::fault::Space;
use crate::program::LoadError;
use crate::rt::access::Stop;
use crate::rt::sync;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, Block, BlockArg, InstBuilder, JumpTableData, MemFlagsData, SigRef, Signature,
    Type as Clif, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, Variable};
use outboard_ptx::ir::{self, Body, Function, Inst, Op};
use std::collections::HashMap;
use std::mem::offset_of;

/// Why no code could be generated for an instruction.
pub(crate) enum Refusal {
    /// The engine does not have it.
    Unsupported(String),
    /// It names a symbol that no module defines.
    Undefined(String),
}

impl From<String> for Refusal {
    fn from(what: String) -> Refusal {
        Refusal::Unsupported(what)
    }
}

impl From<&str> for Refusal {
    fn from(what: &str) -> Refusal {
        Refusal::Unsupported(what.into())
    }
}

/// Result of generating code.
pub(crate) type Gen<T = ()> = Result<T, Refusal>;

/// Values of the contexts that code uses often, loaded once at the entry; those that are not used
/// vanish.
#[derive(Clone, Copy)]
pub(crate) struct Ambient {
    pub(crate) block: Value,
    pub(crate) thread: Value,
    pub(crate) frame: Value,
    pub(crate) args: Value,
    pub(crate) rets: Value,
    pub(crate) arena_base: Value,
    pub(crate) table: Value,
    pub(crate) shared_base: Value,
    pub(crate) shared_size: Value,
    pub(crate) local_base: Value,
    pub(crate) local_size: Value,
}

/// What was found out about a function.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) steps: &'a Steps,
}

/// Generator for one function.
pub(crate) struct FuncGen<'a, 'f> {
    pub(crate) b: FunctionBuilder<'f>,
    pub(crate) unit: &'a Unit,
    pub(crate) module: usize,
    pub(crate) func: &'a Function,
    pub(crate) body: &'a Body,
    pub(super) facts: &'a Facts,
    pub(super) steps: &'a Steps,
    pub(crate) at: Ambient,
    pub(super) index: usize,
    pub(super) vars: Vec<Variable>,
    pub(super) classes: Vec<Clif>,
    pub(super) computed: Vec<bool>,
    pub(crate) carry: Variable,
    blocks: Vec<Block>,
    pub(super) fault_exit: Block,
    pub(super) signatures: HashMap<(Vec<Clif>, Option<Clif>), SigRef>,
    /// Accesses already checked in this PTX block: space, base value, offset, size.
    pub(crate) checked: Vec<(Space, Value, i64, u32)>,
    pub(super) line: u32,
    pub(crate) entry_sig: SigRef,
    /// Bytes of the frame with the areas for calls.
    pub(crate) frame_bytes: u64,
}

/// Signature of all compiled functions.
pub(crate) fn function_signature(conv: CallConv) -> Signature {
    let mut signature = Signature::new(conv);
    signature.params.extend([I64; 5].map(AbiParam::new));
    signature.returns.push(AbiParam::new(I32));
    signature
}

/// Flags of accesses to memory that is known to be there. Device memory may hold values at any
/// alignment the check allowed.
pub(crate) const PLAIN: MemFlagsData = MemFlagsData::new().with_notrap();
/// Flags of accesses to the contexts.
pub(crate) const CONTEXT: MemFlagsData = MemFlagsData::trusted();
/// The same, of what does not change while a function runs.
pub(crate) const UNIFORM: MemFlagsData = MemFlagsData::trusted().with_readonly().with_can_move();

impl<'a, 'f> FuncGen<'a, 'f> {
    /// Generates the whole function into the builder's function.
    pub(crate) fn generate(
        b: FunctionBuilder<'f>,
        unit: &'a Unit,
        module: usize,
        index: usize,
        func: &'a Function,
        body: &'a Body,
        known: Known<'a>,
    ) -> Result<(), LoadError> {
        let unsupported = |line: u32, refusal: Refusal| match refusal {
            Refusal::Unsupported(what) => {
                LoadError::Unsupported { function: func.name.clone(), line, what }
            }
            Refusal::Undefined(symbol) => LoadError::Undefined(symbol),
        };
        let mut this = FuncGen::new(b, unit, module, index, func, body, known)
            .map_err(|e| unsupported(func.line, e))?;
        this.run().map_err(|e| unsupported(this.line, e))?;
        let FuncGen { mut b, fault_exit, .. } = this;
        b.switch_to_block(fault_exit);
        let status = b.ins().iconst(I32, i64::from(STATUS_FAULT));
        b.ins().return_(&[status]);
        b.seal_all_blocks();
        b.finalize(unit.frontend);
        Ok(())
    }

    fn new(
        mut b: FunctionBuilder<'f>,
        unit: &'a Unit,
        module: usize,
        index: usize,
        func: &'a Function,
        body: &'a Body,
        known: Known<'a>,
    ) -> Gen<Self> {
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let &[block, thread, frame, args, rets] = b.block_params(entry) else {
            return Err("its signature".into());
        };
        let classes = classes(body);
        let vars: Vec<Variable> = classes.iter().map(|&ty| b.declare_var(ty)).collect();
        let carry = b.declare_var(I8);
        let uniform = |b: &mut FunctionBuilder<'f>, base, offset| {
            b.ins().load(I64, UNIFORM, base, offset as i32)
        };
        let at = Ambient {
            block,
            thread,
            frame,
            args,
            rets,
            arena_base: uniform(&mut b, block, offset_of!(BlockContext, arena_base)),
            table: uniform(&mut b, block, offset_of!(BlockContext, table)),
            shared_base: uniform(&mut b, block, offset_of!(BlockContext, shared_base)),
            shared_size: uniform(&mut b, block, offset_of!(BlockContext, shared_size)),
            local_base: uniform(&mut b, thread, offset_of!(ThreadContext, local_base)),
            local_size: uniform(&mut b, thread, offset_of!(ThreadContext, local_size)),
        };
        let blocks = body.blocks.iter().map(|_| b.create_block()).collect();
        let fault_exit = b.create_block();
        b.set_cold_block(fault_exit);
        let conv = b.func.signature.call_conv;
        let entry_sig = b.import_signature(function_signature(conv));
        let frame_bytes = crate::codegen::call::frame_bytes(unit, module, body);
        let mut this = FuncGen {
            b,
            unit,
            module,
            func,
            body,
            facts: known.facts,
            steps: known.steps,
            at,
            index,
            vars,
            classes,
            computed: computed(body),
            carry,
            blocks,
            fault_exit,
            signatures: HashMap::new(),
            checked: Vec::new(),
            line: func.line,
            entry_sig,
            frame_bytes,
        };
        this.prologue();
        Ok(this)
    }

    fn prologue(&mut self) {
        let align = u64::from(self.body.frame_align);
        if align > 16 {
            let up = self.b.ins().iadd_imm_s(self.at.frame, align as i64 - 1);
            self.at.frame = self.b.ins().band_imm_s(up, -(align as i64));
        }
        if self.func.entry.is_none() {
            // Native stack and local memory must both have room. Kernels themselves always have it.
            let sp = self.b.ins().get_stack_pointer(I64);
            let limit = self.b.ins().load(
                I64,
                UNIFORM,
                self.at.thread,
                offset_of!(ThreadContext, stack_limit) as i32,
            );
            let deep = self.b.ins().icmp(IntCC::UnsignedLessThan, sp, limit);
            let end = self.b.ins().iadd_imm_s(self.at.frame, self.frame_bytes as i64);
            let top = self.b.ins().iadd(self.at.local_base, self.at.local_size);
            let long = self.b.ins().icmp(IntCC::UnsignedGreaterThan, end, top);
            let over = self.b.ins().bor(deep, long);
            let zero = self.iconst(I64, 0);
            self.fault_if(over, Stop::StackOverflow, zero);
        }
        let first = self.blocks.first().copied();
        match first {
            Some(first) => _ = self.b.ins().jump(first, &[]),
            None => self.ret(STATUS_DONE),
        }
    }

    fn run(&mut self) -> Gen {
        for (i, block) in self.body.blocks.iter().enumerate() {
            self.b.switch_to_block(self.blocks[i]);
            self.checked.clear();
            for (number, inst) in block.insts.iter().enumerate() {
                self.line = inst.line;
                self.inst(i, number, inst)?;
            }
            if !block.insts.last().is_some_and(|inst| inst.op.is_terminator()) {
                self.fall_through(i);
            }
        }
        Ok(())
    }

    fn fall_through(&mut self, from: usize) {
        match self.blocks.get(from + 1) {
            Some(&next) => _ = self.b.ins().jump(next, &[]),
            None => self.ret(STATUS_DONE),
        }
    }

    fn inst(&mut self, block: usize, number: usize, inst: &Inst) -> Gen {
        if inst.op.is_terminator() {
            return self.terminator(block, inst);
        }
        let Some(guard) = inst.guard else {
            self.step((block as u32, number as u32));
            return self.op(&inst.op);
        };
        let (then, after) = (self.b.create_block(), self.b.create_block());
        let condition = self.guard(guard);
        self.b.ins().brif(condition, then, &[], after, &[]);
        self.b.switch_to_block(then);
        // What is checked only under the guard is not checked behind it.
        let checked = self.checked.len();
        self.step((block as u32, number as u32));
        self.op(&inst.op)?;
        self.checked.truncate(checked);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        Ok(())
    }

    fn terminator(&mut self, block: usize, inst: &Inst) -> Gen {
        let after = match inst.guard {
            None => None,
            Some(guard) => {
                let condition = self.guard(guard);
                let next = match self.blocks.get(block + 1) {
                    Some(&next) => next,
                    None => self.b.create_block(),
                };
                let then = match inst.op {
                    Op::Bra { target } if !self.is_spin_edge(block, target) => {
                        self.blocks[target.0 as usize]
                    }
                    _ => self.b.create_block(),
                };
                self.b.ins().brif(condition, then, &[], next, &[]);
                if let Op::Bra { target } = inst.op
                    && then == self.blocks[target.0 as usize]
                {
                    if block + 1 == self.blocks.len() {
                        self.b.switch_to_block(next);
                        self.ret(STATUS_DONE);
                    }
                    return Ok(());
                }
                self.b.switch_to_block(then);
                (block + 1 == self.blocks.len()).then_some(next)
            }
        };
        match &inst.op {
            Op::Bra { target } => {
                if self.is_spin_edge(block, *target) {
                    self.spin_turn();
                }
                let target = self.blocks[target.0 as usize];
                self.b.ins().jump(target, &[]);
            }
            Op::BrxIdx { index, targets } => {
                if self.facts.spinning[block] {
                    self.spin_turn();
                }
                let index = self.value(index, I32);
                let outside = self.b.create_block();
                self.b.set_cold_block(outside);
                let default = self.b.func.dfg.block_call(outside, &[] as &[BlockArg]);
                let calls: Vec<_> = targets
                    .iter()
                    .map(|t| {
                        self.b.func.dfg.block_call(self.blocks[t.0 as usize], &[] as &[BlockArg])
                    })
                    .collect();
                let table = self.b.create_jump_table(JumpTableData::new(default, &calls));
                self.b.ins().br_table(index, table);
                self.b.switch_to_block(outside);
                self.stop(Stop::Trap);
            }
            Op::Ret => self.ret(STATUS_DONE),
            Op::Exit => self.ret(STATUS_EXIT),
            _ => self.stop(Stop::Trap),
        }
        if let Some(after) = after {
            self.b.switch_to_block(after);
            self.ret(STATUS_DONE);
        }
        Ok(())
    }

    fn is_spin_edge(&self, from: usize, target: ir::BlockId) -> bool {
        // Going back to an earlier block of a loop: every cycle has such an edge.
        target.0 as usize <= from
            && self.facts.spinning[from]
            && self.facts.spinning[target.0 as usize]
    }

    /// In a loop that may wait for other threads: after some turns lets them run.
    fn spin_turn(&mut self) {
        let offset = offset_of!(ThreadContext, spin_budget) as i32;
        let budget = self.b.ins().load(I32, CONTEXT, self.at.thread, offset);
        let less = self.b.ins().iadd_imm_s(budget, -1);
        self.b.ins().store(CONTEXT, less, self.at.thread, offset);
        let (turn, go_on) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(less, go_on, &[], turn, &[]);
        self.b.set_cold_block(turn);
        self.b.switch_to_block(turn);
        let thread = self.at.thread;
        self.rt(sync::yield_turn as *const () as usize, None, &[thread]);
        self.b.ins().jump(go_on, &[]);
        self.b.switch_to_block(go_on);
    }

    fn op(&mut self, op: &Op) -> Gen {
        match op {
            Op::IntBin { .. }
            | Op::IntUn { .. }
            | Op::Shift { .. }
            | Op::MulWide { .. }
            | Op::Mad { .. }
            | Op::Mul24 { .. }
            | Op::Mad24 { .. }
            | Op::AddCarry { .. }
            | Op::MadCarry { .. }
            | Op::Sad { .. } => self.integer(op),
            Op::Bfind { .. }
            | Op::Fns { .. }
            | Op::Bfe { .. }
            | Op::Bfi { .. }
            | Op::Bmsk { .. }
            | Op::Szext { .. }
            | Op::Shf { .. }
            | Op::Prmt { .. }
            | Op::Lop3 { .. }
            | Op::Dp4a { .. }
            | Op::Dp2a { .. }
            | Op::Video { .. } => self.bits(op),
            Op::FloatBin { .. }
            | Op::FloatUn { .. }
            | Op::Fma { .. }
            | Op::Copysign { .. }
            | Op::Testp { .. } => self.float(op),
            Op::Setp { .. } | Op::Set { .. } | Op::Selp { .. } | Op::Slct { .. } => self.select(op),
            Op::Mov { .. } | Op::Pack { .. } | Op::Unpack { .. } => self.movement(op),
            Op::MovSpecial { dst, sreg } => self.special(*dst, *sreg),
            Op::Cvt { .. } | Op::CvtPair { .. } | Op::CvtPack { .. } => self.convert(op),
            Op::MovAddr { .. } | Op::Cvta { .. } | Op::Isspacep { .. } => self.addressing(op),
            Op::Ld { .. } | Op::St { .. } | Op::CpAsync { .. } | Op::Fence { .. } => {
                self.memory(op)
            }
            Op::Tex { .. }
            | Op::SurfaceLoad { .. }
            | Op::SurfaceStore { .. }
            | Op::TextureQuery { .. } => self.texture(op),
            Op::Atom { .. } => self.atomic(op),
            Op::Call { callee, rets, args } => self.call(callee, rets, args),
            Op::Brkpt | Op::ClusterArrive => Ok(()),
            _ => self.sync(op),
        }
    }
}
