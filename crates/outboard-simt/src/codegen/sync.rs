//! Barriers and warp operations: calls to the scheduler's side.

use crate::codegen::func::{FuncGen, Gen};
use crate::codegen::steps::{Atom, Gap};
use crate::codegen::types::int_of_size;
use crate::exec::context::{BlockContext, ThreadContext};
use crate::exec::warp::Collective;
use crate::rt::sync::{self, MbarrierCall};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use outboard_ptx::Space;
use outboard_ptx::ir::{Address, BarOp, BarRed, MbarrierOp, Op, Operand, Reg};
use std::mem::offset_of;

/// Operands of a warp operation.
struct Call {
    value: Value,
    b: Value,
    c: Value,
}

impl FuncGen<'_, '_> {
    pub(crate) fn sync(&mut self, op: &Op) -> Gen {
        match op {
            Op::Bar { op, id, threads } => {
                let id = self.value(id, I32);
                let count = match threads {
                    Some(threads) => self.value(threads, I32),
                    None => self.iconst(I32, 0),
                };
                let (kind, pred) = match op {
                    BarOp::Sync => (sync::BAR_SYNC, None),
                    BarOp::Arrive => (sync::BAR_ARRIVE, None),
                    BarOp::Red { op, pred, .. } => {
                        let kind = match op {
                            BarRed::And => sync::BAR_AND,
                            BarRed::Or => sync::BAR_OR,
                            BarRed::Popc => sync::BAR_POPC,
                        };
                        (kind, Some(pred))
                    }
                };
                let pred = match pred {
                    Some(pred) => self.pred(pred),
                    None => self.iconst(I8, 0),
                };
                let result = self.bar(kind, id, count, pred);
                if let BarOp::Red { dst, .. } = op {
                    let result =
                        if kind == sync::BAR_POPC { result } else { self.cast(result, I8) };
                    self.set(*dst, result);
                }
            }
            Op::ClusterWait => {
                let (id, count, pred) =
                    (self.iconst(I32, 0), self.iconst(I32, 0), self.iconst(I8, 0));
                self.bar(sync::BAR_SYNC, id, count, pred);
            }
            Op::WarpSync { mask } => {
                let call = self.operands(None);
                self.collective(Collective::Sync, Some(mask), &call);
            }
            Op::Shfl { mode, dst, pred, a, b, c, mask } => {
                let call = Call {
                    value: self.wide_value(a, 4),
                    b: self.value(b, I32),
                    c: self.value(c, I32),
                };
                let what = Collective::Shfl { mode: *mode, b: 0, c: 0 };
                let result = self.collective(what, mask.as_ref(), &call);
                if let Some(pred) = pred {
                    let in_range = self.result_pred();
                    self.set(*pred, in_range);
                }
                if let Some(dst) = dst {
                    let result = self.b.ins().ireduce(I32, result);
                    self.set(*dst, result);
                }
            }
            Op::Vote { mode, dst, pred, mask } => {
                let pred = self.pred(pred);
                let value = self.b.ins().uextend(I64, pred);
                let call = self.operands(Some(value));
                let result = self.collective(Collective::Vote(*mode), mask.as_ref(), &call);
                self.set(*dst, result);
            }
            Op::MatchAny { ty, dst, a, mask } => {
                let value = self.wide_value(a, ty.size());
                let call = self.operands(Some(value));
                let result = self.collective(Collective::MatchAny, Some(mask), &call);
                self.set(*dst, result);
            }
            Op::MatchAll { ty, dst, pred, a, mask } => {
                let value = self.wide_value(a, ty.size());
                let call = self.operands(Some(value));
                let result = self.collective(Collective::MatchAll, Some(mask), &call);
                if let Some(pred) = pred {
                    let all = self.result_pred();
                    self.set(*pred, all);
                }
                if let Some(dst) = dst {
                    self.set(*dst, result);
                }
            }
            Op::ActiveMask { dst } => {
                let call = self.operands(None);
                let result = self.collective(Collective::ActiveMask, None, &call);
                self.set(*dst, result);
            }
            Op::Redux { op, ty, abs, nan, dst, a, mask } => {
                let value = self.wide_value(a, 4);
                let call = self.operands(Some(value));
                let what = Collective::Redux { op: *op, ty: *ty, abs: *abs, nan: *nan };
                let result = self.collective(what, Some(mask), &call);
                self.set(*dst, result);
            }
            Op::Elect { dst, pred, mask } => {
                let call = self.operands(None);
                let result = self.collective(Collective::Elect, Some(mask), &call);
                let elected = self.result_pred();
                self.set(*pred, elected);
                if let Some(dst) = dst {
                    self.set(*dst, result);
                }
            }
            Op::NanoSleep { .. } => {
                let thread = self.at.thread;
                self.rt(sync::yield_turn as *const () as usize, None, &[thread]);
            }
            Op::Mbarrier { op, space, addr } => self.mbarrier(op, *space, addr)?,
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }

    /// Has the lanes of the warp step before an instruction, if they must there.
    pub(crate) fn step(&mut self, place: (u32, u32)) {
        let steps = self.steps;
        let Some(step) = steps.at.get(&place) else { return };
        let after = self.b.create_block();
        if step.across_rows {
            let across =
                self.load_uniform(I32, self.at.block, offset_of!(BlockContext, across_rows));
            self.go_on_if(across, after);
        }
        let near: Vec<Value> = step.gaps.iter().map(|gap| self.near(gap)).collect();
        if let Some(near) = near.into_iter().reduce(|a, b| self.b.ins().bor(a, b)) {
            self.go_on_if(near, after);
        }
        // Device functions first: who is in one is behind whoever is not, mostly.
        let position = u64::from(self.func.entry.is_some()) << 63
            | u64::from(place.0) << 28
            | u64::from(place.1);
        let (thread, position) = (self.at.thread, self.iconst(I64, position));
        self.rt(sync::step as *const () as usize, None, &[thread, position]);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
    }

    fn go_on_if(&mut self, condition: Value, otherwise: Block) {
        let then = self.b.create_block();
        self.b.ins().brif(condition, then, &[], otherwise, &[]);
        // Registers are kept for the way on.
        self.b.set_cold_block(then);
        self.b.switch_to_block(then);
    }

    /// Whether a sum is near zero, in a way that lets lanes touch the same memory.
    fn near(&mut self, gap: &Gap) -> Value {
        let mut sum = self.iconst(I64, gap.constant as u64);
        for &(atom, factor) in &gap.terms {
            let value = match atom {
                Atom::Reg(reg) => self.reg(Reg(reg)),
                _ => self.load_uniform(I32, self.at.block, offset_of!(BlockContext, ntid)),
            };
            let value = self.as_int(value);
            let wide = if self.b.func.dfg.value_type(value) == I32 {
                self.b.ins().sextend(I64, value)
            } else {
                self.cast(value, I64)
            };
            let times = self.b.ins().imul_imm_s(wide, factor);
            sum = self.b.ins().iadd(sum, times);
        }
        let shifted = self.b.ins().iadd_imm_s(sum, gap.far - 1);
        let range = self.iconst(I64, gap.far as u64 * 2 - 1);
        let near = self.b.ins().icmp(IntCC::UnsignedLessThan, shifted, range);
        if !gap.zero_is_own {
            return near;
        }
        let zero = self.iconst(I64, 0);
        let other = self.b.ins().icmp(IntCC::NotEqual, sum, zero);
        self.b.ins().band(near, other)
    }

    fn bar(&mut self, kind: u32, id: Value, count: Value, pred: Value) -> Value {
        let (kind, pred) = (self.iconst(I32, kind.into()), self.b.ins().uextend(I32, pred));
        let thread = self.at.thread;
        // Other threads have run: nothing is known about memory any more, and allocations may have
        // gone.
        self.checked.clear();
        self.rt_value(sync::bar as *const () as usize, I32, &[thread, kind, id, count, pred])
    }

    fn operands(&mut self, value: Option<Value>) -> Call {
        let zero = self.iconst(I32, 0);
        let value = match value {
            Some(value) => value,
            None => self.iconst(I64, 0),
        };
        Call { value, b: zero, c: zero }
    }

    fn wide_value(&mut self, operand: &Operand, size: u32) -> Value {
        let value = self.value(operand, int_of_size(size));
        self.cast(value, I64)
    }

    fn collective(&mut self, what: Collective, mask: Option<&Operand>, call: &Call) -> Value {
        let code = self.iconst(I32, sync::encode(what).into());
        let thread = self.at.thread;
        match mask {
            Some(mask) => {
                let mask = self.value(mask, I32);
                let args = [thread, code, mask, call.value, call.b, call.c];
                self.rt_value(sync::collective as *const () as usize, I64, &args)
            }
            None => {
                let site = self.site();
                let args = [thread, code, site, call.value, call.b, call.c];
                self.rt_value(sync::quiet as *const () as usize, I64, &args)
            }
        }
    }

    fn result_pred(&mut self) -> Value {
        let pred = self.load_context(I32, self.at.thread, offset_of!(ThreadContext, result_pred));
        self.b.ins().ireduce(I8, pred)
    }

    fn mbarrier(&mut self, op: &MbarrierOp, space: Space, addr: &Address) -> Gen {
        if let MbarrierOp::PendingCount { dst, state } = op {
            let state = self.value(state, I64);
            let count = self.rt_value(sync::mbarrier_pending as *const () as usize, I32, &[state]);
            self.set(*dst, count);
            return Ok(());
        }
        let ptr = self.access(space, addr, 8)?;
        let zero32 = self.iconst(I32, 0);
        let one = self.iconst(I64, 1);
        let (call, a, tx, dst) = match op {
            MbarrierOp::Init { count } => {
                (MbarrierCall::Init, self.wide_value(count, 4), zero32, None)
            }
            MbarrierOp::Inval => (MbarrierCall::Inval, one, zero32, None),
            MbarrierOp::Arrive { state, count, drop, expect_tx } => {
                let count = self.wide_value(count, 4);
                let (call, tx) = match (drop, expect_tx) {
                    (false, None) => (MbarrierCall::Arrive, zero32),
                    (true, None) => (MbarrierCall::ArriveDrop, zero32),
                    (false, Some(tx)) => (MbarrierCall::ArriveExpectTx, self.value(tx, I32)),
                    (true, Some(tx)) => (MbarrierCall::ArriveDropExpectTx, self.value(tx, I32)),
                };
                (call, count, tx, *state)
            }
            MbarrierOp::ExpectTx { count } => {
                (MbarrierCall::ExpectTx, self.wide_value(count, 4), zero32, None)
            }
            MbarrierOp::CompleteTx { count } => {
                (MbarrierCall::CompleteTx, self.wide_value(count, 4), zero32, None)
            }
            MbarrierOp::Test { dst, state, .. } => {
                (MbarrierCall::Test, self.value(state, I64), zero32, Some(*dst))
            }
            MbarrierOp::TestParity { dst, parity, .. } => {
                (MbarrierCall::TestParity, self.wide_value(parity, 4), zero32, Some(*dst))
            }
            MbarrierOp::CpAsyncArrive { noinc } => {
                // Copies are done when they are issued.
                if !noinc {
                    self.mbarrier_call(MbarrierCall::Raise, ptr, one, zero32);
                }
                (MbarrierCall::Arrive, one, zero32, None)
            }
            MbarrierOp::PendingCount { .. } => return Err("mbarrier.pending_count".into()),
        };
        let result = self.mbarrier_call(call, ptr, a, tx);
        if let Some(dst) = dst {
            self.set(dst, result);
        }
        Ok(())
    }

    fn mbarrier_call(&mut self, call: MbarrierCall, ptr: Value, a: Value, tx: Value) -> Value {
        let (thread, call) = (self.at.thread, self.iconst(I32, call as u64));
        self.rt_value(sync::mbarrier as *const () as usize, I64, &[thread, call, ptr, a, tx])
    }
}
