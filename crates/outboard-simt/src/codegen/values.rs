//! The tools that all instruction families use: operands as values, registers, calls of runtime
//! functions, and ways out.

use crate::codegen::func::{CONTEXT, FuncGen, UNIFORM};
use crate::codegen::types::{clif, int_of_size};
use crate::rt::access::{Stop, stop};
use cranelift_codegen::ir::types::{F32, F64, I8, I32, I64, I128};
use cranelift_codegen::ir::{
    AbiParam, Block, Inst as ClifInst, InstBuilder, MemFlagsData, Signature, Type as Clif, Value,
};
use outboard_ptx::Type;
use outboard_ptx::ir::{Guard, Operand, PredOperand, Reg};

impl FuncGen<'_, '_> {
    /// Where the current instruction is: function and line.
    pub(crate) fn site(&mut self) -> Value {
        let site = (self.index as u64) << 32 | u64::from(self.line);
        self.iconst(I64, site)
    }

    /// An integer constant; bits beyond the type are dropped.
    pub(crate) fn iconst(&mut self, ty: Clif, value: u64) -> Value {
        if ty == I128 {
            let low = self.b.ins().iconst(I64, value as i64);
            return self.b.ins().uextend(I128, low);
        }
        let value = if ty.bits() < 64 { value & ((1 << ty.bits()) - 1) } else { value };
        self.b.ins().iconst(ty, value as i64)
    }

    /// An operand as a value of a machine type: the low bits of a wider register.
    pub(crate) fn value(&mut self, operand: &Operand, ty: Clif) -> Value {
        match *operand {
            Operand::Reg(reg) => {
                let value = self.reg(reg);
                // Where the bits of computed numbers are looked at, NaNs must be hardware's.
                let value = if ty.is_int() && self.is_computed(operand) {
                    self.canonical(value)
                } else {
                    value
                };
                self.cast(value, ty)
            }
            Operand::Imm(bits) if ty == F32 => self.b.ins().f32const(f32::from_bits(bits as u32)),
            Operand::Imm(bits) if ty == F64 => self.b.ins().f64const(f64::from_bits(bits)),
            Operand::Imm(bits) => self.iconst(ty, bits),
        }
    }

