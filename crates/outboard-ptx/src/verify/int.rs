//! Integer arithmetic. `add`, `mul` and their like pass on to `float` by type.

use super::float;
use super::form::Form;
use super::lower::Lower;
use crate::error::ErrorKind;
use crate::ir::{IntBinOp, IntUnOp, MulMode, Op, Operand};
use crate::types::Type;

pub(super) type Done = Result<(), ErrorKind>;

/// `.u16` to `.s64`
pub(super) const SCALARS: &[Type] =
    &[Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];
pub(super) const WORDS: &[Type] = &[Type::U32, Type::S32, Type::U64, Type::S64];
pub(super) const U32_S32: &[Type] = &[Type::U32, Type::S32];

/// The type of the result of a widening multiplication.
fn widened(ty: Type) -> Option<Type> {
    Some(match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return None,
    })
}

/// True if the instruction's type is a floating-point one.
fn is_float(form: &Form<'_, '_>) -> bool {
    form.inst.mods.iter().filter_map(|modifier| Type::from_name(modifier)).any(Type::is_float)
}

pub(super) fn add_sub<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if is_float(form) {
        return float::add_sub(cx, form);
    }
    let sub = form.inst.opcode == "sub";
    if form.flag("cc") {
        let ty = form.ty_in(WORDS)?;
        return carry(cx, form, ty, sub, false, true);
    }
    let sat = form.flag("sat");
    let ty = form.ty()?;
    let packed = !sub && matches!(ty, Type::U16x2 | Type::S16x2);
    if !(SCALARS.contains(&ty) || packed) || (sat && ty != Type::S32) {
        return Err(form.unsupported());
    }
    let op = if sub { IntBinOp::Sub } else { IntBinOp::Add };
    binary(cx, form, op, ty, sat)
}

pub(super) fn binary<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    op: IntBinOp,
    ty: Type,
    sat: bool,
) -> Done {
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::IntBin { op, ty, sat, dst, a, b });
    Ok(())
}

fn carry<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    ty: Type,
    sub: bool,
    carry_in: bool,
    carry_out: bool,
) -> Done {
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::AddCarry { sub, ty, carry_in, carry_out, dst, a, b });
    Ok(())
}

pub(super) fn add_carry<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let out = form.flag("cc");
    let ty = form.ty_in(WORDS)?;
    let sub = form.inst.opcode == "subc";
    carry(cx, form, ty, sub, true, out)
}

fn mul_mode(form: &mut Form<'_, '_>) -> Result<MulMode, ErrorKind> {
    form.one_of(&[("lo", MulMode::Lo), ("hi", MulMode::Hi), ("wide", MulMode::Wide)])
}

pub(super) fn mul<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if is_float(form) {
        return float::mul_div(cx, form);
    }
    let mode = mul_mode(form)?;
    let ty = form.ty_in(SCALARS)?;
    match mode {
        MulMode::Lo => binary(cx, form, IntBinOp::MulLo, ty, false),
        MulMode::Hi => binary(cx, form, IntBinOp::MulHi, ty, false),
        MulMode::Wide => {
            let wide = widened(ty).ok_or_else(|| form.unsupported())?;
            let [dst, a, b] = form.operands()?;
            let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?);
            let dst = cx.dst(form, dst, wide)?;
            cx.emit(Op::MulWide { ty, dst, a, b });
            Ok(())
        }
    }
}

pub(super) fn mad<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if is_float(form) {
        return float::fma(cx, form);
    }
    let mode = mul_mode(form)?;
    if form.flag("cc") {
        return mad_carry(cx, form, mode, false, true);
    }
    let sat = form.flag("sat");
    let ty = form.ty_in(SCALARS)?;
    if sat && !(mode == MulMode::Hi && ty == Type::S32) {
        return Err(form.unsupported());
    }
    let result = match mode {
        MulMode::Wide => widened(ty).ok_or_else(|| form.unsupported())?,
        _ => ty,
    };
    let [dst, a, b, c] = form.operands()?;
    let (a, b, c) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?, cx.src(form, c, result)?);
    let dst = cx.dst(form, dst, result)?;
    cx.emit(Op::Mad { mode, ty, sat, dst, a, b, c });
    Ok(())
}

fn mad_carry<'s>(
    cx: &mut Lower<'_, 's>,
    form: &mut Form<'_, 's>,
    mode: MulMode,
    carry_in: bool,
    carry_out: bool,
) -> Done {
    let ty = form.ty_in(WORDS)?;
    if mode == MulMode::Wide {
        return Err(form.unsupported());
    }
    let [dst, a, b, c] = form.operands()?;
    let (a, b, c) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?, cx.src(form, c, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::MadCarry { mode, ty, carry_in, carry_out, dst, a, b, c });
    Ok(())
}

pub(super) fn madc<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let mode = mul_mode(form)?;
    let out = form.flag("cc");
    mad_carry(cx, form, mode, true, out)
}

