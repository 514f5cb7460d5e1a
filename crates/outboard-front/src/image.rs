//! Finding the bytes of an image that a program hands over by address alone.

use core::ffi::c_void;

use outboard_abi::CUresult;
use outboard_image::{Extent, Memory};

use crate::backend::Result;

/// The parts of an image: fat binary containers, one cubin, or PTX text without its final zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    parts: Vec<Part>,
    /// Whether it came in the wrapper that compilers make for the runtime.
    wrapped: bool,
}

#[derive(Clone, Debug)]
enum Part {
    Owned(Box<[u8]>),
    /// Bytes that the program keeps for as long as the image is loaded.
    Kept {
        address: usize,
        bytes: usize,
    },
}

impl Parts {
    /// The bytes.
    ///
    /// # Safety
    /// Parts that are not owned are still there: the program has promised to keep them.
    pub(crate) unsafe fn slices(&self) -> Vec<&[u8]> {
        let slice = |part: &'_ Part| match part {
            Part::Owned(bytes) => std::ptr::from_ref::<[u8]>(bytes),
            Part::Kept { address, bytes } => {
                std::ptr::slice_from_raw_parts(*address as *const u8, *bytes)
            }
        };
        // SAFETY: owned ones live as long as `self`; the others by the contract above.
        self.parts.iter().map(|part| unsafe { &*slice(part) }).collect()
    }

    /// Copies what is not owned.
    ///
    /// # Safety
    /// As of [`Parts::slices`].
    pub(crate) unsafe fn to_owned(&self) -> Parts {
        // SAFETY: by the contract above.
        let parts = unsafe { self.slices() }.into_iter().map(|bytes| Part::Owned(bytes.into()));
        Parts { parts: parts.collect(), wrapped: self.wrapped }
    }

    /// Whether a runtime loads it: for a launch that a program has written as `kernel<<<…>>>()`,
    /// which returns nothing.
    pub(crate) fn is_runtimes(&self) -> bool {
        self.wrapped
    }

    /// One part, owned.
    pub(crate) fn from_file(mut bytes: Vec<u8>) -> Parts {
        // PTX on disk may or may not end in a zero byte; the others are binary.
        if outboard_image::format_of(&bytes) == Ok(outboard_image::Format::Ptx) {
            while bytes.last() == Some(&0) {
                bytes.pop();
            }
        }
        Parts { parts: vec![Part::Owned(bytes.into())], wrapped: false }
    }
}

/// Measures the image at `image`.
///
/// # Safety
/// `image` is null or points to a wrapper, container, cubin or PTX text that is whole.
pub(crate) unsafe fn locate(image: *const c_void) -> Result<Parts> {
    if image.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let located = outboard_image::locate(&OwnMemory, image as u64)
        .map_err(|_| CUresult::CUDA_ERROR_INVALID_IMAGE)?;
    if located.image.len == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    let part =
        |extent: &Extent| Part::Kept { address: extent.addr as usize, bytes: extent.len as usize };
    let parts = std::iter::once(&located.image).chain(&located.unlinked).map(part).collect();
    Ok(Parts { parts, wrapped: located.wrapped })
}

/// The memory of this process, in which an image is trusted to be as long as its headers say: no
/// call carries a length.
struct OwnMemory;

impl Memory for OwnMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        // SAFETY: `locate`'s caller says that the image is whole, and its headers are read no
        // further than they reach.
        unsafe {
            core::ptr::copy_nonoverlapping(address as *const u8, out.as_mut_ptr(), out.len())
        };
        true
    }

    fn read_text(&self, address: u64, out: &mut [u8]) -> usize {
        let text = address as *const u8;
        // SAFETY: `locate`'s caller says that the text ends with a zero, and each byte is read only
        // if none of those before it is one.
        let end = (0..out.len()).position(|index| unsafe { text.add(index).read() } == 0);
        let count = end.map_or(out.len(), |end| end + 1);
        // SAFETY: as above.
        unsafe { core::ptr::copy_nonoverlapping(text, out.as_mut_ptr(), count) };
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(bytes: &[u8]) -> Vec<u8> {
        let mut out = 0xBA55_ED50u32.to_le_bytes().to_vec();
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&16u16.to_le_bytes());
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
        out
    }

    fn parts(image: *const c_void) -> Vec<Vec<u8>> {
        // SAFETY: the tests' images are whole and alive.
        let parts = unsafe { locate(image) }.unwrap();
        // SAFETY: as above.
        unsafe { parts.slices() }.into_iter().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn text_ends_at_its_zero() {
        assert_eq!(parts(c".version 9.0".as_ptr().cast()), [b".version 9.0".to_vec()]);
    }

    #[test]
    fn wrappers_name_their_containers() {
        let (linked, first, second) =
            (container(b"linked.."), container(b"first"), container(b"second"));
        let list = [first.as_ptr() as u64, second.as_ptr() as u64, 0];
        let wrapper = |version: u64, others: u64| {
            [
                u64::from(outboard_image::WRAPPER_MAGIC) | version << 32,
                linked.as_ptr() as u64,
                others,
            ]
        };
        let one = wrapper(1, c"file name".as_ptr() as u64);
        assert_eq!(parts(one.as_ptr().cast()), std::slice::from_ref(&linked));
        let two = wrapper(2, list.as_ptr() as u64);
        assert_eq!(parts(two.as_ptr().cast()), [linked.clone(), first.clone(), second.clone()]);
    }

    #[test]
    fn nonsense_is_an_invalid_image() {
        let mut huge = container(b"");
        huge[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        // SAFETY: the bytes are alive; no more than the header is read.
        let outcome = unsafe { locate(huge.as_ptr().cast()) };
        assert_eq!(outcome.err(), Some(CUresult::CUDA_ERROR_INVALID_IMAGE));
        // SAFETY: null is checked.
        assert!(unsafe { locate(core::ptr::null()) }.is_err());
        for text in [c"", c".", c"..."] {
            // SAFETY: strings that are whole.
            let outcome = unsafe { locate(text.as_ptr().cast()) };
            let nothing = (text.is_empty()).then_some(CUresult::CUDA_ERROR_INVALID_IMAGE);
            assert_eq!(outcome.err(), nothing, "{text:?}");
        }
    }
}
