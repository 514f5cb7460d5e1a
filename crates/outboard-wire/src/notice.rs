//! Notices: what a worker tells its client unasked.

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::names::{ContextId, ObjectId};
use crate::platform::KernelInfo;
use crate::record;

/// Bytes that kernels printed, for the client's standard output.
pub const OUTPUT: u16 = 1;
/// A posted command failed: a [`Failure`].
pub const FAILURE: u16 = 2;

/// The device has done a copy to the host: the number of its transfer. Answers that follow may
/// depend on its bytes.
pub const COPIED: u16 = 3;

/// Bytes that the driver wrote to standard error, failed assertions in kernels for one, for the
/// client's standard error.
pub const ERRORS: u16 = 4;

/// The worker asks something of the client: a [`Request`](crate::request::Request).
pub const REQUEST: u16 = 5;

/// All the kernels of a module that has just been loaded: [`Kernels`].
pub const KERNELS: u16 = 6;

/// Another session needs memory: what the client keeps of freed memory is to be given back.
pub const WANTED: u16 = 7;

/// A link to another server's worker is lost: its number, a `u32`. What was under way on it has
/// failed.
pub const PEER_LOST: u16 = 8;

/// Places in the memory that the two workers of a link share are free again: [`FreePlaces`].
pub const PLACES_FREE: u16 = 9;

/// A communicator has failed, or is well again: a
/// [`CommFailure`](crate::collectives::CommFailure).
pub const COMM_FAILED: u16 = 10;

/// The session ends from the server's side: a sentence that says why. The connection goes next.
pub const ENDED: u16 = 40;

/// The kernels of a module, in the image's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernels {
    /// The client's name for the module.
    pub module: ObjectId,
    /// Each with its name.
    pub kernels: Vec<(String, KernelInfo)>,
}

impl Encode for Kernels {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.module);
        writer.put(&self.kernels);
    }
}

impl<'a> Decode<'a> for Kernels {
    fn decode(reader: &mut Reader<'a>) -> Result<Kernels, DecodeError> {
        Ok(Kernels { module: reader.get()?, kernels: reader.get()? })
    }
}

/// Places that neither worker of a link uses any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreePlaces {
    /// The link.
    pub link: u32,
    /// Where the flags of each begin.
    pub places: Vec<u64>,
}

record!(FreePlaces { link, places });

/// The failure of a posted command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The client's name for the context that it ran in.
    pub ctx: ContextId,
    /// A `CUresult`.
    pub status: u32,
}

impl Encode for Failure {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.ctx);
        writer.put(&self.status);
    }
}

impl<'a> Decode<'a> for Failure {
    fn decode(reader: &mut Reader<'a>) -> Result<Failure, DecodeError> {
        Ok(Failure { ctx: reader.get()?, status: reader.get()? })
    }
}
