//! Texture and surface instructions. Coordinates and values pass through the exchange area of the
//! thread's context.

use crate::exec::context::{EXCHANGE_VALUES, ThreadContext};
use crate::fault::{FaultKind, Space};
use crate::texture::{Access, FetchRequest, fetch, gather, locate};
use outboard_ptx::ir::{Boundary, Geometry, Query};

/// What an instruction does, as compiled code passes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A coordinate is a floating-point number.
    Sample {
        float: bool,
    },
    Gather {
        component: u8,
    },
    /// Elements of so many bytes.
    Load {
        bytes: u8,
        count: u8,
        boundary: Boundary,
    },
    Store {
        bytes: u8,
        count: u8,
        boundary: Boundary,
    },
}

const GEOMETRIES: [Geometry; 7] = [
    Geometry::D1,
    Geometry::D2,
    Geometry::D3,
    Geometry::A1,
    Geometry::A2,
    Geometry::Cube,
    Geometry::ACube,
];
const BOUNDARIES: [Boundary; 3] = [Boundary::Trap, Boundary::Clamp, Boundary::Zero];
const QUERIES: [Query; 5] =
    [Query::Width, Query::Height, Query::Depth, Query::ArraySize, Query::Levels];

fn index<T: PartialEq>(all: &[T], one: &T) -> u64 {
    all.iter().position(|other| other == one).unwrap_or(0) as u64
}

/// `kind | geometry << 4 | details`
pub(crate) fn encode(kind: Kind, geometry: Geometry) -> u64 {
    let elements = |bytes: u8, count: u8, boundary| {
        u64::from(bytes) << 8 | u64::from(count) << 16 | index(&BOUNDARIES, &boundary) << 24
    };
    let kind = match kind {
        Kind::Sample { float } => u64::from(float) << 8,
        Kind::Gather { component } => 1 | u64::from(component) << 8,
        Kind::Load { bytes, count, boundary } => 2 | elements(bytes, count, boundary),
        Kind::Store { bytes, count, boundary } => 3 | elements(bytes, count, boundary),
    };
    kind | index(&GEOMETRIES, &geometry) << 4
}

fn decode(code: u64) -> (Kind, Geometry) {
    let geometry = GEOMETRIES[(code >> 4 & 7) as usize % GEOMETRIES.len()];
    let (low, count) = ((code >> 8) as u8, (code >> 16) as u8);
    let boundary = BOUNDARIES[(code >> 24 & 3) as usize % BOUNDARIES.len()];
    let kind = match code & 3 {
        0 => Kind::Sample { float: low != 0 },
        1 => Kind::Gather { component: low },
        2 => Kind::Load { bytes: low, count, boundary },
        _ => Kind::Store { bytes: low, count, boundary },
    };
    (kind, geometry)
}

fn fault(thread: &ThreadContext, object: u64, size: u32, site: u64) -> u32 {
    let kind = FaultKind::IllegalAddress { addr: object, size, space: Space::Global };
    thread.state().record_fault(thread, site, kind)
}

/// Reads a texture, or reads or writes a surface; gives a status.
pub(crate) unsafe extern "C" fn texture(
    thread: *const ThreadContext,
    object: u64,
    code: u64,
    site: u64,
) -> u32 {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    let core = thread.state().grid().core();
    let (kind, geometry) = decode(code);
    let mut exchange = thread.exchange.get();
    let coords = [exchange[0], exchange[1], exchange[2], exchange[3]];
    match kind {
        Kind::Sample { .. } | Kind::Gather { .. } => {
            let Some(texture) = core.textures.get(object) else {
                return fault(thread, object, 4, site);
            };
            let float = !matches!(kind, Kind::Sample { float: false });
            let request =
                FetchRequest { geometry, coords, float, level: f32::from_bits(exchange[4]) };
            let texel = match kind {
                Kind::Gather { component } => gather(&texture, &request, component.into()),
                _ => fetch(&texture, &request),
            };
            exchange[EXCHANGE_VALUES..EXCHANGE_VALUES + 4].copy_from_slice(&texel);
        }
        Kind::Load { bytes, count, boundary } | Kind::Store { bytes, count, boundary } => {
            let Some(surface) = core.surfaces.get(object) else {
                return fault(thread, object, 4, site);
            };
            let total = u64::from(bytes) * u64::from(count);
            match locate(&surface.image, geometry, coords, total, boundary) {
                Access::Fault => return fault(thread, object, total as u32, site),
                Access::At(address) if matches!(kind, Kind::Load { .. }) => {
                    exchange[EXCHANGE_VALUES..].fill(0);
                    for index in 0..count.min(4) {
                        let slot = exchange[EXCHANGE_VALUES + 2 * usize::from(index)..]
                            .as_mut_ptr()
                            .cast::<u8>();
                        let from = address + u64::from(index) * u64::from(bytes);
                        // SAFETY: within the surface's memory, which its object keeps; a slot has
                        // eight bytes, an element no more.
                        unsafe {
                            core::ptr::copy_nonoverlapping(
                                from as *const u8,
                                slot,
                                bytes.min(8).into(),
                            )
                        };
                    }
                }
                Access::At(address) => {
                    for index in 0..count.min(4) {
                        let slot = exchange[EXCHANGE_VALUES + 2 * usize::from(index)..]
                            .as_ptr()
                            .cast::<u8>();
                        let to = address + u64::from(index) * u64::from(bytes);
                        // SAFETY: as above.
                        unsafe {
                            core::ptr::copy_nonoverlapping(slot, to as *mut u8, bytes.min(8).into())
                        };
                    }
                }
                Access::Nothing => exchange[EXCHANGE_VALUES..].fill(0),
            }
        }
    }
    thread.exchange.set(exchange);
    crate::exec::context::STATUS_DONE
}

/// The code of a question.
pub(crate) fn encode_query(query: Query, surface: bool) -> u64 {
    index(&QUERIES, &query) | u64::from(surface) << 8
}

/// Answers a question about an object; one that is not there has no size.
pub(crate) unsafe extern "C" fn query(thread: *const ThreadContext, object: u64, code: u64) -> u32 {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    let core = thread.state().grid().core();
    let query = QUERIES[(code & 0xff) as usize % QUERIES.len()];
    let (size, levels, layered) = if code >> 8 != 0 {
        let Some(surface) = core.surfaces.get(object) else { return 0 };
        (surface.image.size, 1, false)
    } else {
        let Some(texture) = core.textures.get(object) else { return 0 };
        (texture.levels[0].size, texture.levels.len() as u64, texture.layered)
    };
    let value = match query {
        Query::Width => size[0],
        Query::Height => size[1],
        Query::Depth => size[2],
        Query::ArraySize => {
            if layered {
                size[2]
            } else {
                0
            }
        }
        Query::Levels => levels,
    };
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back() {
        for geometry in GEOMETRIES {
            for kind in [
                Kind::Sample { float: true },
                Kind::Sample { float: false },
                Kind::Gather { component: 3 },
                Kind::Load { bytes: 8, count: 2, boundary: Boundary::Clamp },
                Kind::Store { bytes: 1, count: 4, boundary: Boundary::Zero },
            ] {
                assert_eq!(decode(encode(kind, geometry)), (kind, geometry));
            }
        }
    }
}
