//! Operations among the threads of a warp.

use super::form::Form;
use super::lower::Lower;
use super::operand::Fit;
use crate::error::ErrorKind;
use crate::ir::{Op, ReduxOp, ShflMode, VoteMode};
use crate::types::Type;

type Done = Result<(), ErrorKind>;

pub(super) fn shfl<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let sync = form.flag("sync");
    let mode = form.one_of(&[
        ("up", ShflMode::Up),
        ("down", ShflMode::Down),
        ("bfly", ShflMode::Bfly),
        ("idx", ShflMode::Idx),
    ])?;
    form.ty_in(&[Type::B32])?;
    let count = if sync { 5 } else { 4 };
    let operands = form.operands_between(count, count)?;
    let a = cx.src_moved(form, &operands[1], Type::B32)?;
    let (b, c) = (cx.src(form, &operands[2], Type::B32)?, cx.src(form, &operands[3], Type::B32)?);
    let mask = match operands.get(4) {
        Some(mask) => Some(cx.src(form, mask, Type::B32)?),
        None => None,
    };
    let (dst, pred) = match &operands[0] {
        crate::ast::Operand::Pair(dst, pred) => (
            cx.dst_or_sink(form, dst, Type::B32, Fit::SameWidth)?,
            cx.dst_or_sink(form, pred, Type::Pred, Fit::SameWidth)?,
        ),
        dst => (cx.dst_or_sink(form, dst, Type::B32, Fit::SameWidth)?, None),
    };
    cx.emit(Op::Shfl { mode, dst, pred, a, b, c, mask });
    Ok(())
}

pub(super) fn vote<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let sync = form.flag("sync");
    let mode = form.one_of(&[
        ("all", VoteMode::All),
        ("any", VoteMode::Any),
        ("uni", VoteMode::Uni),
        ("ballot", VoteMode::Ballot),
    ])?;
    let result = if mode == VoteMode::Ballot { Type::B32 } else { Type::Pred };
    form.ty_in(&[result])?;
    let count = if sync { 3 } else { 2 };
    let operands = form.operands_between(count, count)?;
    let pred = cx.pred(form, &operands[1])?;
    let mask = match operands.get(2) {
        Some(mask) => Some(cx.src(form, mask, Type::B32)?),
        None => None,
    };
    let dst = cx.dst(form, &operands[0], result)?;
    cx.emit(Op::Vote { mode, dst, pred, mask });
    Ok(())
}

/// `match.any` and `match.all`.
pub(super) fn matching<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let all = form.one_of(&[("any", false), ("all", true)])?;
    if !form.flag("sync") {
        return Err(form.unsupported());
    }
    let ty = form.ty_in(&[Type::B32, Type::B64])?;
    let [dst, a, mask] = form.operands()?;
    let a = cx.src_moved(form, a, ty)?;
    let mask = cx.src(form, mask, Type::B32)?;
    if all {
        let (dst, pred) = cx.dst_and_pred(form, dst, Type::B32)?;
        cx.emit(Op::MatchAll { ty, dst, pred, a, mask });
    } else {
        let dst = cx.dst(form, dst, Type::B32)?;
        cx.emit(Op::MatchAny { ty, dst, a, mask });
    }
    Ok(())
}

pub(super) fn activemask<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    form.ty_in(&[Type::B32])?;
    let [dst] = form.operands()?;
    let dst = cx.dst(form, dst, Type::B32)?;
    cx.emit(Op::ActiveMask { dst });
    Ok(())
}

pub(super) fn redux<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if !form.flag("sync") {
        return Err(form.unsupported());
    }
    let op = form.one_of(&[
        ("add", ReduxOp::Add),
        ("min", ReduxOp::Min),
        ("max", ReduxOp::Max),
        ("and", ReduxOp::And),
        ("or", ReduxOp::Or),
        ("xor", ReduxOp::Xor),
    ])?;
    let (abs, nan) = (form.flag("abs"), form.flag("NaN"));
    let ty = form.ty()?;
    let valid = match (op, ty) {
        (ReduxOp::Add, Type::U32 | Type::S32) => !abs && !nan,
        (ReduxOp::Min | ReduxOp::Max, Type::U32 | Type::S32) => !abs && !nan,
        (ReduxOp::Min | ReduxOp::Max, Type::F32) => true,
        (ReduxOp::And | ReduxOp::Or | ReduxOp::Xor, Type::B32) => !abs && !nan,
        _ => false,
    };
    if !valid {
        return Err(form.unsupported());
    }
    let [dst, a, mask] = form.operands()?;
    let a = cx.src(form, a, ty)?;
    let mask = cx.src(form, mask, Type::B32)?;
    let dst = cx.dst(form, dst, ty)?;
    cx.emit(Op::Redux { op, ty, abs, nan, dst, a, mask });
    Ok(())
}

pub(super) fn elect<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if !form.flag("sync") {
        return Err(form.unsupported());
    }
    let [dst, mask] = form.operands()?;
    let mask = cx.src(form, mask, Type::B32)?;
    let (dst, Some(pred)) = cx.dst_and_pred(form, dst, Type::B32)? else {
        return Err(form.operands_error("a pair 'register|predicate' is expected"));
    };
    cx.emit(Op::Elect { dst, pred, mask });
    Ok(())
}
