//! Barriers, warp operations, and letting others run.

use crate::exec::block::SPIN_TURNS;
use crate::exec::context::ThreadContext;
use crate::exec::mbarrier::Mbarrier;
use crate::exec::warp::Collective;
use outboard_ptx::Type;
use outboard_ptx::ir::{ReduxOp, ShflMode, VoteMode};

/// Ways to take part in a barrier, as compiled code passes them.
pub(crate) const BAR_SYNC: u32 = 0;
pub(crate) const BAR_ARRIVE: u32 = 1;
pub(crate) const BAR_AND: u32 = 2;
pub(crate) const BAR_OR: u32 = 3;
pub(crate) const BAR_POPC: u32 = 4;

/// `bar`: `count` threads (0: all), for reductions a predicate. The reduction's value comes back in
/// the context.
pub(crate) unsafe extern "C" fn bar(
    thread: *const ThreadContext,
    kind: u32,
    id: u32,
    count: u32,
    pred: u32,
) -> u32 {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    let reduces = kind >= BAR_AND;
    let (trues, all) =
        thread.state().barrier(thread, id, count, kind != BAR_ARRIVE, reduces.then_some(pred != 0));
    match kind {
        BAR_AND => u32::from(trues == all),
        BAR_OR => u32::from(trues != 0),
        _ => trues,
    }
}

/// Kinds of warp operations, as compiled code passes them. Operands follow in the higher bits.
pub(crate) fn encode(what: Collective) -> u32 {
    match what {
        Collective::Sync => 0,
        Collective::Shfl { mode, .. } => 1 | (mode as u32) << 8,
        Collective::Vote(mode) => 2 | (mode as u32) << 8,
        Collective::MatchAny => 3,
        Collective::MatchAll => 4,
        Collective::Redux { op, ty, abs, nan } => {
            let class = match ty {
                Type::F32 => 2,
                ty if ty.is_signed() => 1,
                _ => 0,
            };
            5 | (op as u32) << 8 | class << 16 | u32::from(abs) << 20 | u32::from(nan) << 21
        }
        Collective::ActiveMask => 6,
        Collective::Elect => 7,
    }
}

fn decode(code: u32, b: u32, c: u32) -> Collective {
    let sub = code >> 8 & 0xff;
    match code & 0xff {
        1 => {
            let mode =
                [ShflMode::Up, ShflMode::Down, ShflMode::Bfly, ShflMode::Idx][sub as usize & 3];
            Collective::Shfl { mode, b, c }
        }
        2 => Collective::Vote(
            [VoteMode::All, VoteMode::Any, VoteMode::Uni, VoteMode::Ballot][sub as usize & 3],
        ),
        3 => Collective::MatchAny,
        4 => Collective::MatchAll,
        5 => {
            let ops =
                [ReduxOp::Add, ReduxOp::Min, ReduxOp::Max, ReduxOp::And, ReduxOp::Or, ReduxOp::Xor];
            let ty = [Type::U32, Type::S32, Type::F32, Type::U32][(code >> 16 & 3) as usize];
            Collective::Redux {
                op: ops[sub as usize % 6],
                ty,
                abs: code >> 20 & 1 != 0,
                nan: code >> 21 & 1 != 0,
            }
        }
        6 => Collective::ActiveMask,
        7 => Collective::Elect,
        _ => Collective::Sync,
    }
}

/// A warp operation of the members of `mask`. The predicate comes back in the context.
pub(crate) unsafe extern "C" fn collective(
    thread: *const ThreadContext,
    code: u32,
    mask: u32,
    value: u64,
    b: u32,
    c: u32,
) -> u64 {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    let (result, pred) = thread.state().collective(thread, mask, decode(code, b, c), value);
    thread.result_pred.set(pred.into());
    result
}

/// A warp operation of the converged threads; `site` is the instruction.
pub(crate) unsafe extern "C" fn quiet(
    thread: *const ThreadContext,
    code: u32,
    site: u64,
    value: u64,
    b: u32,
    c: u32,
) -> u64 {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    let (result, pred) = thread.state().quiet(thread, site, decode(code, b, c), value);
    thread.result_pred.set(pred.into());
    result
}