    /// Whether an operand is a floating-point register that may hold the result of `f32`
    /// arithmetic.
    pub(crate) fn is_computed(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Reg(reg) if self.computed[reg.0 as usize] && self.class_of(*reg) == F32)
    }

    /// Whether a register lies in the floating-point file.
    pub(crate) fn holds_float(&self, reg: Reg) -> bool {
        self.class_of(reg).is_float()
    }

    /// The value of a register as its variable holds it.
    pub(crate) fn reg(&mut self, reg: Reg) -> Value {
        self.b.use_var(self.vars[reg.0 as usize])
    }

    /// The constant an operand is, if it is one.
    pub(crate) fn constant(operand: &Operand) -> Option<u64> {
        match operand {
            Operand::Imm(bits) => Some(*bits),
            Operand::Reg(_) => None,
        }
    }

    /// The machine type in which a value of PTX type `ty` reaches `dst` without changing register
    /// files.
    pub(crate) fn class(&self, dst: Reg, ty: Type) -> Clif {
        let held = self.class_of(dst);
        if held.bytes() == ty.size() { held } else { int_of_size(ty.size()) }
    }

    /// As [`Self::class`], for a source operand.
    pub(crate) fn source_class(&self, operand: &Operand, ty: Type) -> Clif {
        match operand {
            Operand::Reg(reg) => self.class(*reg, ty),
            Operand::Imm(_) => clif(ty),
        }
    }

    fn class_of(&self, reg: Reg) -> Clif {
        self.classes[reg.0 as usize]
    }

    /// The same bits as another type: truncated or zero-extended where the width differs.
    pub(crate) fn cast(&mut self, value: Value, ty: Clif) -> Value {
        self.cast_signed(value, ty, false)
    }

    fn cast_signed(&mut self, value: Value, ty: Clif, signed: bool) -> Value {
        let from = self.b.func.dfg.value_type(value);
        if from == ty {
            return value;
        }
        let bits = self.as_int(value);
        let from = self.b.func.dfg.value_type(bits);
        let wanted = int_of_size(ty.bytes());
        let resized = if wanted.bits() < from.bits() {
            self.b.ins().ireduce(wanted, bits)
        } else if wanted.bits() == from.bits() {
            bits
        } else if signed {
            self.b.ins().sextend(wanted, bits)
        } else {
            self.b.ins().uextend(wanted, bits)
        };
        if ty == wanted { resized } else { self.b.ins().bitcast(ty, MemFlagsData::new(), resized) }
    }

    /// The bits of a value as an integer of the same width.
    pub(crate) fn as_int(&mut self, value: Value) -> Value {
        let ty = self.b.func.dfg.value_type(value);
        if ty.is_int() {
            value
        } else {
            self.b.ins().bitcast(int_of_size(ty.bytes()), MemFlagsData::new(), value)
        }
    }

    /// Writes a register; a narrower value is zero-extended.
    pub(crate) fn set(&mut self, dst: Reg, value: Value) {
        self.set_extended(dst, value, false);
    }

    /// Writes a register; a narrower value is sign- or zero-extended.
    pub(crate) fn set_extended(&mut self, dst: Reg, value: Value, signed: bool) {
        let ty = self.class_of(dst);
        let value = self.cast_signed(value, ty, signed);
        self.b.def_var(self.vars[dst.0 as usize], value);
    }

    /// A predicate operand as an `I8` of 0 or 1.
    pub(crate) fn pred(&mut self, operand: &PredOperand) -> Value {
        let value = self.value(&operand.value, I8);
        if operand.negated { self.b.ins().bxor_imm_s(value, 1) } else { value }
    }

    /// A guard as an `I8` of 0 or 1.
    pub(crate) fn guard(&mut self, guard: Guard) -> Value {
        self.pred(&PredOperand { value: Operand::Reg(guard.reg), negated: guard.negated })
    }

    /// `then` where `condition` holds, else `other`.
    pub(crate) fn choose(&mut self, condition: Value, then: Value, other: Value) -> Value {
        self.b.ins().select(condition, then, other)
    }

    /// Calls a runtime function; arguments and result pass by the C convention.
    pub(crate) fn rt(&mut self, function: usize, ret: Option<Clif>, args: &[Value]) -> ClifInst {
        let types: Vec<Clif> = args.iter().map(|&arg| self.b.func.dfg.value_type(arg)).collect();
        let conv = self.b.func.signature.call_conv;
        let signature = match self.signatures.get(&(types.clone(), ret)) {
            Some(&signature) => signature,
            None => {
                let mut signature = Signature::new(conv);
                signature.params.extend(types.iter().map(|&ty| AbiParam::new(ty)));
                signature.returns.extend(ret.map(AbiParam::new));
                let signature = self.b.import_signature(signature);
                self.signatures.insert((types, ret), signature);
                signature
            }
        };
        let callee = self.iconst(I64, function as u64);
        self.b.ins().call_indirect(signature, callee, args)
    }

    /// As [`Self::rt`], with the result.
    pub(crate) fn rt_value(&mut self, function: usize, ret: Clif, args: &[Value]) -> Value {
        let inst = self.rt(function, Some(ret), args);
        self.b.inst_results(inst)[0]
    }

    pub(crate) fn load_context(&mut self, ty: Clif, base: Value, offset: usize) -> Value {
        self.b.ins().load(ty, CONTEXT, base, offset as i32)
    }

    pub(crate) fn load_uniform(&mut self, ty: Clif, base: Value, offset: usize) -> Value {
        self.b.ins().load(ty, UNIFORM, base, offset as i32)
    }

    /// Ends the function with a constant status.
    pub(crate) fn ret(&mut self, status: u32) {
        let status = self.iconst(I32, status.into());
        self.b.ins().return_(&[status]);
    }

    /// Ends the function with `status` unless that is zero.
    pub(crate) fn return_unless_done(&mut self, status: Value) {
        let (leave, go_on) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(leave);
        self.b.ins().brif(status, leave, &[], go_on, &[]);
        self.b.switch_to_block(leave);
        self.b.ins().return_(&[status]);
        self.b.switch_to_block(go_on);
    }

    /// Goes to the common exit for faults that are recorded.
    pub(crate) fn leave_with_fault(&mut self) {
        self.b.ins().jump(self.fault_exit, &[]);
    }

    /// Branches to the common exit for recorded faults when `value` is zero.
    pub(crate) fn leave_if_zero(&mut self, value: Value, go_on: Block) {
        self.b.ins().brif(value, go_on, &[], self.fault_exit, &[]);
    }

    /// Records a fault and ends the function.
    pub(crate) fn stop(&mut self, reason: Stop) {
        let zero = self.iconst(I64, 0);
        self.stop_with(reason, zero);
    }

    fn stop_with(&mut self, reason: Stop, value: Value) {
        let (reason, site) = (self.iconst(I64, reason as u64), self.site());
        let thread = self.at.thread;
        self.rt(stop as *const () as usize, Some(I32), &[thread, reason, value, site]);
        self.leave_with_fault();
    }

    /// Records a fault and ends the function where `condition` holds.
    pub(crate) fn fault_if(&mut self, condition: Value, reason: Stop, value: Value) {
        let (bad, go_on) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        self.b.ins().brif(condition, bad, &[], go_on, &[]);
        self.b.switch_to_block(bad);
        self.stop_with(reason, value);
        self.b.switch_to_block(go_on);
    }
}
