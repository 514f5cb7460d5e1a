//! Comparison and selection.

use super::form::Form;
use super::lower::Lower;
use crate::ast;
use crate::error::ErrorKind;
use crate::ir::{BoolOp, CmpOp, Op, PredOperand};
use crate::types::Type;

type Done = Result<(), ErrorKind>;

fn bool_op(form: &mut Form<'_, '_>) -> Option<BoolOp> {
    form.choice(&[("and", BoolOp::And), ("or", BoolOp::Or), ("xor", BoolOp::Xor)])
}

/// Whether `cmp` is defined on `ty`.
fn comparable(cmp: CmpOp, ty: Type) -> bool {
    match ty {
        Type::B16 | Type::B32 | Type::B64 => matches!(cmp, CmpOp::Eq | CmpOp::Ne),
        Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2 | Type::F32 | Type::F64 => true,
        Type::U16 | Type::U32 | Type::U64 | Type::S16 | Type::S32 | Type::S64 => {
            matches!(cmp, CmpOp::Eq | CmpOp::Ne | CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge)
        }
        _ => false,
    }
}

/// The operands behind the destination: `a`, `b` and, with a boolean operator, `c`.
type Compared = (crate::ir::Operand, crate::ir::Operand, Option<(BoolOp, PredOperand)>);

fn compared<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    combine: Option<BoolOp>,
    ty: Type,
) -> Result<Compared, ErrorKind> {
    let count = if combine.is_some() { 4 } else { 3 };
    let operands = form.operands_between(count, count)?;
    let (a, b) = (cx.src(form, &operands[1], ty)?, cx.src(form, &operands[2], ty)?);
    let combine = match combine {
        Some(op) => Some((op, cx.pred(form, &operands[3])?)),
        None => None,
    };
    Ok((a, b, combine))
}

pub(super) fn setp<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let unsigned_only = ["lo", "ls", "hi", "hs"].iter().any(|name| form.has(name));
    let cmp = form.cmp()?;
    let combine = bool_op(form);
    let ftz = form.flag("ftz");
    let ty = form.ty()?;
    if !comparable(cmp, ty)
        || (unsigned_only && !matches!(ty, Type::U16 | Type::U32 | Type::U64))
        || (ftz && !matches!(ty, Type::F32 | Type::F16 | Type::F16x2))
    {
        return Err(form.unsupported());
    }
    let (a, b, combine) = compared(cx, form, combine, ty)?;
    let (p, q) = cx.dst_and_pred(form, &form.inst.operands[0], Type::Pred)?;
    cx.emit(Op::Setp { cmp, ty, ftz, combine, p, q, a, b });
    Ok(())
}

pub(super) fn set<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let unsigned_only = ["lo", "ls", "hi", "hs"].iter().any(|name| form.has(name));
    let cmp = form.cmp()?;
    let combine = bool_op(form);
    let ftz = form.flag("ftz");
    let (dst_ty, ty) = (form.ty()?, form.ty()?);
    let packed = matches!(ty, Type::F16x2 | Type::BF16x2);
    let result = match dst_ty {
        Type::U32 | Type::S32 | Type::F32 => !packed || dst_ty != Type::F32,
        Type::F16 | Type::BF16 => !packed,
        Type::U16 | Type::S16 => matches!(ty, Type::F16 | Type::BF16),
        Type::F16x2 | Type::BF16x2 => ty == dst_ty,
        _ => false,
    };
    if !comparable(cmp, ty)
        || (unsigned_only && !matches!(ty, Type::U16 | Type::U32 | Type::U64))
        || !result
        || (ftz && !matches!(ty, Type::F32 | Type::F16 | Type::F16x2))
    {
        return Err(form.unsupported());
    }
    let (a, b, combine) = compared(cx, form, combine, ty)?;
    let dst = cx.dst(form, &form.inst.operands[0], dst_ty)?;
    cx.emit(Op::Set { cmp, dst_ty, ty, ftz, combine, dst, a, b });
    Ok(())
}

/// Types that selection moves.
const SELECTABLE: &[Type] = &[
    Type::B16,
    Type::B32,
    Type::B64,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F32,
    Type::F64,
];

pub(super) fn selp<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let ty = form.ty_in(SELECTABLE)?;
    let [dst, a, b, p] = form.operands()?;
    if matches!(p, ast::Operand::Not { .. }) {
        return Err(form.operands_error("the selecting predicate cannot be negated"));
    }
    let (a, b) = (cx.src_moved(form, a, ty)?, cx.src_moved(form, b, ty)?);
    let pred = cx.pred(form, p)?;
    let dst = cx.dst_moved(form, dst, ty)?;
    cx.emit(Op::Selp { ty, dst, a, b, pred });
    Ok(())
}

pub(super) fn slct<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let ftz = form.flag("ftz");
    let ty = form.ty_in(SELECTABLE)?;
    let cmp_ty = form.ty_in(&[Type::S32, Type::F32])?;
    if ftz && cmp_ty != Type::F32 {
        return Err(form.unsupported());
    }
    let [dst, a, b, c] = form.operands()?;
    let (a, b) = (cx.src_moved(form, a, ty)?, cx.src_moved(form, b, ty)?);
    let c = cx.src(form, c, cmp_ty)?;
    let dst = cx.dst_moved(form, dst, ty)?;
    cx.emit(Op::Slct { ty, cmp_ty, ftz, dst, a, b, c });
    Ok(())
}
