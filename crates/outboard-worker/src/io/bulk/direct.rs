//! Chunks that an adapter moves itself, between staging or device memory and memory that the client
//! lends.
//!
//! A lane carries the frames of such chunks without their bytes. Whatever fails ends the lane's
//! connection: the client takes its memory back before it goes on over another one, and both sides
//! send again with their bytes what has not come.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use outboard_transport::rdma::direct::{Mover, Own, Remote};
use outboard_transport::{Stream, read_exact};
use outboard_wire::lane::{LaneHeader, LaneKind, Lent, Place};

use super::lanes::invalid;
use super::origin::Origin;
use super::told::{Fact, Told};
use super::{DeviceBytes, Sink, lock};

/// Transfers for whose bytes memory is lent at once. The bytes of older ones come on lanes.
const MOST_LENT: usize = 4096;

/// What moves a session's chunks itself, if something does.
#[derive(Debug, Default)]
pub(in crate::io) struct Direct {
    mover: OnceLock<Mover>,
    /// Memory for transfers towards the client, and how many of its bytes have not gone.
    lent: Mutex<BTreeMap<u64, (Lent, u64)>>,
    /// Whether it may know memory of devices.
    takes_devices: AtomicBool,
    pub(super) told: Told,
    is_over: AtomicBool,
}

