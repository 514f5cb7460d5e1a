//! Logic and bit manipulation.

use super::form::Form;
use super::int::{Done, SCALARS, U32_S32, WORDS, binary};
use super::lower::Lower;
use crate::error::ErrorKind;
use crate::ir::{BoolOp, IntBinOp, Op, Operand, PrmtMode, ShiftOp, WrapMode};
use crate::types::Type;

pub(super) fn logic<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let op = match form.inst.opcode {
        "and" => IntBinOp::And,
        "or" => IntBinOp::Or,
        _ => IntBinOp::Xor,
    };
    let ty = form.ty_in(&[Type::Pred, Type::B16, Type::B32, Type::B64])?;
    binary(cx, form, op, ty, false)
}

pub(super) fn shift<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let left = form.inst.opcode == "shl";
    let ty = form.ty()?;
    let untyped = matches!(ty, Type::B16 | Type::B32 | Type::B64);
    if !(untyped || (!left && SCALARS.contains(&ty))) {
        return Err(form.unsupported());
    }
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, Type::U32)?);
    let dst = cx.dst(form, dst, ty)?;
    let op = if left { ShiftOp::Shl } else { ShiftOp::Shr };
    cx.emit(Op::Shift { op, ty, dst, a, b });
    Ok(())
}

fn wrap_mode(form: &mut Form<'_, '_>) -> Result<WrapMode, ErrorKind> {
    form.one_of(&[("clamp", WrapMode::Clamp), ("wrap", WrapMode::Wrap)])
}

pub(super) fn funnel<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let left = form.one_of(&[("l", true), ("r", false)])?;
    let mode = wrap_mode(form)?;
    let ty = form.ty_in(&[Type::B32])?;
    let [dst, a, b, c] = form.operands()?;
    let (a, b, c) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?, cx.src(form, c, Type::U32)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Shf { left, mode, dst, a, b, c });
    Ok(())
}

pub(super) fn bfind<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let shiftamt = form.flag("shiftamt");
    let ty = form.ty_in(WORDS)?;
    let [dst, a] = form.operands()?;
    let a = cx.src(form, a, ty)?;
    let dst = cx.dst(form, dst, Type::U32)?;
    cx.emit(Op::Bfind { ty, shiftamt, dst, a });
    Ok(())
}

pub(super) fn fns<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    form.ty_in(&[Type::B32])?;
    let [dst, mask, base, offset] = form.operands()?;
    let mask = cx.src(form, mask, Type::B32)?;
    let (base, offset) = (cx.src(form, base, Type::U32)?, cx.src(form, offset, Type::S32)?);
    let dst = cx.dst(form, dst, Type::B32)?;
    cx.emit(Op::Fns { dst, mask, base, offset });
    Ok(())
}

pub(super) fn bfe<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let ty = form.ty_in(WORDS)?;
    let [dst, a, pos, len] = form.operands()?;
    let a = cx.src(form, a, ty)?;
    let (pos, len) = (cx.src(form, pos, Type::U32)?, cx.src(form, len, Type::U32)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Bfe { ty, dst, a, pos, len });
    Ok(())
}

pub(super) fn bfi<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let ty = form.ty_in(&[Type::B32, Type::B64])?;
    let [dst, a, b, pos, len] = form.operands()?;
    let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, ty)?);
    let (pos, len) = (cx.src(form, pos, Type::U32)?, cx.src(form, len, Type::U32)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Bfi { ty, dst, a, b, pos, len });
    Ok(())
}

pub(super) fn bmsk<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let mode = wrap_mode(form)?;
    form.ty_in(&[Type::B32])?;
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, Type::U32)?, cx.src(form, b, Type::U32)?);
    let dst = cx.dst(form, dst, Type::B32)?;
    cx.emit(Op::Bmsk { mode, dst, a, b });
    Ok(())
}

pub(super) fn szext<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let mode = wrap_mode(form)?;
    let ty = form.ty_in(U32_S32)?;
    let [dst, a, b] = form.operands()?;
    let (a, b) = (cx.src(form, a, ty)?, cx.src(form, b, Type::U32)?);
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Szext { mode, ty, dst, a, b });
    Ok(())
}

pub(super) fn prmt<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    form.ty_in(&[Type::B32])?;
    let mode = form
        .choice(&[
            ("f4e", PrmtMode::F4e),
            ("b4e", PrmtMode::B4e),
            ("rc8", PrmtMode::Rc8),
            ("ecl", PrmtMode::Ecl),
            ("ecr", PrmtMode::Ecr),
            ("rc16", PrmtMode::Rc16),
        ])
        .unwrap_or(PrmtMode::Generic);
    let [dst, a, b, c] = form.operands()?;
    let (a, b) = (cx.src(form, a, Type::B32)?, cx.src(form, b, Type::B32)?);
    let c = cx.src(form, c, Type::B32)?;
    let dst = cx.dst(form, dst, Type::B32)?;
    cx.emit(Op::Prmt { mode, dst, a, b, c });
    Ok(())
}

pub(super) fn lop3<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let combine = form.choice(&[("and", BoolOp::And), ("or", BoolOp::Or)]);
    let ty = form.ty_in(&[Type::B32])?;
    let operands = form.operands_between(5, 6)?;
    let (a, b) = (cx.src(form, &operands[1], ty)?, cx.src(form, &operands[2], ty)?);
    let c = cx.src(form, &operands[3], ty)?;
    let Operand::Imm(lut) = cx.src(form, &operands[4], Type::U32)? else {
        return Err(form.operands_error("the look-up table must be a constant"));
    };
    let (dst, p) = cx.dst_and_pred(form, &operands[0], ty)?;
    let pred = match (combine, p, operands.get(5)) {
        (None, None, None) => None,
        (Some(op), Some(p), Some(q)) => Some((p, op, cx.pred(form, q)?)),
        _ => {
            return Err(form.operands_error(
                "a predicate result needs '.and' or '.or' and a predicate operand",
            ));
        }
    };
    cx.emit(Op::Lop3 { lut: lut as u8, dst, a, b, c, pred });
    Ok(())
}
