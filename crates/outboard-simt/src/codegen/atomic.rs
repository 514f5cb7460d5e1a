//! Atomic operations.
//!
//! Blocks run in parallel, so on device memory these are the processor's atomics. The threads of a
//! block take turns on one processor and only change over at suspension points, so on shared memory
//! a plain read, operation and write is atomic.

use crate::codegen::func::{FuncGen, Gen, PLAIN};
use crate::codegen::types::int_of_size;
use crate::rt::atomics;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32, F64, I32};
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, MemFlagsData, Value};
use outboard_ptx::ir::{AtomOp, Op};
use outboard_ptx::{Space, Type};

impl FuncGen<'_, '_> {
    pub(crate) fn atomic(&mut self, op: &Op) -> Gen {
        let &Op::Atom { op, ty, space, dst, ref addr, ref b, ref c, .. } = op else {
            return Err(format!("{op:?}").into());
        };
        if ty.size() == 16 {
            return Err(
                format!("atom.{}{ty}", if op == AtomOp::Cas { "cas" } else { "exch" }).into()
            );
        }
        let ptr = self.access(space, addr, ty.size())?;
        let class = int_of_size(ty.size());
        let value = self.value(b, class);
        let new = c.as_ref().map(|c| self.value(c, class));
        let old = if space == Space::Shared && !is_narrow_float(ty) {
            let old = self.b.ins().load(class, PLAIN, ptr, 0);
            let result = self.combine_atomic(op, ty, old, value, new)?;
            self.b.ins().store(PLAIN, result, ptr, 0);
            old
        } else {
            self.host_atomic(op, ty, ptr, value, new)?
        };
        if let Some(dst) = dst {
            self.set_extended(dst, old, ty.is_signed());
        }
        Ok(())
    }

    /// What memory holds after the operation.
    fn combine_atomic(
        &mut self,
        op: AtomOp,
        ty: Type,
        old: Value,
        value: Value,
        new: Option<Value>,
    ) -> Gen<Value> {
        if ty.is_float() && op == AtomOp::Add {
            let class = if ty == Type::F64 { F64 } else { F32 };
            let (a, b) = (self.cast(old, class), self.cast(value, class));
            let sum = self.b.ins().fadd(a, b);
            return Ok(self.as_int(sum));
        }
        Ok(match op {
            AtomOp::And => self.b.ins().band(old, value),
            AtomOp::Or => self.b.ins().bor(old, value),
            AtomOp::Xor => self.b.ins().bxor(old, value),
            AtomOp::Exch => value,
            AtomOp::Add => self.b.ins().iadd(old, value),
            AtomOp::Min if ty.is_signed() => self.b.ins().smin(old, value),
            AtomOp::Min => self.b.ins().umin(old, value),
            AtomOp::Max if ty.is_signed() => self.b.ins().smax(old, value),
            AtomOp::Max => self.b.ins().umax(old, value),
            AtomOp::Cas => {
                let equal = self.b.ins().icmp(IntCC::Equal, old, value);
                self.choose(equal, new.ok_or("cas without a new value")?, old)
            }
            AtomOp::Inc => {
                let wrap = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, old, value);
                let (more, zero) =
                    (self.b.ins().iadd_imm_s(old, 1), self.iconst(int_of_size(ty.size()), 0));
                self.choose(wrap, zero, more)
            }
            AtomOp::Dec => {
                // `old - 1 >= limit` holds for zero and for everything above the limit.
                let less = self.b.ins().iadd_imm_s(old, -1);
                let wrap = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, less, value);
                self.choose(wrap, value, less)
            }
        })
    }

    fn host_atomic(
        &mut self,
        op: AtomOp,
        ty: Type,
        ptr: Value,
        value: Value,
        new: Option<Value>,
    ) -> Gen<Value> {
        let flags = MemFlagsData::trusted();
        let class = int_of_size(ty.size());
        let function = match (op, ty) {
            (AtomOp::Add, Type::F32) => Some(atomics::add_f32 as *const () as usize),
            (AtomOp::Add, Type::F64) => Some(atomics::add_f64 as *const () as usize),
            (AtomOp::Add, Type::F16) => Some(atomics::add_f16 as *const () as usize),
            (AtomOp::Add, Type::BF16) => Some(atomics::add_bf16 as *const () as usize),
            (AtomOp::Add, Type::F16x2) => Some(atomics::add_f16x2 as *const () as usize),
            (AtomOp::Add, Type::BF16x2) => Some(atomics::add_bf16x2 as *const () as usize),
            (AtomOp::Inc, Type::U32) => Some(atomics::inc_u32 as *const () as usize),
            (AtomOp::Dec, Type::U32) => Some(atomics::dec_u32 as *const () as usize),
            (AtomOp::Add, _) if ty.is_float() => return Err(format!("atom.add{ty}").into()),
            (AtomOp::Min | AtomOp::Max, _) if ty.is_float() => {
                return Err(format!("atom.{op:?}{ty}").to_lowercase().into());
            }
            (AtomOp::Inc | AtomOp::Dec, _) => {
                return Err(format!("atom.{op:?}{ty}").to_lowercase().into());
            }
            _ => None,
        };
        if let Some(function) = function {
            let passed = if ty.size() < 4 { self.cast(value, I32) } else { value };
            let result = if ty.size() == 8 { class } else { I32 };
            let old = self.rt_value(function, result, &[ptr, passed]);
            return Ok(self.cast(old, class));
        }
        let signed = ty.is_signed();
        let rmw = match op {
            AtomOp::Cas => {
                return Ok(self.b.ins().atomic_cas(
                    flags,
                    ptr,
                    value,
                    new.ok_or("cas without a new value")?,
                ));
            }
            AtomOp::And => AtomicRmwOp::And,
            AtomOp::Or => AtomicRmwOp::Or,
            AtomOp::Xor => AtomicRmwOp::Xor,
            AtomOp::Exch => AtomicRmwOp::Xchg,
            AtomOp::Min if signed => AtomicRmwOp::Smin,
            AtomOp::Min => AtomicRmwOp::Umin,
            AtomOp::Max if signed => AtomicRmwOp::Smax,
            AtomOp::Max => AtomicRmwOp::Umax,
            _ => AtomicRmwOp::Add,
        };
        Ok(self.b.ins().atomic_rmw(class, flags, rmw, ptr, value))
    }
}

fn is_narrow_float(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::BF16 | Type::F16x2 | Type::BF16x2)
}
