//! Which registers an instruction reads and writes.

use outboard_ptx::ir::{
    Address, BarOp, Base, CallArg, Callee, Inst, MbarrierOp, Op, Operand, PredOperand, Reg,
};

/// How an instruction uses a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// Calls `f` for each register of an instruction, guard included.
pub(crate) fn registers(inst: &Inst, mut f: impl FnMut(Use, Reg)) {
    if let Some(guard) = inst.guard {
        f(Use::Read, guard.reg);
    }
    visit(&inst.op, &mut f);
}

fn visit(op: &Op, f: &mut dyn FnMut(Use, Reg)) {
    struct Visitor<'a>(&'a mut dyn FnMut(Use, Reg));
    impl Visitor<'_> {
        fn read(&mut self, operand: &Operand) {
            if let Operand::Reg(reg) = operand {
                (self.0)(Use::Read, *reg);
            }
        }
        fn reads(&mut self, operands: &[&Operand]) {
            operands.iter().for_each(|operand| self.read(operand));
        }
        fn pred(&mut self, operand: &PredOperand) {
            self.read(&operand.value);
        }
        fn write(&mut self, reg: &Reg) {
            (self.0)(Use::Write, *reg);
        }
        fn writes<'r>(&mut self, regs: impl IntoIterator<Item = &'r Option<Reg>>) {
            regs.into_iter().flatten().for_each(|reg| self.write(reg));
        }
        fn address(&mut self, address: &Address) {
            if let Base::Reg(reg) = address.base {
                (self.0)(Use::Read, reg);
            }
        }
        fn optional(&mut self, operand: &Option<Operand>) {
            operand.iter().for_each(|operand| self.read(operand));
        }
    }
    let v = &mut Visitor(f);
    match op {
        Op::IntBin { dst, a, b, .. }
        | Op::Shift { dst, a, b, .. }
        | Op::MulWide { dst, a, b, .. }
        | Op::Mul24 { dst, a, b, .. }
        | Op::AddCarry { dst, a, b, .. }
        | Op::Bmsk { dst, a, b, .. }
        | Op::Szext { dst, a, b, .. }
        | Op::FloatBin { dst, a, b, .. }
        | Op::Copysign { dst, a, b, .. }
        | Op::CvtPair { dst, a, b, .. } => {
            v.reads(&[a, b]);
            v.write(dst);
        }
        Op::IntUn { dst, a, .. }
        | Op::Bfind { dst, a, .. }
        | Op::FloatUn { dst, a, .. }
        | Op::Testp { dst, a, .. }
        | Op::Mov { dst, a, .. }
        | Op::Cvt { dst, a, .. }
        | Op::Cvta { dst, a, .. }
        | Op::Isspacep { dst, a, .. } => {
            v.read(a);
            v.write(dst);
        }
        Op::Mad { dst, a, b, c, .. }
        | Op::Mad24 { dst, a, b, c, .. }
        | Op::MadCarry { dst, a, b, c, .. }
        | Op::Sad { dst, a, b, c, .. }
        | Op::Shf { dst, a, b, c, .. }
        | Op::Prmt { dst, a, b, c, .. }
        | Op::Dp4a { dst, a, b, c, .. }
        | Op::Dp2a { dst, a, b, c, .. }
        | Op::Video { dst, a, b, c, .. }
        | Op::Fma { dst, a, b, c, .. }
        | Op::Slct { dst, a, b, c, .. } => {
            v.reads(&[a, b, c]);
            v.write(dst);
        }
        Op::Fns { dst, mask, base, offset } => {
            v.reads(&[mask, base, offset]);
            v.write(dst);
        }
        Op::Bfe { dst, a, pos, len, .. } => {
            v.reads(&[a, pos, len]);
            v.write(dst);
        }
        Op::Bfi { dst, a, b, pos, len, .. } => {
            v.reads(&[a, b, pos, len]);
            v.write(dst);
        }
        Op::Lop3 { dst, a, b, c, pred, .. } => {
            v.reads(&[a, b, c]);
            if let Some((p, _, q)) = pred {
                v.pred(q);
                v.write(p);
            }
            v.writes([dst]);
        }
        Op::Setp { combine, p, q, a, b, .. } => {
            v.reads(&[a, b]);
            combine.iter().for_each(|(_, c)| v.pred(c));
            v.writes([p, q]);
        }
        Op::Set { combine, dst, a, b, .. } => {
            v.reads(&[a, b]);
            combine.iter().for_each(|(_, c)| v.pred(c));
            v.write(dst);
        }
        Op::Selp { dst, a, b, pred, .. } => {
            v.reads(&[a, b]);
            v.pred(pred);
            v.write(dst);
        }
        Op::Pack { dst, parts, .. } => {
            parts.iter().for_each(|part| v.read(part));
            v.write(dst);
        }
        Op::Unpack { parts, a, .. } => {
            v.read(a);
            v.writes(parts);
        }
        Op::MovSpecial { dst, .. } | Op::ActiveMask { dst } => v.write(dst),
        Op::MovAddr { dst, addr } => {
            v.address(addr);
            v.write(dst);
        }
        Op::CvtPack { dst, a, b, c, .. } => {
            v.reads(&[a, b]);
            v.optional(c);
            v.write(dst);
        }
        Op::Tex { dsts, object, coords, level, .. } => {
            v.read(object);
            coords.iter().for_each(|coord| v.read(coord));
            v.optional(level);
            v.writes(dsts);
        }
        Op::SurfaceLoad { dsts, object, coords, .. } => {
            v.read(object);
            coords.iter().for_each(|coord| v.read(coord));
            v.writes(dsts);
        }
        Op::SurfaceStore { srcs, object, coords, .. } => {
            v.read(object);
            coords.iter().chain(srcs).for_each(|operand| v.read(operand));
        }
        Op::TextureQuery { dst, object, .. } => {
            v.read(object);
            v.write(dst);
        }
        Op::Ld { dsts, addr, .. } => {
            v.address(addr);
            v.writes(dsts);
        }
        Op::St { srcs, addr, .. } => {
            v.address(addr);
            srcs.iter().for_each(|src| v.read(src));
        }
        Op::Atom { dst, addr, b, c, .. } => {
            v.address(addr);
            v.read(b);
            v.optional(c);
            v.writes([dst]);
        }
        Op::CpAsync { src_bytes, ignore_src, dst, src, .. } => {
            v.address(dst);
            v.address(src);
            v.optional(src_bytes);
            ignore_src.iter().for_each(|p| v.pred(p));
        }
        Op::Mbarrier { op, addr, .. } => {
            v.address(addr);
            match op {
                MbarrierOp::Init { count }
                | MbarrierOp::ExpectTx { count }
                | MbarrierOp::CompleteTx { count } => {
                    v.read(count);
                }
                MbarrierOp::Inval | MbarrierOp::CpAsyncArrive { .. } => {}
                MbarrierOp::Arrive { state, count, expect_tx, .. } => {
                    v.read(count);
                    v.optional(expect_tx);
                    v.writes([state]);
                }
                MbarrierOp::Test { dst, state, .. } | MbarrierOp::PendingCount { dst, state } => {
                    v.read(state);
                    v.write(dst);
                }
                MbarrierOp::TestParity { dst, parity, .. } => {
                    v.read(parity);
                    v.write(dst);
                }
            }
        }
        Op::BrxIdx { index, .. } => v.read(index),
        Op::Call { callee, rets, args } => {
            if let Callee::Indirect { reg, .. } = callee {
                (v.0)(Use::Read, *reg);
            }
            for arg in args {
                if let CallArg::Reg(reg) = arg {
                    (v.0)(Use::Read, *reg);
                }
            }
            for ret in rets {
                if let CallArg::Reg(reg) = ret {
                    v.write(reg);
                }
            }
        }
        Op::Bar { op, id, threads } => {
            v.read(id);
            v.optional(threads);
            if let BarOp::Red { dst, pred, .. } = op {
                v.pred(pred);
                v.write(dst);
            }
        }
        Op::WarpSync { mask } => v.read(mask),
        Op::Shfl { dst, pred, a, b, c, mask, .. } => {
            v.reads(&[a, b, c]);
            v.optional(mask);
            v.writes([dst, pred]);
        }
        Op::Vote { dst, pred, mask, .. } => {
            v.pred(pred);
            v.optional(mask);
            v.write(dst);
        }
        Op::MatchAny { dst, a, mask, .. } | Op::Redux { dst, a, mask, .. } => {
            v.reads(&[a, mask]);
            v.write(dst);
        }
        Op::MatchAll { dst, pred, a, mask, .. } => {
            v.reads(&[a, mask]);
            v.writes([dst, pred]);
        }
        Op::Elect { dst, pred, mask } => {
            v.read(mask);
            v.writes([dst]);
            v.write(pred);
        }
        Op::NanoSleep { ns } => v.read(ns),
        Op::Fence { .. }
        | Op::Bra { .. }
        | Op::Ret
        | Op::Exit
        | Op::Trap
        | Op::Brkpt
        | Op::ClusterArrive
        | Op::ClusterWait => {}
    }
}
