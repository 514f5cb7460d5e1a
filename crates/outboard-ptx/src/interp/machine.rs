//! One thread: its frames, registers and local memory, and how control moves.

use super::world::{Stop, World};
use crate::ir::{
    Address, Base, BlockId, Body, CallArg, Callee, FuncId, Inst, Module, Op, Operand, PredOperand,
    Reg, Signature, Symbol, VarId,
};
use crate::types::Type;

/// Most nested calls.
const MAX_DEPTH: u32 = 200;

/// Interprets one thread.
pub struct Machine<'m, 'w, W: World> {
    pub(super) module: &'m Module,
    pub(super) world: &'w mut W,
    steps: u64,
    /// Frames, argument and result areas of all calls in progress, at [`STACK`].
    stack: Vec<u8>,
    depth: u32,
}

/// Where local memory and parameters lie, away from any world's memory.
pub(super) const STACK: u64 = 1 << 60;
/// Most bytes of local memory.
const MAX_STACK: usize = 1 << 24;

/// The activation of a function.
pub(super) struct Frame<'m> {
    pub(super) body: &'m Body,
    sig: &'m Signature,
    pub(super) regs: Vec<u128>,
    /// Addresses of the variables, arguments and results.
    vars: u64,
    params: u64,
    rets: u64,
    /// The carry flag.
    pub(super) carry: bool,
}

impl Frame<'_> {
    pub(super) fn get(&self, operand: Operand) -> u128 {
        match operand {
            Operand::Reg(reg) => self.reg(reg),
            Operand::Imm(bits) => u128::from(bits),
        }
    }

    pub(super) fn reg(&self, reg: Reg) -> u128 {
        self.regs[reg.0 as usize]
    }

    pub(super) fn pred(&self, operand: PredOperand) -> bool {
        (self.get(operand.value) & 1 != 0) != operand.negated
    }

    /// Writes the low bits of `value` that fit the register.
    pub(super) fn set(&mut self, reg: Reg, value: u128) {
        let cut = match self.body.regs[reg.0 as usize] {
            Type::Pred => value & 1,
            Type::B128 => value,
            ty => value & ((1 << ty.bits()) - 1),
        };
        self.regs[reg.0 as usize] = cut;
    }

    pub(super) fn set_pred(&mut self, reg: Option<Reg>, value: bool) {
        if let Some(reg) = reg {
            self.set(reg, u128::from(value));
        }
    }
}

/// Where to go after an instruction.
pub(super) enum Next {
    Follow,
    Jump(BlockId),
    Return,
}

impl<'m, 'w, W: World> Machine<'m, 'w, W> {
    /// A thread that may execute `steps` instructions.
    pub fn new(module: &'m Module, world: &'w mut W, steps: u64) -> Self {
        Machine { module, world, steps, stack: Vec::new(), depth: 0 }
    }

    /// Calls a function with its argument area; gives its result area.
    ///
    /// # Errors
    ///
    /// Why the thread stopped; [`Stop::Exit`] for `exit`.
    pub fn call(&mut self, id: FuncId, args: &[u8]) -> Result<Vec<u8>, Stop> {
        let function = &self.module.functions[id.0 as usize];
        let Some(body) = &function.body else {
            let what = format!("a call of '{}'", function.name);
            return Err(Stop::NotScalar { line: function.line, what });
        };
        if self.depth == MAX_DEPTH {
            return Err(Stop::Depth);
        }
        let sig = &function.sig;
        let mark = self.stack.len();
        let params = self.reserve(sig.params_size)?;
        let rets = self.reserve(sig.rets_size)?;
        let vars = self.reserve(body.frame_size)?;
        let len = args.len().min(sig.params_size as usize);
        let at = (params - STACK) as usize;
        self.stack[at..at + len].copy_from_slice(&args[..len]);
        let mut frame =
            Frame { body, sig, regs: vec![0; body.regs.len()], vars, params, rets, carry: false };
        self.depth += 1;
        let result = self.run(&mut frame);
        self.depth -= 1;
        let at = (rets - STACK) as usize;
        let results = self.stack[at..at + sig.rets_size as usize].to_vec();
        self.stack.truncate(mark);
        result.map(|()| results)
    }

    /// Room on the stack, aligned for anything.
    fn reserve(&mut self, size: u32) -> Result<u64, Stop> {
        let at = self.stack.len().next_multiple_of(256);
        let end = at + size as usize;
        if end > MAX_STACK {
            return Err(Stop::Depth);
        }
        self.stack.resize(end, 0);
        Ok(STACK + at as u64)
    }

