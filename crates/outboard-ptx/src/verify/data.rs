//! Moves and conversions.

use super::form::Form;
use super::lower::Lower;
use super::operand::Fit;
use crate::ast;
use crate::error::ErrorKind;
use crate::ir::{Op, Operand, Round};
use crate::types::{Space, Type};

type Done = Result<(), ErrorKind>;

const MOVABLE: &[Type] = &[
    Type::Pred,
    Type::B16,
    Type::B32,
    Type::B64,
    Type::B128,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F32,
    Type::F64,
    Type::F16,
    Type::F16x2,
    Type::BF16,
    Type::BF16x2,
];

pub(super) fn mov<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let ty = form.ty_in(MOVABLE)?;
    let [dst, src] = form.operands()?;
    match (dst, src) {
        (ast::Operand::Vector(_), ast::Operand::Vector(_)) => {
            Err(form.operands_error("a vector cannot be moved to a vector"))
        }
        (ast::Operand::Vector(parts), whole) => {
            let part_ty = part_type(form, ty, parts.len())?;
            let mut regs = Vec::with_capacity(parts.len());
            for part in parts {
                regs.push(cx.dst_or_sink(form, part, part_ty, Fit::SameWidth)?);
            }
            let a = cx.src_moved(form, whole, ty)?;
            cx.emit(Op::Unpack { ty, parts: regs, a });
            Ok(())
        }
        (whole, ast::Operand::Vector(parts)) => {
            let part_ty = part_type(form, ty, parts.len())?;
            let mut sources = Vec::with_capacity(parts.len());
            for part in parts {
                sources.push(cx.src_moved(form, part, part_ty)?);
            }
            let dst = cx.dst_moved(form, whole, ty)?;
            cx.emit(Op::Pack { ty, dst, parts: sources });
            Ok(())
        }
        (dst, src) => {
            let a = cx.src_moved(form, src, ty)?;
            let dst = cx.dst_moved(form, dst, ty)?;
            cx.emit(Op::Mov { ty, dst, a });
            Ok(())
        }
    }
}

/// The type of each of `count` equal parts of `ty`.
fn part_type(form: &Form<'_, '_>, ty: Type, count: usize) -> Result<Type, ErrorKind> {
    let part = match (ty.size(), count) {
        (16, 2) => Type::B64,
        (16, 4) | (8, 2) => Type::B32,
        (8, 4) | (4, 2) => Type::B16,
        (8, 8) | (4, 4) | (2, 2) => Type::B8,
        _ => return Err(form.operands_error(format!("type {ty} has no {count} parts"))),
    };
    if ty == Type::Pred { Err(form.unsupported()) } else { Ok(part) }
}

/// Number formats that `cvt` knows, besides integers.
fn is_scalar_float(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::BF16 | Type::F32 | Type::F64)
}

pub(super) fn cvt<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if form.flag("pack") {
        return cvt_pack(cx, form);
    }
    let int_round = form.int_round();
    let round = form.round();
    let (ftz, sat, relu) = (form.flag("ftz"), form.flag("sat"), form.flag("relu"));
    let satfinite = form.flag("satfinite");
    let (dst_ty, src_ty) = (form.ty()?, form.ty()?);
    let packed_dst = matches!(dst_ty, Type::F16x2 | Type::BF16x2 | Type::E4m3x2 | Type::E5m2x2);
    if src_ty == Type::F32 && packed_dst {
        return cvt_pair(cx, form, dst_ty, round, satfinite, relu);
    }
    let int = |ty: Type| ty.is_integer();
    let plain = !relu && !satfinite;
    // `.ftz` belongs to f32 on either side.
    let ftz_fits = !ftz || src_ty == Type::F32 || dst_ty == Type::F32;
    let directed = round.is_some_and(|round| round != Round::NearestAway);
    let valid = if int(dst_ty) && int(src_ty) {
        round.is_none() && int_round.is_none() && !ftz && plain
    } else if int(dst_ty) && is_scalar_float(src_ty) {
        int_round.is_some() && round.is_none() && plain && ftz_fits
    } else if is_scalar_float(dst_ty) && int(src_ty) {
        directed && int_round.is_none() && plain && ftz_fits
    } else if is_scalar_float(dst_ty) && is_scalar_float(src_ty) {
        let halves = dst_ty.size() == 2 && src_ty.size() == 2;
        let rounding = match (round, int_round) {
            (Some(_), Some(_)) => false,
            // From bf16 a rounding may be given although the conversion is exact.
            (Some(_), None) => {
                directed
                    && dst_ty != src_ty
                    && (dst_ty.size() <= src_ty.size() || src_ty == Type::BF16)
            }
            (None, Some(_)) => dst_ty == src_ty,
            (None, None) => dst_ty.size() >= src_ty.size() || halves,
        };
        rounding
            && ftz_fits
            && (plain || (dst_ty.size() == 2 && src_ty == Type::F32 && round.is_some()))
    } else {
        match (dst_ty, src_ty) {
            (Type::Tf32, Type::F32) => {
                matches!(round, Some(Round::NearestAway | Round::NearestEven | Round::Zero))
                    && int_round.is_none()
            }
            (Type::E4m3x2 | Type::E5m2x2, Type::F16x2) => {
                round == Some(Round::NearestEven) && satfinite
            }
            (Type::F16x2, Type::E4m3x2 | Type::E5m2x2) => {
                round == Some(Round::NearestEven) && !satfinite
            }
            _ => false,
        }
    };
    let saturates = int(dst_ty) || (is_scalar_float(dst_ty) && dst_ty != Type::BF16);
    if !valid || (sat && !saturates) {
        return Err(form.unsupported());
    }
    let [dst, a] = form.operands()?;
    // Between the 16-bit formats the rounding may be left out.
    let halves = is_scalar_float(dst_ty)
        && is_scalar_float(src_ty)
        && dst_ty.size() == 2
        && src_ty.size() == 2;
    let round = if halves && dst_ty != src_ty { round.or(Some(Round::NearestEven)) } else { round };
    let fit_of = |ty: Type| if int(ty) { Fit::Wider } else { Fit::SameWidth };
    let a = cx.src_fit(form, a, src_ty, fit_of(src_ty))?;
    let dst = cx.dst_fit(form, dst, dst_ty, fit_of(dst_ty))?;
    cx.emit(Op::Cvt { dst_ty, src_ty, round, int_round, ftz, sat, satfinite, relu, dst, a });
    Ok(())
}

