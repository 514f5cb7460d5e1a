//! CUDA program images: what lies at a pointer, how long it is, which program in it suits a device,
//! and which kernels with which parameters it has.
//!
//! Everything here may come from a hostile client: nothing panics, lengths are checked before
//! memory is spent.
//!
//! ```
//! use outboard_image::{Format, Memory, locate};
//!
//! let text: &[u8] = b".version 9.0\n.target sm_75\n.visible .entry nop() { ret; }\0";
//! let located = locate(text, 0)?;
//! assert_eq!(located.format, Format::Ptx);
//! assert_eq!(located.image.len, text.len() as u64 - 1);
//! let kernels = outboard_image::kernels(&text[..located.image.len as usize], 75)?;
//! assert_eq!(kernels[0].name, "nop");
//! # Ok::<(), outboard_image::Error>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]

mod compress;
mod elf;
mod error;
mod fatbin;
mod hash;
mod kernels;
mod linkable;
mod locate;
mod memory;
mod narrow;
mod prints;
mod ptx;
mod room;

pub use error::Error;
pub use fatbin::{
    Compression, Entries, Entry, Kind, MAGIC as FATBIN_MAGIC, MAX_DECOMPRESSED, Specificity,
    best_elf, best_ptx, entries,
};
pub use hash::ImageHash;
pub use kernels::{Kernel, Param, from_elf as elf_kernels, kernels};
pub use linkable::{archive_members, is_archive, linked_image, linked_texts, object_containers};
pub use locate::{Extent, Format, Located, MAX_IMAGE, MAX_PTX, WRAPPER_MAGIC, format_of, locate};
pub use memory::Memory;
pub use narrow::{Narrowed, narrowed};
pub use prints::may_print;
pub use ptx::kernels as ptx_kernels;
pub use room::{takes_at_least, takes_at_most};