    fn run(&mut self, frame: &mut Frame<'m>) -> Result<(), Stop> {
        let mut block = 0usize;
        while let Some(current) = frame.body.blocks.get(block) {
            block += 1;
            for inst in &current.insts {
                self.steps = self.steps.checked_sub(1).ok_or(Stop::Steps)?;
                if let Some(guard) = inst.guard
                    && (frame.reg(guard.reg) & 1 != 0) == guard.negated
                {
                    continue;
                }
                match self.step(frame, inst)? {
                    Next::Follow => {}
                    Next::Jump(target) => {
                        block = target.0 as usize;
                        break;
                    }
                    Next::Return => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Executes a call instruction.
    pub(super) fn call_inst(&mut self, frame: &mut Frame<'m>, inst: &Inst) -> Result<(), Stop> {
        let Op::Call { callee, rets, args } = &inst.op else { return Ok(()) };
        let id = match callee {
            Callee::Direct(id) => *id,
            Callee::Indirect { reg, .. } => {
                let wanted = frame.reg(*reg) as u64;
                let functions = (0..self.module.functions.len() as u32).map(FuncId);
                let mut found =
                    functions.filter(|id| self.world.address(Symbol::Func(*id)) == wanted);
                found.next().ok_or(Stop::Fault { addr: wanted, size: 0 })?
            }
        };
        let sig = &self.module.functions[id.0 as usize].sig;
        let mut area = vec![0u8; sig.params_size as usize];
        for (arg, param) in args.iter().zip(&sig.params) {
            let to = &mut area[param.offset as usize..(param.offset + param.size) as usize];
            match arg {
                CallArg::Var(id) => self.read(self.var(frame, *id), to)?,
                CallArg::Reg(reg) => to.copy_from_slice(&frame.reg(*reg).to_le_bytes()[..to.len()]),
                CallArg::Imm(bits) => to.copy_from_slice(&bits.to_le_bytes()[..to.len()]),
                CallArg::Unused => {}
            }
        }
        let results = self.call(id, &area)?;
        for (ret, param) in rets.iter().zip(&sig.rets) {
            let from = &results[param.offset as usize..(param.offset + param.size) as usize];
            match ret {
                CallArg::Var(id) => self.write(self.var(frame, *id), from)?,
                CallArg::Reg(reg) => frame.set(*reg, little_endian(from)),
                CallArg::Imm(_) | CallArg::Unused => {}
            }
        }
        Ok(())
    }

    fn var(&self, frame: &Frame<'m>, id: VarId) -> u64 {
        frame.vars + u64::from(frame.body.vars[id.0 as usize].offset)
    }

    pub(super) fn address(&self, frame: &Frame<'m>, addr: Address) -> u64 {
        let base = match addr.base {
            Base::None => 0,
            Base::Reg(reg) => frame.reg(reg) as u64,
            Base::Global(id) => self.world.address(Symbol::Global(id)),
            Base::Func(id) => self.world.address(Symbol::Func(id)),
            Base::Var(id) => self.var(frame, id),
            Base::Param(index) => frame.params + u64::from(frame.sig.params[index as usize].offset),
            Base::Ret(index) => frame.rets + u64::from(frame.sig.rets[index as usize].offset),
        };
        base.wrapping_add_signed(addr.offset)
    }

    /// Reads memory of any space; the stack first.
    pub(super) fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<(), Stop> {
        let fault = Stop::Fault { addr, size: bytes.len() as u32 };
        if let Some(range) = self.stack_range(addr, bytes.len()) {
            bytes.copy_from_slice(&self.stack[range]);
            return Ok(());
        }
        if self.world.load(addr, bytes) { Ok(()) } else { Err(fault) }
    }

    pub(super) fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Stop> {
        let fault = Stop::Fault { addr, size: bytes.len() as u32 };
        if let Some(range) = self.stack_range(addr, bytes.len()) {
            self.stack[range].copy_from_slice(bytes);
            return Ok(());
        }
        if self.world.store(addr, bytes) { Ok(()) } else { Err(fault) }
    }

    fn stack_range(&self, addr: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(addr.checked_sub(STACK)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.stack.len()).then_some(start..end)
    }
}

/// At most 16 bytes as a number.
pub(super) fn little_endian(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |all, &byte| all << 8 | u128::from(byte))
}
