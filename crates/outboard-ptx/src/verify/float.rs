//! Floating-point arithmetic.

use super::form::Form;
use super::lower::Lower;
use crate::ast;
use crate::error::ErrorKind;
use crate::ir::{FloatBinOp, FloatMods, FloatUnOp, Op, Operand, Round, TestpOp};
use crate::types::Type;

type Done = Result<(), ErrorKind>;

const HALVES: &[Type] = &[Type::F16, Type::F16x2, Type::BF16, Type::BF16x2];
const F32_F64: &[Type] = &[Type::F32, Type::F64];

fn is_half(ty: Type) -> bool {
    HALVES.contains(&ty)
}

/// Whether `.ftz` may stand with `ty`.
fn has_ftz(ty: Type) -> bool {
    matches!(ty, Type::F32 | Type::F32x2 | Type::F16 | Type::F16x2)
}

/// Takes rounding, `.ftz` and `.sat`, which arithmetic has in common.
fn modifiers(form: &mut Form<'_, '_>) -> FloatMods {
    let round = form.round().unwrap_or(Round::NearestEven);
    FloatMods { round, ftz: form.flag("ftz"), sat: form.flag("sat"), ..FloatMods::DEFAULT }
}

/// As [`modifiers`], for the instructions that must name their rounding.
fn modifiers_rounded(form: &mut Form<'_, '_>) -> Result<FloatMods, ErrorKind> {
    let round = form.round().ok_or_else(|| form.unsupported())?;
    Ok(FloatMods { round, ..modifiers(form) })
}

/// Refuses what PTX does not have: directed rounding of the half types, `.ftz` of doubles, ...
fn check(form: &Form<'_, '_>, ty: Type, mods: FloatMods) -> Done {
    let arithmetic = is_half(ty) || matches!(ty, Type::F32 | Type::F32x2 | Type::F64);
    let round = match mods.round {
        Round::NearestEven => true,
        Round::NearestAway => false,
        _ => !is_half(ty),
    };
    let ftz = !mods.ftz || has_ftz(ty);
    let sat = !mods.sat || matches!(ty, Type::F32 | Type::F16 | Type::F16x2);
    if arithmetic && round && ftz && sat { Ok(()) } else { Err(form.unsupported()) }
}

fn binary<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    op: FloatBinOp,
    ty: Type,
    mods: FloatMods,
) -> Done {
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::FloatBin { op, ty, mods, dst, a, b });
    Ok(())
}

/// A 16-bit source of a mixed-precision operation, widened to f32.
fn widened<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    operand: &ast::Operand<'s>,
    from: Option<Type>,
) -> Result<Operand, ErrorKind> {
    let Some(src_ty) = from else { return cx.src(form, operand, Type::F32) };
    let a = cx.src(form, operand, src_ty)?;
    let dst = cx.new_reg(Type::F32);
    cx.emit(Op::Cvt {
        dst_ty: Type::F32,
        src_ty,
        round: None,
        int_round: None,
        ftz: false,
        sat: false,
        satfinite: false,
        relu: false,
        dst,
        a,
    });
    Ok(Operand::Reg(dst))
}

/// The second type of a mixed-precision operation such as `add.f32.f16`.
fn mixed(form: &mut Form<'_, '_>, ty: Type) -> Result<Option<Type>, ErrorKind> {
    match form.maybe_ty() {
        None => Ok(None),
        Some(from @ (Type::F16 | Type::BF16)) if ty == Type::F32 => Ok(Some(from)),
        Some(_) => Err(form.unsupported()),
    }
}

pub(super) fn add_sub<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let op = if form.inst.opcode == "add" { FloatBinOp::Add } else { FloatBinOp::Sub };
    let mods = modifiers(form);
    let ty = form.ty()?;
    check(form, ty, mods)?;
    let Some(from) = mixed(form, ty)? else {
        return binary(cx, form, op, ty, mods);
    };
    let [dst, a, b] = form.operands()?;
    let (a, b) = (widened(cx, form, a, Some(from))?, cx.src(form, b, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::FloatBin { op, ty, mods, dst, a, b });
    Ok(())
}

pub(super) fn mul_div<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if form.inst.opcode == "mul" {
        let mods = modifiers(form);
        let ty = form.ty()?;
        check(form, ty, mods)?;
        return binary(cx, form, FloatBinOp::Mul, ty, mods);
    }
    let inexact = form.choice(&[("approx", FloatBinOp::DivApprox), ("full", FloatBinOp::DivFull)]);
    let (op, mods) = match inexact {
        Some(op) => (op, modifiers(form)),
        None => (FloatBinOp::Div, modifiers_rounded(form)?),
    };
    let ty = form.ty_in(F32_F64)?;
    check(form, ty, mods)?;
    if mods.sat || (op != FloatBinOp::Div && ty != Type::F32) {
        return Err(form.unsupported());
    }
    binary(cx, form, op, ty, mods)
}

