//! From coordinates to elements: addressing, and the weights of linear filtering.

use super::Addressing;

/// Two neighbouring elements along one dimension, `None` for the border, and the weight of the
/// second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Footprint {
    pub(super) index: [Option<u64>; 2],
    pub(super) weight: f64,
}

impl Default for Footprint {
    fn default() -> Footprint {
        Footprint { index: [Some(0); 2], weight: 0.0 }
    }
}

/// Coordinates beyond this lie as far outside as any.
const FAR: f64 = (1u64 << 40) as f64;

/// The element of a whole coordinate.
fn address(index: i64, size: u64, mode: Addressing, normalized: bool) -> Option<u64> {
    let size = size as i64;
    let index = match mode {
        // Repeating needs coordinates from 0 to 1.
        Addressing::Wrap if normalized => index.rem_euclid(size),
        Addressing::Mirror if normalized => {
            let turn = index.rem_euclid(2 * size);
            if turn < size { turn } else { 2 * size - 1 - turn }
        }
        Addressing::Border if index < 0 || index >= size => return None,
        _ => index.clamp(0, size - 1),
    };
    Some(index as u64)
}

/// The element at a coordinate in elements.
pub(super) fn point(at: f64, size: u64, mode: Addressing, normalized: bool) -> Footprint {
    let index = address(limited(at).floor() as i64, size, mode, normalized);
    Footprint { index: [index; 2], weight: 0.0 }
}

/// The elements around a coordinate. Weights have 8 bits of fraction, as GPUs' have.
pub(super) fn footprint(at: f64, size: u64, mode: Addressing, normalized: bool) -> Footprint {
    let fixed = (limited(at - 0.5) * 256.0).round() as i64;
    let low = fixed.div_euclid(256);
    let index = [address(low, size, mode, normalized), address(low + 1, size, mode, normalized)];
    Footprint { index, weight: fixed.rem_euclid(256) as f64 / 256.0 }
}

fn limited(at: f64) -> f64 {
    if at.is_nan() { 0.0 } else { at.clamp(-FAR, FAR) }
}