/// What the adapter does, as the log says it.
type Deed = (Fact, &'static str);
const WRITES: Deed =
    (Fact::Writes, "an RDMA adapter writes copies straight into the client's page-locked memory");
const READS: Deed =
    (Fact::Reads, "an RDMA adapter reads copies straight from the client's page-locked memory");
const WRITES_FROM_DEVICE: Deed = (
    Fact::WritesFromDevice,
    "an RDMA adapter writes copies from device memory into the client's (GPUDirect)",
);
const READS_TO_DEVICE: Deed = (
    Fact::ReadsToDevice,
    "an RDMA adapter reads copies from the client's memory into device memory (GPUDirect)",
);

impl Direct {
    /// The client lends memory to an adapter from here on.
    pub(in crate::io) fn begin(&self, mover: Mover, takes_devices: bool) -> io::Result<()> {
        self.takes_devices.store(takes_devices, Ordering::Relaxed);
        let twice = |_| invalid("the client lends memory to a second adapter");
        self.mover.set(mover).map_err(twice)
    }

    /// Whether there is one that may know memory of devices.
    pub(super) fn takes_devices(&self) -> bool {
        self.takes_devices.load(Ordering::Relaxed) && self.mover().is_some()
    }

    /// It, as long as it is connected.
    pub(super) fn mover(&self) -> Option<&Mover> {
        self.mover.get().filter(|mover| mover.is_connected())
    }

    /// Ends it: a connection of the client's is gone.
    pub(super) fn end(&self) {
        let Some(mover) = self.mover.get() else { return };
        mover.end("a connection of the session is lost");
        if !self.is_over.swap(true, Ordering::Relaxed) {
            let [written, read] = mover.moved();
            tracing::info!(written, read, "the adapter moves no further copies itself");
            lock(&self.lent).clear();
        }
    }

    /// The client lends memory for the bytes of a transfer.
    pub(super) fn lend(&self, transfer: u64, lent: Lent) {
        let mut all = lock(&self.lent);
        if self.mover().is_some() {
            all.insert(transfer, (lent, lent.bytes));
        }
        // Some stay that have gone in part before the client's word came.
        if all.len() > MOST_LENT {
            all.pop_first();
        }
    }

    /// Whether the client lends memory for the bytes of a transfer.
    pub(super) fn is_lent(&self, transfer: u64) -> bool {
        lock(&self.lent).contains_key(&transfer)
    }

    /// The adapter forgets memory here.
    pub(super) fn remove_memory(&self, own: Own) {
        if let Some(mover) = self.mover.get() {
            mover.remove_memory(own);
        }
    }

    /// No more bytes of a transfer go.
    pub(super) fn forget(&self, transfer: u64) {
        lock(&self.lent).remove(&transfer);
    }

    /// Has the adapter write a chunk, if the client lends memory for it. Returns when it is there:
    /// whether it is.
    ///
    /// # Safety
    /// The bytes at `from` are still there.
    ///
    /// # Errors
    /// If it may not be, or may come later.
    pub(super) unsafe fn write(&self, header: &LaneHeader, from: &Origin) -> io::Result<bool> {
        let Some(mover) = self.mover().filter(|_| header.kind == LaneKind::Chunk) else {
            return Ok(false);
        };
        let LaneHeader { transfer, index, len, .. } = *header;
        let place = {
            let mut all = lock(&self.lent);
            let Some((lent, left)) = all.get_mut(&transfer) else { return Ok(false) };
            let place = lent.place_of(index, len);
            *left = left.saturating_sub(len.into());
            if *left == 0 {
                all.remove(&transfer);
            }
            place
        };
        let Some(place) = place else { return Ok(false) };
        // SAFETY: by the contract above.
        let written = unsafe { mover.write(from.address(), len as usize, remote(place)) }?;
        if written {
            self.log(match from {
                Origin::Device(..) => WRITES_FROM_DEVICE,
                _ => WRITES,
            });
        }
        Ok(written)
    }

    fn mover_to_read(&self) -> io::Result<&Mover> {
        let lends = || io::Error::other("the client does not lend its memory any more");
        self.mover().ok_or_else(lends)
    }

    fn read(&self, to: &mut [u8], place: Place) -> io::Result<()> {
        let mover = self.mover_to_read()?;
        // SAFETY: the bytes are borrowed for as long as this takes.
        unsafe { mover.read(to.as_mut_ptr(), to.len(), remote(place)) }?;
        self.log(READS);
        Ok(())
    }

    /// Whether the adapter knows the memory, and has read the bytes there.
    ///
    /// # Safety
    /// These bytes of a device are valid for writes, and nobody else uses them.
    unsafe fn read_to_device(&self, to: u64, len: usize, place: Place) -> io::Result<bool> {
        // SAFETY: by the contract above.
        let read = unsafe { self.mover_to_read()?.read_to_known(to, len, remote(place)) }?;
        if read {
            self.log(READS_TO_DEVICE);
        }
        Ok(read)
    }

    fn log(&self, (fact, sentence): Deed) {
        if self.told.is_first(fact) {
            tracing::info!("{sentence}");
        }
    }
}

fn remote(place: Place) -> Remote {
    Remote { address: place.address, rkey: place.key }
}

/// Where the bytes of a chunk are that comes.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// Behind its header.
    Stream(&'a dyn Stream),
    /// In memory that the client lends.
    Lent(&'a Direct, Place),
}

impl<'a> Source<'a> {
    /// That of a chunk whose header has just been read.
    pub(super) fn of(
        header: &LaneHeader,
        stream: &'a dyn Stream,
        direct: &'a Direct,
    ) -> io::Result<Source<'a>> {
        if header.kind != LaneKind::Readable {
            return Ok(Source::Stream(stream));
        }
        if direct.mover.get().is_none() {
            return Err(invalid("the client lends memory to no adapter"));
        }
        let mut encoded = [0; Place::SIZE];
        read_exact(stream, &mut encoded)?;
        let place = Place::decode(&encoded, header.len.into()).map_err(invalid)?;
        Ok(Source::Lent(direct, place))
    }

    /// Takes the bytes of a chunk to where they belong.
    ///
    /// # Safety
    /// The chunk has been granted, and no other thread takes it.
    pub(super) unsafe fn fill_slot(self, sink: &dyn Sink, header: &LaneHeader) -> io::Result<()> {
        let (slot, len) = (sink.slot(header.index, header.len), header.len as usize);
        match sink.device() {
            // SAFETY: the sink promises that the slot of such a chunk is valid for writes of its
            // length and unused until `filled`.
            None => self.fill(unsafe { std::slice::from_raw_parts_mut(slot, len) }),
            // SAFETY: as above.
            Some(device) => unsafe { self.fill_device(device, slot as u64, len) },
        }
        .map(|()| sink.filled(header.index))
    }

    /// # Safety
    /// These bytes of the device are valid for writes, and nobody else uses them.
    unsafe fn fill_device(self, device: &dyn DeviceBytes, at: u64, len: usize) -> io::Result<()> {
        if let Source::Lent(direct, place) = self
            // SAFETY: by the contract above.
            && unsafe { direct.read_to_device(at, len, place) }?
        {
            return Ok(());
        }
        let mut bytes = vec![0; len];
        self.fill(&mut bytes)?;
        device.write(at, &bytes);
        Ok(())
    }

    /// Takes the bytes.
    pub(super) fn fill(self, to: &mut [u8]) -> io::Result<()> {
        match self {
            Source::Stream(stream) => read_exact(stream, to),
            Source::Lent(direct, place) => direct.read(to, place),
        }
    }

    /// Nobody wants them.
    pub(super) fn throw_away(self, mut len: usize) -> io::Result<()> {
        let Source::Stream(stream) = self else { return Ok(()) };
        let mut scratch = vec![0; len.min(64 << 10)];
        while len > 0 {
            let count = len.min(scratch.len());
            read_exact(stream, &mut scratch[..count])?;
            len -= count;
        }
        Ok(())
    }
}

/// What the client lends for a transfer, behind the header that says so.
pub(super) fn read_lent(stream: &dyn Stream) -> io::Result<Lent> {
    let mut encoded = [0; Lent::SIZE];
    read_exact(stream, &mut encoded)?;
    Lent::decode(&encoded).map_err(invalid)
}
