//! Where in memory a surface is accessed.

use outboard_ptx::ir::{Boundary, Geometry};

use super::Image;

/// What an access to a surface comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// At this address.
    At(u64),
    /// Nowhere: reads give zero, writes vanish.
    Nothing,
    /// The kernel faults.
    Fault,
}

/// The place of an access of `bytes`. The first coordinate behind the layer counts bytes.
pub(crate) fn locate(
    image: &Image,
    geometry: Geometry,
    coords: [u32; 4],
    bytes: u64,
    boundary: Boundary,
) -> Access {
    let at = |index: usize| i64::from(coords[index] as i32);
    let (x, y, z) = match geometry {
        Geometry::D1 => (at(0), 0, 0),
        Geometry::D2 => (at(0), at(1), 0),
        Geometry::D3 => (at(0), at(1), at(2)),
        Geometry::A1 => (at(1), 0, at(0)),
        Geometry::A2 => (at(1), at(2), at(0)),
        Geometry::Cube | Geometry::ACube => return Access::Fault,
    };
    let width = (image.size[0] * image.element()) as i64;
    let (rows, slices) = (image.size[1] as i64, image.size[2] as i64);
    let bytes = bytes as i64;
    if x.rem_euclid(bytes) != 0 || width < bytes {
        return Access::Fault;
    }
    let inside = x >= 0 && x <= width - bytes && (0..rows).contains(&y) && (0..slices).contains(&z);
    let (x, y, z) = match boundary {
        _ if inside => (x, y, z),
        Boundary::Trap => return Access::Fault,
        Boundary::Zero => return Access::Nothing,
        Boundary::Clamp => (
            x.clamp(0, (width - bytes) / bytes * bytes),
            y.clamp(0, rows - 1),
            z.clamp(0, slices - 1),
        ),
    };
    Access::At(image.address + z as u64 * image.strides[1] + y as u64 * image.strides[0] + x as u64)
}
