//! Special registers.

use crate::codegen::func::{FuncGen, Gen};
use crate::exec::context::{BlockContext, ThreadContext};
use crate::rt::sync;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use outboard_ptx::ir::{Dim, Reg, SpecialReg};
use std::mem::offset_of;

impl FuncGen<'_, '_> {
    pub(crate) fn special(&mut self, dst: Reg, sreg: SpecialReg) -> Gen {
        let (block, thread) = (self.at.block, self.at.thread);
        let value = match sreg {
            SpecialReg::Tid(dim) => self.dimension(thread, offset_of!(ThreadContext, tid), dim, 0),
            SpecialReg::Ntid(dim) => self.dimension(block, offset_of!(BlockContext, ntid), dim, 1),
            // A cluster is one block.
            SpecialReg::Ctaid(dim) | SpecialReg::ClusterId(dim) => {
                self.dimension(block, offset_of!(BlockContext, ctaid), dim, 0)
            }
            SpecialReg::Nctaid(dim) | SpecialReg::NClusterId(dim) => {
                self.dimension(block, offset_of!(BlockContext, nctaid), dim, 1)
            }
            SpecialReg::LaneId => self.lane(),
            SpecialReg::WarpId => {
                let linear = self.load_uniform(I32, thread, offset_of!(ThreadContext, linear));
                self.b.ins().ushr_imm_u(linear, 5)
            }
            SpecialReg::NWarpId => self.load_uniform(I32, block, offset_of!(BlockContext, nwarp)),
            SpecialReg::SmId => self.load_uniform(I32, block, offset_of!(BlockContext, smid)),
            SpecialReg::NSmId => self.load_uniform(I32, block, offset_of!(BlockContext, nsmid)),
            SpecialReg::GridId => self.load_uniform(I64, block, offset_of!(BlockContext, grid_id)),
            SpecialReg::LaneMaskEq => self.lane_bit(),
            SpecialReg::LaneMaskLt => {
                let bit = self.lane_bit();
                self.b.ins().iadd_imm_s(bit, -1)
            }
            SpecialReg::LaneMaskGe => {
                let bit = self.lane_bit();
                self.b.ins().ineg(bit)
            }
            SpecialReg::LaneMaskLe => {
                let lower = self.lane_bit();
                let lower = self.b.ins().iadd_imm_s(lower, -1);
                let bit = self.lane_bit();
                self.b.ins().bor(lower, bit)
            }
            SpecialReg::LaneMaskGt => {
                let bit = self.lane_bit();
                let upper = self.b.ins().ineg(bit);
                self.b.ins().bxor(upper, bit)
            }
            SpecialReg::Clock | SpecialReg::Clock64 => {
                self.rt_value(sync::clock as *const () as usize, I64, &[])
            }
            SpecialReg::ClockHi => {
                let clock = self.rt_value(sync::clock as *const () as usize, I64, &[]);
                self.b.ins().ushr_imm_u(clock, 32)
            }
            SpecialReg::GlobalTimer | SpecialReg::GlobalTimerLo => {
                self.rt_value(sync::global_timer as *const () as usize, I64, &[])
            }
            SpecialReg::GlobalTimerHi => {
                let timer = self.rt_value(sync::global_timer as *const () as usize, I64, &[]);
                self.b.ins().ushr_imm_u(timer, 32)
            }
            SpecialReg::DynamicSmemSize => {
                self.load_uniform(I32, block, offset_of!(BlockContext, dynamic_shared))
            }
            SpecialReg::TotalSmemSize | SpecialReg::AggrSmemSize => {
                self.load_uniform(I32, block, offset_of!(BlockContext, total_shared))
            }
            SpecialReg::ClusterCtaid(_) | SpecialReg::ClusterCtaRank => self.iconst(I32, 0),
            SpecialReg::ClusterNctaid(_) | SpecialReg::ClusterNctaRank => self.iconst(I32, 1),
            SpecialReg::IsExplicitCluster => self.iconst(I8, 0),
            SpecialReg::EnvReg(1) => {
                let workspace = self.load_uniform(I64, block, offset_of!(BlockContext, workspace));
                let upper = self.b.ins().ushr_imm_u(workspace, 32);
                self.b.ins().ireduce(I32, upper)
            }
            SpecialReg::EnvReg(2) => {
                self.load_uniform(I32, block, offset_of!(BlockContext, workspace))
            }
            SpecialReg::EnvReg(_)
            | SpecialReg::Pm(_)
            | SpecialReg::ReservedSmemOffsetBegin
            | SpecialReg::ReservedSmemOffsetEnd
            | SpecialReg::ReservedSmemOffsetCap => self.iconst(I32, 0),
            SpecialReg::CurrentGraphExec => self.iconst(I64, 0),
        };
        self.set(dst, value);
        Ok(())
    }

    fn dimension(&mut self, base: Value, offset: usize, dim: Dim, fourth: u64) -> Value {
        let index = match dim {
            Dim::X => 0,
            Dim::Y => 1,
            Dim::Z => 2,
            Dim::W => return self.iconst(I32, fourth),
        };
        self.load_uniform(I32, base, offset + 4 * index)
    }

    fn lane(&mut self) -> Value {
        let linear = self.load_uniform(I32, self.at.thread, offset_of!(ThreadContext, linear));
        self.b.ins().band_imm_u(linear, 31)
    }

    fn lane_bit(&mut self) -> Value {
        let (lane, one) = (self.lane(), self.iconst(I32, 1));
        self.b.ins().ishl(one, lane)
    }
}