/// Two f32 values into the lanes of a packed type.
fn cvt_pair<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    dst_ty: Type,
    round: Option<Round>,
    satfinite: bool,
    relu: bool,
) -> Done {
    let small = matches!(dst_ty, Type::E4m3x2 | Type::E5m2x2);
    let round = match round {
        Some(round @ Round::NearestEven) => round,
        Some(round @ Round::Zero) if !small => round,
        _ => return Err(form.unsupported()),
    };
    if small && !satfinite {
        return Err(form.unsupported());
    }
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, Type::F32)?, cx.src(form, b, Type::F32)?);
    let dst = cx.dst_moved(form, dst, dst_ty)?;
    cx.emit(Op::CvtPair { dst_ty, round, satfinite, relu, dst, a, b });
    Ok(())
}

/// `cvt.pack.sat.u8.s32.b32` and the 16-bit forms.
fn cvt_pack<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if !form.flag("sat") {
        return Err(form.unsupported());
    }
    let dst_ty = form.ty_in(&[Type::U16, Type::S16, Type::U8, Type::S8])?;
    let src_ty = form.ty_in(&[Type::S32])?;
    let three = form.maybe_ty().map(|ty| ty == Type::B32);
    match three {
        None if dst_ty.size() == 2 => {
            let [dst, a, b] = form.operands()?;
            let (a, b) = (cx.src(form, a, src_ty)?, cx.src(form, b, src_ty)?);
            let dst = cx.dst(form, dst, Type::B32)?;
            cx.emit(Op::CvtPack { dst_ty, src_ty, dst, a, b, c: None });
            Ok(())
        }
        Some(true) if dst_ty.size() == 1 => {
            let [dst, a, b, c] = form.operands()?;
            let (a, b) = (cx.src(form, a, src_ty)?, cx.src(form, b, src_ty)?);
            let c = Some(cx.src(form, c, Type::B32)?);
            let dst = cx.dst(form, dst, Type::B32)?;
            cx.emit(Op::CvtPack { dst_ty, src_ty, dst, a, b, c });
            Ok(())
        }
        _ => Err(form.unsupported()),
    }
}

pub(super) fn cvta<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let to = form.flag("to");
    let space = form.space();
    let ty = form.ty_in(&[Type::U64, Type::U32])?;
    if space == Space::Generic {
        return Err(form.unsupported());
    }
    let [dst, a] = form.operands()?;
    let a = cx.src_moved(form, a, ty)?;
    let dst = cx.dst_moved(form, dst, ty)?;
    cx.emit(Op::Cvta { to, space, dst, a });
    Ok(())
}

pub(super) fn isspacep<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let space = form.space();
    if space == Space::Generic {
        return Err(form.unsupported());
    }
    let [dst, a] = form.operands()?;
    let a = cx.src_moved(form, a, Type::B64)?;
    let dst = cx.dst(form, dst, Type::Pred)?;
    cx.emit(Op::Isspacep { space, dst, a });
    Ok(())
}

/// The address of shared memory of another block in the cluster: the only block is this one.
pub(super) fn mapa<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    form.space();
    let ty = form.ty_in(&[Type::U32, Type::U64])?;
    let [dst, a, rank] = form.operands()?;
    let a = cx.src_moved(form, a, ty)?;
    cx.src(form, rank, Type::U32)?;
    let dst = cx.dst_moved(form, dst, ty)?;
    cx.emit(Op::Mov { ty, dst, a });
    Ok(())
}

pub(super) fn getctarank<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    form.space();
    let ty = form.ty_in(&[Type::U32, Type::U64])?;
    let [dst, a] = form.operands()?;
    cx.src_moved(form, a, ty)?;
    let dst = cx.dst(form, dst, Type::U32)?;
    cx.emit(Op::Mov { ty: Type::U32, dst, a: Operand::Imm(0) });
    Ok(())
}