fn hi_lo(form: &mut Form<'_, '_>) -> Result<bool, ErrorKind> {
    form.one_of(&[("hi", true), ("lo", false)])
}

pub(super) fn mul24<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let hi = hi_lo(form)?;
    let ty = form.ty_in(U32_S32)?;
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Mul24 { hi, ty, dst, a, b });
    Ok(())
}

pub(super) fn mad24<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let hi = hi_lo(form)?;
    let sat = form.flag("sat");
    let ty = form.ty_in(U32_S32)?;
    if sat && !(hi && ty == Type::S32) {
        return Err(form.unsupported());
    }
    let [dst, a, b, c] = form.operands()?;
    let (a, b, c) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?, cx.src(form, c, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Mad24 { hi, ty, sat, dst, a, b, c });
    Ok(())
}

pub(super) fn div_rem<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let rem = form.inst.opcode == "rem";
    if is_float(form) {
        return if rem { Err(form.unsupported()) } else { float::mul_div(cx, form) };
    }
    let ty = form.ty_in(SCALARS)?;
    binary(cx, form, if rem { IntBinOp::Rem } else { IntBinOp::Div }, ty, false)
}

pub(super) fn min_max<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if is_float(form) {
        return float::min_max(cx, form);
    }
    let op = if form.inst.opcode == "min" { IntBinOp::Min } else { IntBinOp::Max };
    let relu = form.flag("relu");
    let ty = form.ty()?;
    let packed = matches!(ty, Type::U16x2 | Type::S16x2);
    if !(SCALARS.contains(&ty) || packed) || (relu && !matches!(ty, Type::S32 | Type::S16x2)) {
        return Err(form.unsupported());
    }
    if !relu {
        return binary(cx, form, op, ty, false);
    }
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    let inner = cx.new_reg(Type::B32);
    cx.emit(Op::IntBin { op, ty, sat: false, dst: inner, a, b });
    cx.emit(Op::IntBin {
        op: IntBinOp::Max,
        ty,
        sat: false,
        dst,
        a: Operand::Reg(inner),
        b: Operand::Imm(0),
    });
    Ok(())
}

pub(super) fn unary<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let (op, allowed, result): (IntUnOp, &[Type], Option<Type>) = match form.inst.opcode {
        "not" => (IntUnOp::Not, &[Type::Pred, Type::B16, Type::B32, Type::B64], None),
        "cnot" => (IntUnOp::Cnot, &[Type::B16, Type::B32, Type::B64], None),
        "brev" => (IntUnOp::Brev, &[Type::B32, Type::B64], None),
        "popc" => (IntUnOp::Popc, &[Type::B32, Type::B64], Some(Type::U32)),
        _ => (IntUnOp::Clz, &[Type::B32, Type::B64], Some(Type::U32)),
    };
    let ty = form.ty_in(allowed)?;
    un(cx, form, op, ty, result.unwrap_or(ty))
}

fn un<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    op: IntUnOp,
    ty: Type,
    result: Type,
) -> Done {
    let [dst, a] = form.operands()?;
    let a = cx.src(form, a, ty)?;
    let dst = cx.dst(form, dst, result)?;
    cx.emit(Op::IntUn { op, ty, dst, a });
    Ok(())
}

pub(super) fn neg_abs<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if is_float(form) {
        return float::neg_abs(cx, form);
    }
    let ty = form.ty_in(&[Type::S16, Type::S32, Type::S64])?;
    let op = if form.inst.opcode == "neg" { IntUnOp::Neg } else { IntUnOp::Abs };
    un(cx, form, op, ty, ty)
}

pub(super) fn sad<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let ty = form.ty_in(SCALARS)?;
    let [dst, a, b, c] = form.operands()?;
    let (a, b, c) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?, cx.src(form, c, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Sad { ty, dst, a, b, c });
    Ok(())
}

pub(super) fn dp4a<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let (a_ty, b_ty) = (form.ty_in(U32_S32)?, form.ty_in(U32_S32)?);
    let [dst, a, b, c] = form.operands()?;
    let (a, b) = (cx.src(form, a, Type::B32)?, cx.src(form, b, Type::B32)?);
    let c = cx.src(form, c, Type::B32)?;
    let dst = cx.dst(form, dst, Type::B32)?;
    cx.emit(Op::Dp4a { a_signed: a_ty.is_signed(), b_signed: b_ty.is_signed(), dst, a, b, c });
    Ok(())
}

pub(super) fn dp2a<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let hi = hi_lo(form)?;
    let (a_ty, b_ty) = (form.ty_in(U32_S32)?, form.ty_in(U32_S32)?);
    let [dst, a, b, c] = form.operands()?;
    let (a, b) = (cx.src(form, a, Type::B32)?, cx.src(form, b, Type::B32)?);
    let c = cx.src(form, c, Type::B32)?;
    let dst = cx.dst(form, dst, Type::B32)?;
    cx.emit(Op::Dp2a { hi, a_signed: a_ty.is_signed(), b_signed: b_ty.is_signed(), dst, a, b, c });
    Ok(())
}
