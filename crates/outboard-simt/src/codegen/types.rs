//! PTX types as machine types, and which class of machine register holds each PTX register.

use crate::codegen::visit::registers;
use crate::math::soft::Format;
use cranelift_codegen::ir::Type as Clif;
use cranelift_codegen::ir::types::{F32, F64, I8, I16, I32, I64, I128};
use outboard_ptx::Type;
use outboard_ptx::ir::{Body, FloatUnOp, Op, Operand};

/// The integer type of that many bytes.
pub(crate) fn int_of_size(bytes: u32) -> Clif {
    match bytes {
        1 => I8,
        2 => I16,
        4 => I32,
        8 => I64,
        _ => I128,
    }
}

/// The machine type of values of a PTX type. The 16-bit floats and packed types are bits in
/// integers.
pub(crate) fn clif(ty: Type) -> Clif {
    match ty {
        Type::F32 => F32,
        Type::F64 => F64,
        _ => int_of_size(ty.size()),
    }
}

/// The soft-float format of a type.
pub(crate) fn format(ty: Type) -> Format {
    match ty {
        Type::F16 | Type::F16x2 => Format::F16,
        Type::BF16 | Type::BF16x2 => Format::BF16,
        Type::F64 => Format::F64,
        Type::Tf32 => Format::TF32,
        _ => Format::F32,
    }
}

/// The machine type for each register of a body. A register is declared by width only (compilers
/// keep floats in `.b32` registers), so the instructions that use it vote; moving between register
/// files costs more than a memory access.
pub(crate) fn classes(body: &Body) -> Vec<Clif> {
    let mut votes = vec![0i32; body.regs.len()];
    for inst in body.blocks.iter().flat_map(|block| &block.insts) {
        let weight = match &inst.op {
            Op::FloatBin { ty, .. }
            | Op::FloatUn { ty, .. }
            | Op::Fma { ty, .. }
            | Op::Copysign { ty, .. } => float(*ty),
            Op::Setp { ty, .. } => float(*ty),
            // Neutral: either file will do.
            Op::Mov { .. } | Op::Selp { .. } | Op::Ld { .. } | Op::St { .. } | Op::Cvt { .. } => 0,
            _ => -1,
        };
        if weight != 0 {
            registers(inst, |_, reg| votes[reg.0 as usize] += weight);
        }
        if let Op::Cvt { dst_ty, src_ty, dst, a, .. } = &inst.op {
            votes[dst.0 as usize] += float(*dst_ty);
            if let Operand::Reg(reg) = a {
                votes[reg.0 as usize] += float(*src_ty);
            }
        }
    }
    body.regs
        .iter()
        .zip(votes)
        .map(|(&ty, votes)| match ty.size() {
            4 if votes > 0 || (votes == 0 && ty == Type::F32) => F32,
            8 if votes > 0 || (votes == 0 && ty == Type::F64) => F64,
            size => int_of_size(size),
        })
        .collect()
}

/// Registers that may hold the result of `f32` arithmetic, directly or through moves and
/// selections.
pub(crate) fn computed(body: &Body) -> Vec<bool> {
    let mut computed = vec![false; body.regs.len()];
    loop {
        let mut changed = false;
        for inst in body.blocks.iter().flat_map(|block| &block.insts) {
            let from = |operand: &Operand| matches!(operand, Operand::Reg(reg) if computed[reg.0 as usize]);
            let dst = match &inst.op {
                Op::FloatBin { ty: Type::F32, dst, .. } | Op::Fma { ty: Type::F32, dst, .. } => {
                    Some(*dst)
                }
                Op::FloatUn { ty: Type::F32, dst, op, .. }
                    if !matches!(op, FloatUnOp::Neg | FloatUnOp::Abs) =>
                {
                    Some(*dst)
                }
                Op::Mov { dst, a, .. } | Op::FloatUn { dst, a, .. } if from(a) => Some(*dst),
                Op::Selp { dst, a, b, .. } if from(a) || from(b) => Some(*dst),
                Op::Cvt { dst_ty: Type::F32, src_ty, dst, .. } if src_ty.is_float() => Some(*dst),
                _ => None,
            };
            if let Some(dst) = dst
                && !computed[dst.0 as usize]
            {
                computed[dst.0 as usize] = true;
                changed = true;
            }
        }
        if !changed {
            return computed;
        }
    }
}

fn float(ty: Type) -> i32 {
    if matches!(ty, Type::F32 | Type::F64) { 1 } else { -1 }
}
