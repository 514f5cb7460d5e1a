//! What can be wrong with an image.

/// Why an image cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Memory that the image claims to occupy cannot be read.
    #[error("{len} bytes at {addr:#x} cannot be read")]
    Unreadable {
        /// Address of the first byte.
        addr: u64,
        /// Number of bytes.
        len: usize,
    },
    /// Neither a fat binary nor ELF nor PTX.
    #[error("this is no program image: neither a fat binary nor ELF nor PTX")]
    NotAnImage,
    /// The image ends before something that it announces.
    #[error("the image ends within {0}")]
    Truncated(&'static str),
    /// A field has a value that makes no sense.
    #[error("the image is damaged: {0}")]
    Damaged(&'static str),
    /// A size beyond what any real image has.
    #[error("{what} of {size} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Which part of the image.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Compressed contents do not decompress.
    #[error("the {0} data in the image does not decompress")]
    Compression(&'static str),
    /// A version or compression that is not known here.
    #[error("{0} is not supported")]
    Unsupported(String),
}
