//! Finding the bytes of an image that a program hands over by address alone.

use core::ffi::{CStr, c_char, c_void};

use outboard_abi::CUresult;

use crate::backend::Result;

/// First word of the wrapper that the runtime passes.
const WRAPPER: u32 = 0x4662_43B1;
/// First word of a fat binary container.
const CONTAINER: u32 = 0xBA55_ED50;
const ELF: [u8; 4] = *b"\x7fELF";
/// An image larger than this is taken for a mistake.
const MAX_BYTES: u64 = 4 << 30;
/// More pre-link containers than a program would have.
const MAX_PARTS: usize = 1 << 16;

/// The parts of an image: fat binary containers, one cubin, or PTX text without its final zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts(Vec<Part>);

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
            Part::Kept { address, bytes } => std::ptr::slice_from_raw_parts(*address as *const u8, *bytes),
        };
        // SAFETY: owned ones live as long as `self`; the others by the contract above.
        self.0.iter().map(|part| unsafe { &*slice(part) }).collect()
    }

    /// Copies what is not owned.
    ///
    /// # Safety
    /// As of [`Parts::slices`].
    pub(crate) unsafe fn to_owned(&self) -> Parts {
        // SAFETY: by the contract above.
        Parts(unsafe { self.slices() }.into_iter().map(|bytes| Part::Owned(bytes.into())).collect())
    }

    /// One part, owned.
    pub(crate) fn from_file(mut bytes: Vec<u8>) -> Parts {
        // PTX on disk may or may not end in a zero byte.
        if !bytes.starts_with(&ELF) && !bytes.starts_with(&CONTAINER.to_le_bytes()) {
            while bytes.last() == Some(&0) {
                bytes.pop();
            }
        }
        Parts(vec![Part::Owned(bytes.into())])
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
    // SAFETY: every image has four bytes at least, PTX too (".version").
    if unsafe { word(image, 0) } != WRAPPER {
        // SAFETY: by the contract above.
        return Ok(Parts(vec![unsafe { measure(image) }?]));
    }
    // SAFETY: a wrapper has 24 bytes: magic, version, data, and a name or the pre-link containers.
    let (version, data, others) = unsafe { (word(image, 4), pointer(image, 8), pointer(image, 16)) };
    // SAFETY: the wrapper's data is an image.
    let mut parts = vec![unsafe { measure(data) }?];
    if version == 2 && !others.is_null() {
        // A null-terminated list of the containers before device linking: what a device compiles when the linked one does not fit it.
        for index in 0..MAX_PARTS {
            // SAFETY: the list ends in a null pointer, which has not been met yet.
            let other = unsafe { pointer(others, index * 8) };
            if other.is_null() {
                break;
            }
            // SAFETY: entries of the list are containers.
            parts.push(unsafe { measure(other) }?);
        }
    }
    Ok(Parts(parts))
}

/// # Safety
/// `image` points to a container, cubin or PTX text that is whole.
unsafe fn measure(image: *const c_void) -> Result<Part> {
    if image.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    // SAFETY: every image has four bytes at least.
    let first = unsafe { word(image, 0) };
    let bytes = if first == CONTAINER {
        // SAFETY: a container has 16 bytes of header: magic, version, header size, size of the rest.
        let (sizes, rest) = unsafe { (word(image, 4), long(image, 8)) };
        rest.checked_add(u64::from(sizes >> 16))
    } else if first == u32::from_le_bytes(ELF) {
        // SAFETY: a cubin is an ELF file, headers and all.
        unsafe { elf_bytes(image) }
    } else {
        // SAFETY: what is neither is PTX, which ends in a zero byte.
        let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
        Some(text.to_bytes().len() as u64)
    };
    let bytes = bytes.filter(|bytes| *bytes > 0 && *bytes <= MAX_BYTES).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
    Ok(Part::Kept { address: image as usize, bytes: bytes as usize })
}

/// The end of the last section or segment, or of the tables that list them.
///
/// # Safety
/// `image` points to an ELF file that is whole.
unsafe fn elf_bytes(image: *const c_void) -> Option<u64> {
    // SAFETY: by the contract above; a 64-bit ELF header has 64 bytes, and its tables lie where it says.
    unsafe {
        if byte(image, 4) != 2 {
            return None;
        }
        let (segments, sections) = (long(image, 32), long(image, 40));
        let (segment_size, segment_count) = (half(image, 54), half(image, 56));
        let (section_size, section_count) = (half(image, 58), half(image, 60));
        let mut end = 64u64;
        end = end.max(segments.checked_add(segment_size * segment_count)?);
        end = end.max(sections.checked_add(section_size * section_count)?);
        if end > MAX_BYTES || (segment_count > 0 && segment_size < 56) || (section_count > 0 && section_size < 64) {
            return None;
        }
        for index in 0..segment_count {
            let at = (segments + index * segment_size) as usize;
            end = end.max(long(image, at + 8).checked_add(long(image, at + 32))?);
        }
        for index in 0..section_count {
            let at = (sections + index * section_size) as usize;
            const NO_BITS: u32 = 8;
            if word(image, at + 4) != NO_BITS {
                end = end.max(long(image, at + 24).checked_add(long(image, at + 32))?);
            }
        }
        Some(end)
    }
}

/// # Safety
/// The byte at `offset` can be read.
unsafe fn byte(base: *const c_void, offset: usize) -> u8 {
    // SAFETY: by the contract above.
    unsafe { base.cast::<u8>().add(offset).read() }
}

/// # Safety
/// The two bytes at `offset` can be read.
unsafe fn half(base: *const c_void, offset: usize) -> u64 {
    // SAFETY: by the contract above.
    u64::from(unsafe { base.cast::<u8>().add(offset).cast::<u16>().read_unaligned() })
}

/// # Safety
/// The four bytes at `offset` can be read.
unsafe fn word(base: *const c_void, offset: usize) -> u32 {
    // SAFETY: by the contract above.
    unsafe { base.cast::<u8>().add(offset).cast::<u32>().read_unaligned() }
}

/// # Safety
/// The eight bytes at `offset` can be read.
unsafe fn long(base: *const c_void, offset: usize) -> u64 {
    // SAFETY: by the contract above.
    unsafe { base.cast::<u8>().add(offset).cast::<u64>().read_unaligned() }
}

/// # Safety
/// The eight bytes at `offset` can be read.
unsafe fn pointer(base: *const c_void, offset: usize) -> *const c_void {
    // SAFETY: by the contract above.
    unsafe { long(base, offset) as *const c_void }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(bytes: &[u8]) -> Vec<u8> {
        let mut out = CONTAINER.to_le_bytes().to_vec();
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
        let (linked, first, second) = (container(b"linked.."), container(b"first"), container(b"second"));
        let list = [first.as_ptr() as u64, second.as_ptr() as u64, 0];
        let wrapper = |version: u64, others: u64| [u64::from(WRAPPER) | version << 32, linked.as_ptr() as u64, others];
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
    }
}