pub(super) fn fma<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let mut mods = modifiers_rounded(form)?;
    mods.relu = form.flag("relu");
    mods.oob = form.flag("oob");
    let ty = form.ty()?;
    check(form, ty, mods)?;
    if (mods.relu || mods.oob) && !is_half(ty) {
        return Err(form.unsupported());
    }
    if form.inst.opcode == "mad" && !F32_F64.contains(&ty) {
        return Err(form.unsupported());
    }
    let from = mixed(form, ty)?;
    let [dst, a, b, c] = form.operands()?;
    let (a, b) = match from {
        Some(_) => (widened(cx, form, a, from)?, widened(cx, form, b, from)?),
        None => (cx.src(form, a, ty)?, cx.src(form, b, ty)?),
    };
    let c = cx.src(form, c, ty)?;
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Fma { ty, mods, dst, a, b, c });
    Ok(())
}

pub(super) fn min_max<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let op = if form.inst.opcode == "min" { FloatBinOp::Min } else { FloatBinOp::Max };
    let mut mods = FloatMods { ftz: form.flag("ftz"), nan: form.flag("NaN"), ..FloatMods::DEFAULT };
    mods.xorsign_abs = form.flag("xorsign");
    if mods.xorsign_abs && !form.flag("abs") {
        return Err(form.unsupported());
    }
    let ty = form.ty()?;
    check(form, ty, mods)?;
    if ty == Type::F32x2 || (ty == Type::F64 && (mods.nan || mods.xorsign_abs)) {
        return Err(form.unsupported());
    }
    if form.inst.operands.len() < 4 {
        return binary(cx, form, op, ty, mods);
    }
    // Three inputs.
    if ty != Type::F32 || mods.xorsign_abs {
        return Err(form.unsupported());
    }
    let [dst, a, b, c] = form.operands()?;
    let (a, b, c) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?, cx.src(form, c, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    let inner = cx.new_reg(ty);
    cx.emit(Op::FloatBin { op, ty, mods, dst: inner, a, b });
    cx.emit(Op::FloatBin { op, ty, mods, dst, a: Operand::Reg(inner), b: c });
    Ok(())
}

fn un<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    op: FloatUnOp,
    ty: Type,
    mods: FloatMods,
) -> Done {
    let [dst, a] = form.operands()?;
    let a = cx.src(form, a, ty)?;
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::FloatUn { op, ty, mods, dst, a });
    Ok(())
}

pub(super) fn neg_abs<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let op = if form.inst.opcode == "neg" { FloatUnOp::Neg } else { FloatUnOp::Abs };
    let mods = FloatMods { ftz: form.flag("ftz"), ..FloatMods::DEFAULT };
    let ty = form.ty()?;
    check(form, ty, mods)?;
    if ty == Type::F32x2 {
        return Err(form.unsupported());
    }
    un(cx, form, op, ty, mods)
}

/// `rcp`, `sqrt` and the approximate functions.
pub(super) fn unary<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let approx = form.flag("approx");
    let round = form.round();
    let ftz = form.flag("ftz");
    let ty = form.ty()?;
    let mods = FloatMods { round: round.unwrap_or(Round::NearestEven), ftz, ..FloatMods::DEFAULT };
    // Each form has either `.approx` or a rounding.
    if approx == round.is_some() {
        return Err(form.unsupported());
    }
    let half = matches!(ty, Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2);
    let (op, defined) = match (form.inst.opcode, approx) {
        ("rcp", false) => (FloatUnOp::Rcp, ty == Type::F32 || (ty == Type::F64 && !ftz)),
        ("sqrt", false) => (FloatUnOp::Sqrt, ty == Type::F32 || (ty == Type::F64 && !ftz)),
        (_, false) => return Err(form.unsupported()),
        ("rcp", true) => (FloatUnOp::RcpApprox, ty == Type::F32 || (ty == Type::F64 && ftz)),
        ("sqrt", true) => (FloatUnOp::SqrtApprox, ty == Type::F32),
        ("rsqrt", true) => (FloatUnOp::RsqrtApprox, F32_F64.contains(&ty)),
        ("sin", true) => (FloatUnOp::SinApprox, ty == Type::F32),
        ("cos", true) => (FloatUnOp::CosApprox, ty == Type::F32),
        ("lg2", true) => (FloatUnOp::Lg2Approx, ty == Type::F32),
        // The bfloat forms always flush, those of f16 never.
        ("ex2", true) => (
            FloatUnOp::Ex2Approx,
            ty == Type::F32 || (half && ftz == matches!(ty, Type::BF16 | Type::BF16x2)),
        ),
        _ => (FloatUnOp::TanhApprox, !ftz && (ty == Type::F32 || half)),
    };
    if !defined {
        return Err(form.unsupported());
    }
    un(cx, form, op, ty, mods)
}

pub(super) fn copysign<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let ty = form.ty_in(F32_F64)?;
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Copysign { ty, dst, a, b });
    Ok(())
}

pub(super) fn testp<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let op = form.one_of(&[
        ("finite", TestpOp::Finite),
        ("infinite", TestpOp::Infinite),
        ("number", TestpOp::Number),
        ("notanumber", TestpOp::NotANumber),
        ("normal", TestpOp::Normal),
        ("subnormal", TestpOp::Subnormal),
    ])?;
    let ty = form.ty_in(F32_F64)?;
    let [dst, a] = form.operands()?;
    let a = cx.src(form, a, ty)?;
    let dst = cx.dst(form, dst, Type::Pred)?;
    cx.emit(Op::Testp { op, ty, dst, a });
    Ok(())
}
