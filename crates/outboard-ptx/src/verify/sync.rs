//! Barriers of blocks, memory barriers, `mbarrier`, and instructions that need no action on this
//! device.

use super::form::Form;
use super::lower::Lower;
use crate::ast;
use crate::error::ErrorKind;
use crate::ir::{Address, BarOp, BarRed, Base, MbarrierOp, Op, Operand, Scope};
use crate::types::{Space, Type};

type Done = Result<(), ErrorKind>;

/// `bar`, `barrier`, `barrier.cluster` and `bar.warp.sync`.
pub(super) fn bar<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if form.flag("warp") {
        if !form.flag("sync") {
            return Err(form.unsupported());
        }
        let [mask] = form.operands()?;
        let mask = cx.src(form, mask, Type::B32)?;
        cx.emit(Op::WarpSync { mask });
        return Ok(());
    }
    form.flag("aligned");
    if form.flag("cluster") {
        for order in ["release", "acquire", "relaxed"] {
            form.flag(order);
        }
        let op = form.one_of(&[("arrive", true), ("wait", false)])?;
        let [] = form.operands()?;
        cx.emit(if op { Op::ClusterArrive } else { Op::ClusterWait });
        return Ok(());
    }
    form.flag("cta");
    if form.flag("sync") {
        let operands = form.operands_between(1, 2)?;
        let (id, threads) = barrier_operands(cx, form, operands)?;
        cx.emit(Op::Bar { op: BarOp::Sync, id, threads });
        return Ok(());
    }
    if form.flag("arrive") {
        let operands = form.operands_between(2, 2)?;
        let (id, threads) = barrier_operands(cx, form, operands)?;
        cx.emit(Op::Bar { op: BarOp::Arrive, id, threads });
        return Ok(());
    }
    if !form.flag("red") {
        return Err(form.unsupported());
    }
    let op = form.one_of(&[("and", BarRed::And), ("or", BarRed::Or), ("popc", BarRed::Popc)])?;
    let result = if op == BarRed::Popc { Type::U32 } else { Type::Pred };
    form.ty_in(&[result])?;
    let operands = form.operands_between(3, 4)?;
    let last = operands.len() - 1;
    let (id, threads) = barrier_operands(cx, form, &operands[1..last])?;
    let pred = cx.pred(form, &operands[last])?;
    let dst = cx.dst(form, &operands[0], result)?;
    cx.emit(Op::Bar { op: BarOp::Red { op, dst, pred }, id, threads });
    Ok(())
}

fn barrier_operands<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    operands: &[ast::Operand<'s>],
) -> Result<(Operand, Option<Operand>), ErrorKind> {
    let id = cx.src(form, &operands[0], Type::U32)?;
    if matches!(id, Operand::Imm(id) if id > 15) {
        return Err(form.operands_error("a block has the barriers 0 to 15"));
    }
    let threads = match operands.get(1) {
        Some(threads) => Some(cx.src(form, threads, Type::U32)?),
        None => None,
    };
    Ok((id, threads))
}

/// `membar` and `fence`, proxies included: all memory is seen the same way by all accesses here.
pub(super) fn fence<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let legacy = form.choice(&[("cta", Scope::Cta), ("gl", Scope::Gpu), ("sys", Scope::Sys)]);
    if form.inst.opcode == "membar" && legacy.is_some() {
        let [] = form.operands()?;
        return emit_fence(cx, true, legacy.unwrap_or(Scope::Sys));
    }
    if form.flag("proxy") {
        let kinds =
            ["alias", "async", "async.global", "async.shared::cta", "generic", "async::generic"];
        for kind in kinds {
            form.flag(kind);
        }
        for order in
            ["acquire", "release", "sync_restrict::shared::cta", "sync_restrict::shared::cluster"]
        {
            form.flag(order);
        }
        form.space();
        form.scope();
        let [] = form.operands()?;
        return emit_fence(cx, false, Scope::Sys);
    }
    let sc = form.flag("sc");
    for order in ["acq_rel", "acquire", "release", "mbarrier_init"] {
        form.flag(order);
    }
    for restrict in ["sync_restrict::shared::cta", "sync_restrict::shared::cluster"] {
        form.flag(restrict);
    }
    let scope = legacy.or_else(|| form.scope()).ok_or_else(|| form.unsupported())?;
    let [] = form.operands()?;
    emit_fence(cx, sc, scope)
}

fn emit_fence(cx: &mut Lower<'_, '_>, sc: bool, scope: Scope) -> Done {
    cx.emit(Op::Fence { sc, scope });
    Ok(())
}

