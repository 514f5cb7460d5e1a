//! What a texture shows of an array: another format, some of its levels, some of its layers.

use outboard_abi::{CUresourceViewFormat_enum as Format, CUresult};
use outboard_front::backend::{Result, View};
use outboard_simt::texture::{Component, Image};

use super::invalid;

/// The component and the channels of a view's format; `None` for that of the array.
fn format(number: u32) -> Result<Option<(Component, u8)>> {
    use Component as C;
    const COMPONENTS: [Component; 8] = [
        C::Unsigned(1),
        C::Signed(1),
        C::Unsigned(2),
        C::Signed(2),
        C::Unsigned(4),
        C::Signed(4),
        C::Half,
        C::Float,
    ];
    // Three formats of each component, with 1, 2 and 4 channels.
    const FIRST: u32 = Format::CU_RES_VIEW_FORMAT_UINT_1X8.0;
    const LAST: u32 = Format::CU_RES_VIEW_FORMAT_FLOAT_4X32.0;
    match number {
        0 => Ok(None),
        FIRST..=LAST => {
            let at = number - FIRST;
            Ok(Some((COMPONENTS[at as usize / 3], 1 << (at % 3))))
        }
        // Blocks of compressed elements are not read here.
        _ if number <= Format::CU_RES_VIEW_FORMAT_UNSIGNED_BC7.0 => {
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Err(invalid()),
    }
}

/// The levels that are seen through a view. Of a `layered` array, slices are layers. As on an H200,
/// a view has the array's own size, and its last level and layer may be behind the array's.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if the view has another size than the array or its elements have, or
/// begins where the array has nothing, `CUDA_ERROR_NOT_SUPPORTED` for compressed formats.
pub(super) fn seen(levels: &[Image], layered: bool, view: &View) -> Result<Vec<Image>> {
    let format = format(view.format)?;
    let whole = levels.first().ok_or_else(invalid)?;
    let (width, height, depth) = view.size;
    let [columns, rows, slices] = whole.size;
    let depth = if layered { depth } else { depth.max(1) };
    if width != columns || height.max(1) != rows || depth != slices {
        return Err(invalid());
    }
    let (first, last) = view.levels;
    let last = last.min(levels.len() as u32 - 1);
    let levels = levels.get(first as usize..=last as usize).filter(|some| !some.is_empty());
    let levels = levels.ok_or_else(invalid)?;
    let (first, mut last) = (u64::from(view.layers.0), u64::from(view.layers.1));
    if layered {
        last = last.min(slices - 1);
    } else if last > 0 {
        return Err(invalid());
    }
    let layers = last.checked_sub(first).ok_or_else(invalid)? + 1;
    let seen = levels.iter().map(|level| {
        let mut seen = *level;
        if let Some((component, channels)) = format {
            (seen.component, seen.channels) = (component, channels);
        }
        if layered {
            seen.address += first * level.strides[1];
            seen.size[2] = layers;
        }
        if seen.element() == level.element() { Ok(seen) } else { Err(invalid()) }
    });
    seen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels() -> [Image; 2] {
        let level = |address, columns, rows| Image {
            address,
            size: [columns, rows, 6],
            strides: [512, 4096],
            component: Component::Float,
            channels: 1,
        };
        [level(0x10000, 8, 4), level(0x20000, 4, 2)]
    }

    fn whole() -> View {
        View { format: 0, size: (8, 4, 6), levels: (0, 1), layers: (0, 5) }
    }

    #[test]
    fn formats_are_those_of_the_header() {
        for (number, wanted) in [
            (Format::CU_RES_VIEW_FORMAT_UINT_2X8, (Component::Unsigned(1), 2)),
            (Format::CU_RES_VIEW_FORMAT_SINT_4X8, (Component::Signed(1), 4)),
            (Format::CU_RES_VIEW_FORMAT_UINT_1X16, (Component::Unsigned(2), 1)),
            (Format::CU_RES_VIEW_FORMAT_SINT_2X16, (Component::Signed(2), 2)),
            (Format::CU_RES_VIEW_FORMAT_UINT_4X32, (Component::Unsigned(4), 4)),
            (Format::CU_RES_VIEW_FORMAT_SINT_1X32, (Component::Signed(4), 1)),
            (Format::CU_RES_VIEW_FORMAT_FLOAT_4X16, (Component::Half, 4)),
            (Format::CU_RES_VIEW_FORMAT_FLOAT_2X32, (Component::Float, 2)),
        ] {
            assert_eq!(format(number.0), Ok(Some(wanted)));
        }
        assert_eq!(format(0), Ok(None));
        let compressed = Format::CU_RES_VIEW_FORMAT_SIGNED_BC4.0;
        assert_eq!(format(compressed), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
        assert_eq!(format(1000), Err(invalid()));
    }

    #[test]
    fn a_view_shows_what_it_names() {
        let levels = levels();
        let same = seen(&levels, true, &whole()).unwrap();
        assert_eq!((same.len(), same[0].address, same[1].size), (2, 0x10000, [4, 2, 6]));
        let part = View { format: 13, levels: (1, 1), layers: (2, 3), ..whole() };
        let part = seen(&levels, true, &part).unwrap();
        assert_eq!((part.len(), part[0].address, part[0].size), (1, 0x22000, [4, 2, 2]));
        assert_eq!(part[0].component, Component::Unsigned(4));
    }

    #[test]
    fn a_view_names_no_more_than_there_is() {
        let levels = levels();
        for view in [
            View { size: (4, 4, 6), ..whole() },
            View { size: (8, 2, 6), ..whole() },
            View { size: (8, 4, 2), layers: (2, 3), ..whole() },
            View { size: (8, 4, 0), ..whole() },
            View { levels: (2, 2), ..whole() },
            View { levels: (1, 0), ..whole() },
            View { levels: (u32::MAX, u32::MAX), ..whole() },
            View { layers: (6, 6), ..whole() },
            View { layers: (3, 2), ..whole() },
            View { format: Format::CU_RES_VIEW_FORMAT_FLOAT_2X32.0, ..whole() },
        ] {
            assert!(seen(&levels, true, &view).is_err(), "{view:?}");
        }
        // What would be behind the last is not there.
        let all = View { levels: (0, u32::MAX), layers: (0, u32::MAX), ..whole() };
        assert_eq!(seen(&levels, true, &all).unwrap().len(), 2);
        assert_eq!(seen(&levels, true, &all).unwrap()[0].size, [8, 4, 6]);
        // Slices are no layers.
        assert!(seen(&levels, false, &View { layers: (0, 1), ..whole() }).is_err());
        assert!(seen(&levels, false, &View { layers: (0, 0), ..whole() }).is_ok());
    }
}
