//! Names of special registers.

use crate::ir::{Dim, SpecialReg};

/// The special register `name` with component `suffix` (`%tid` and `x`).
pub(super) fn special(name: &str, suffix: Option<&str>) -> Option<SpecialReg> {
    let name = name.strip_prefix('%')?;
    if let Some(suffix) = suffix {
        let dim = match suffix {
            "x" => Dim::X,
            "y" => Dim::Y,
            "z" => Dim::Z,
            "w" => Dim::W,
            _ => return None,
        };
        return Some(match name {
            "tid" => SpecialReg::Tid(dim),
            "ntid" => SpecialReg::Ntid(dim),
            "ctaid" => SpecialReg::Ctaid(dim),
            "nctaid" => SpecialReg::Nctaid(dim),
            "clusterid" => SpecialReg::ClusterId(dim),
            "nclusterid" => SpecialReg::NClusterId(dim),
            "cluster_ctaid" => SpecialReg::ClusterCtaid(dim),
            "cluster_nctaid" => SpecialReg::ClusterNctaid(dim),
            _ => return None,
        });
    }
    Some(match name {
        "laneid" => SpecialReg::LaneId,
        "warpid" => SpecialReg::WarpId,
        "nwarpid" => SpecialReg::NWarpId,
        "smid" => SpecialReg::SmId,
        "nsmid" => SpecialReg::NSmId,
        "gridid" => SpecialReg::GridId,
        "lanemask_eq" => SpecialReg::LaneMaskEq,
        "lanemask_le" => SpecialReg::LaneMaskLe,
        "lanemask_lt" => SpecialReg::LaneMaskLt,
        "lanemask_ge" => SpecialReg::LaneMaskGe,
        "lanemask_gt" => SpecialReg::LaneMaskGt,
        "clock" => SpecialReg::Clock,
        "clock_hi" => SpecialReg::ClockHi,
        "clock64" => SpecialReg::Clock64,
        "globaltimer" => SpecialReg::GlobalTimer,
        "globaltimer_lo" => SpecialReg::GlobalTimerLo,
        "globaltimer_hi" => SpecialReg::GlobalTimerHi,
        "dynamic_smem_size" => SpecialReg::DynamicSmemSize,
        "total_smem_size" => SpecialReg::TotalSmemSize,
        "aggr_smem_size" => SpecialReg::AggrSmemSize,
        "cluster_ctarank" => SpecialReg::ClusterCtaRank,
        "cluster_nctarank" => SpecialReg::ClusterNctaRank,
        "is_explicit_cluster" => SpecialReg::IsExplicitCluster,
        "current_graph_exec" => SpecialReg::CurrentGraphExec,
        "reserved_smem_offset_begin" => SpecialReg::ReservedSmemOffsetBegin,
        "reserved_smem_offset_end" => SpecialReg::ReservedSmemOffsetEnd,
        "reserved_smem_offset_cap" => SpecialReg::ReservedSmemOffsetCap,
        _ => {
            if let Some(index) =
                name.strip_prefix("envreg").and_then(|digits| digits.parse::<u8>().ok())
            {
                return (index < 32).then_some(SpecialReg::EnvReg(index));
            }
            let index = name.strip_prefix("pm")?;
            let index = index.strip_suffix("_64").unwrap_or(index).parse::<u8>().ok()?;
            return (index < 8).then_some(SpecialReg::Pm(index));
        }
    })
}
