//! Special registers.
#![expect(
    missing_docs,
    reason = "variants without docs are the PTX special registers of those names"
)]

use crate::types::Type;

/// A component of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    X,
    Y,
    Z,
    W,
}

/// Special registers. All are 32 bits wide unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecialReg {
    Tid(Dim),
    Ntid(Dim),
    Ctaid(Dim),
    Nctaid(Dim),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    /// 64 bits.
    GridId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    /// Low half of `Clock64`.
    Clock,
    ClockHi,
    /// 64 bits.
    Clock64,
    /// Nanoseconds, 64 bits.
    GlobalTimer,
    GlobalTimerLo,
    GlobalTimerHi,
    DynamicSmemSize,
    TotalSmemSize,
    AggrSmemSize,
    /// Position of the cluster in the grid.
    ClusterId(Dim),
    NClusterId(Dim),
    /// Position of the block in its cluster.
    ClusterCtaid(Dim),
    ClusterNctaid(Dim),
    ClusterCtaRank,
    ClusterNctaRank,
    /// Predicate.
    IsExplicitCluster,
    /// `%envreg0`..`%envreg31`.
    EnvReg(u8),
    /// `%pm0`..`%pm7` (performance counters, read as 0).
    Pm(u8),
    /// 64 bits.
    CurrentGraphExec,
    ReservedSmemOffsetBegin,
    ReservedSmemOffsetEnd,
    ReservedSmemOffsetCap,
}

impl SpecialReg {
    /// Natural type of the register.
    pub fn ty(self) -> Type {
        match self {
            SpecialReg::GridId
            | SpecialReg::Clock64
            | SpecialReg::GlobalTimer
            | SpecialReg::CurrentGraphExec => Type::U64,
            SpecialReg::IsExplicitCluster => Type::Pred,
            _ => Type::U32,
        }
    }
}