/// Hints to the hardware, valid and without effect.
pub(super) fn nothing<'s>(_: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let known: &[&str] = match form.inst.opcode {
        "griddepcontrol" => &["wait", "launch_dependents"],
        "setmaxnreg" => &["inc", "dec", "sync", "aligned", "u32"],
        _ => &["mask"],
    };
    if form.inst.mods.iter().all(|modifier| known.contains(modifier)) {
        Ok(())
    } else {
        Err(form.unsupported())
    }
}

pub(super) fn nanosleep<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    form.ty_in(&[Type::U32])?;
    let [ns] = form.operands()?;
    let ns = cx.src(form, ns, Type::U32)?;
    cx.emit(Op::NanoSleep { ns });
    Ok(())
}

pub(super) fn mbarrier<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let action = form.one_of(&[
        ("init", "init"),
        ("inval", "inval"),
        ("arrive", "arrive"),
        ("arrive_drop", "arrive_drop"),
        ("expect_tx", "expect_tx"),
        ("complete_tx", "complete_tx"),
        ("test_wait", "test_wait"),
        ("try_wait", "try_wait"),
        ("pending_count", "pending_count"),
    ])?;
    form.order();
    form.scope();
    let space = form.space();
    // `arrive.expect_tx` raises the transaction count and arrives.
    let with_tx = action.starts_with("arrive") && form.flag("expect_tx");
    form.flag("noComplete");
    let parity = form.flag("parity");
    form.ty_in(&[Type::B64])?;
    let emit = |cx: &mut Lower<'_, 's>, op, addr: &ast::Operand<'s>, form: &Form<'_, 's>| {
        let (space, addr) = cx.addr(form, addr, space)?;
        cx.emit(Op::Mbarrier { op, space, addr });
        Ok(())
    };
    match action {
        "init" => {
            let [addr, count] = form.operands()?;
            let count = cx.src(form, count, Type::U32)?;
            emit(cx, MbarrierOp::Init { count }, addr, form)
        }
        "inval" => {
            let [addr] = form.operands()?;
            emit(cx, MbarrierOp::Inval, addr, form)
        }
        "expect_tx" | "complete_tx" => {
            let [addr, count] = form.operands()?;
            let count = cx.src(form, count, Type::U32)?;
            let expect = action == "expect_tx";
            let op = if expect {
                MbarrierOp::ExpectTx { count }
            } else {
                MbarrierOp::CompleteTx { count }
            };
            emit(cx, op, addr, form)
        }
        "arrive" | "arrive_drop" => {
            let operands = form.operands_between(1, 3)?;
            // The state may be left out altogether.
            let (state, rest) = match &operands[0] {
                ast::Operand::Address { .. } => (None, operands),
                ast::Operand::Sink => (None, &operands[1..]),
                state => (Some(cx.dst_moved(form, state, Type::B64)?), &operands[1..]),
            };
            let Some(addr) = rest.first() else {
                return Err(form.operands_error("an address is expected"));
            };
            let value = match rest.get(1) {
                Some(value) => Some(cx.src(form, value, Type::U32)?),
                None => None,
            };
            let one = Operand::Imm(1);
            let (count, expect_tx) = match (with_tx, value) {
                (true, Some(_)) => (one, value),
                (true, None) => return Err(form.operands_error("a transaction count is expected")),
                (false, count) => (count.unwrap_or(one), None),
            };
            let drop = action == "arrive_drop";
            emit(cx, MbarrierOp::Arrive { state, count, drop, expect_tx }, addr, form)
        }
        "pending_count" => {
            let [dst, state] = form.operands()?;
            let state = cx.src_moved(form, state, Type::B64)?;
            let dst = cx.dst(form, dst, Type::U32)?;
            let addr = Address { base: Base::None, offset: 0 };
            cx.emit(Op::Mbarrier {
                op: MbarrierOp::PendingCount { dst, state },
                space: Space::Shared,
                addr,
            });
            Ok(())
        }
        _ => {
            let wait = action == "try_wait";
            // The last operand of `try_wait` may bound the time in nanoseconds.
            let operands = form.operands_between(3, if wait { 4 } else { 3 })?;
            if let Some(limit) = operands.get(3) {
                cx.src(form, limit, Type::U32)?;
            }
            let dst = cx.dst(form, &operands[0], Type::Pred)?;
            let op = if parity {
                MbarrierOp::TestParity { dst, parity: cx.src(form, &operands[2], Type::U32)?, wait }
            } else {
                MbarrierOp::Test { dst, state: cx.src_moved(form, &operands[2], Type::B64)?, wait }
            };
            emit(cx, op, &operands[1], form)
        }
    }
}