/// The thread's turns in spinning loops are used up, or it sleeps: lets others run.
pub(crate) unsafe extern "C" fn yield_turn(thread: *const ThreadContext) {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    thread.spin_budget.set(SPIN_TURNS);
    thread.state().yield_turn(thread);
}

/// The thread lets the lanes of its warp catch up; `position` grows along the code.
pub(crate) unsafe extern "C" fn step(thread: *const ThreadContext, position: u64) {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    if !thread.yielder.get().is_null() {
        thread.state().step(thread, position);
    }
}

/// Operations on barrier objects, as compiled code passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MbarrierCall {
    Init,
    Inval,
    Arrive,
    ArriveDrop,
    ArriveExpectTx,
    ArriveDropExpectTx,
    ExpectTx,
    CompleteTx,
    Test,
    TestParity,
    Raise,
}

/// An operation on the barrier object at `ptr`, which compiled code has checked. Arrivals give the
/// state before them.
pub(crate) unsafe extern "C" fn mbarrier(
    thread: *const ThreadContext,
    call: u32,
    ptr: u64,
    a: u64,
    tx: u32,
) -> u64 {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    let word = ptr as *mut u64;
    // SAFETY: the address was checked for eight aligned bytes, in the shared memory of the block,
    // which only this OS thread runs.
    let read = || Mbarrier(unsafe { word.read() });
    // SAFETY: as for the read.
    let write = |value: Mbarrier| unsafe { word.write(value.0) };
    let old = read();
    let count = a as u32;
    match call {
        c if c == MbarrierCall::Init as u32 => write(Mbarrier::new(count)),
        c if c == MbarrierCall::Inval as u32 => write(Mbarrier(0)),
        c if c == MbarrierCall::Arrive as u32 => write(old.arrive(count, false)),
        c if c == MbarrierCall::ArriveDrop as u32 => write(old.arrive(count, true)),
        c if c == MbarrierCall::ArriveExpectTx as u32 => {
            write(old.expect_tx(tx).arrive(count, false))
        }
        c if c == MbarrierCall::ArriveDropExpectTx as u32 => {
            write(old.expect_tx(tx).arrive(count, true))
        }
        c if c == MbarrierCall::ExpectTx as u32 => write(old.expect_tx(count)),
        c if c == MbarrierCall::CompleteTx as u32 => write(old.complete_tx(count)),
        c if c == MbarrierCall::Raise as u32 => write(old.raise()),
        _ => {
            let parity =
                if call == MbarrierCall::Test as u32 { Mbarrier(a).parity() } else { a & 1 };
            if old.parity() != parity {
                return 1;
            }
            // Whoever tests in vain tests again, so this is where the others get their turn.
            thread.state().yield_turn(thread);
            return (read().parity() != parity).into();
        }
    }
    old.0
}

/// The pending count in a state token.
pub(crate) extern "C" fn mbarrier_pending(state: u64) -> u32 {
    Mbarrier(state).pending() as u32
}

/// `cp.async`: copies `bytes` to `dst`, the first `source_bytes` of them from `src` and zeros
/// behind. `dst` has been checked, `src` only for `bytes`, which compiled code does when it reads
/// at all.
pub(crate) unsafe extern "C" fn copy_async(dst: u64, src: u64, bytes: u32, source_bytes: u32) {
    let source_bytes = source_bytes.min(bytes) as usize;
    let mut block = [0u8; 16];
    // SAFETY: both ranges have been checked by compiled code for `bytes`, which is at most 16.
    unsafe {
        std::ptr::copy_nonoverlapping(src as *const u8, block.as_mut_ptr(), source_bytes);
        std::ptr::copy_nonoverlapping(block.as_ptr(), dst as *mut u8, (bytes as usize).min(16));
    }
}

/// Nanoseconds since an arbitrary start.
pub(crate) extern "C" fn global_timer() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64)
}

/// A counter of cycles: nanoseconds of a clock that only goes forward, as of a device that runs at
/// 1 GHz.
pub(crate) extern "C" fn clock() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
