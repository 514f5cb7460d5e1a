//! The transfers towards the worker that are under way. No input or output happens here.

use std::collections::HashMap;
use std::sync::Arc;

use outboard_session::chunks::{ChunkError, Cut, Expected};
use outboard_wire::limits::UPLOADS;

use super::Sink;

/// A chunk that came before its command.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) transfer: u64,
    pub(super) index: u32,
    pub(super) bytes: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Table {
    incoming: HashMap<u64, Incoming>,
    parked: Vec<Parked>,
    parked_bytes: usize,
    /// Staging memory of the transfers announced and not done, in bytes.
    staging: HashMap<u64, usize>,
    staging_bytes: usize,
}

struct Incoming {
    expected: Expected,
    /// None: throw the bytes away.
    sink: Option<Arc<dyn Sink>>,
}

/// What to do with a chunk that begins to come.
pub(super) enum Begin {
    /// Its transfer has not been announced.
    Unknown,
    Into(Arc<dyn Sink>),
    ThrowAway,
}

/// How much of a transfer has come.
pub(super) enum Came {
    Some,
    All,
    /// And nobody wanted it.
    AllThrownAway,
}

impl Table {
    /// A transfer is announced whose bytes will be asked for: no chunk of it can have come.
    /// The first `granted` may come at once.
    pub(super) fn expect(
        &mut self,
        transfer: u64,
        cut: Cut,
        granted: u32,
    ) -> Result<(), ChunkError> {
        if self.incoming.contains_key(&transfer)
            || self.parked.iter().any(|parked| parked.transfer == transfer)
        {
            return Err(ChunkError::Twice { index: 0 });
        }
        self.release(transfer);
        self.incoming
            .insert(transfer, Incoming { expected: Expected::new(cut, granted), sink: None });
        Ok(())
    }

    /// The chunks of such a transfer have a place to go from now on.
    pub(super) fn set_sink(&mut self, transfer: u64, sink: Arc<dyn Sink>) {
        if let Some(incoming) = self.incoming.get_mut(&transfer) {
            incoming.sink = Some(sink);
        }
    }

    /// A transfer of which nothing has been granted will not come.
    pub(super) fn withdraw(&mut self, transfer: u64) {
        self.incoming.remove(&transfer);
    }

    /// The chunks of a transfer go nowhere any more.
    pub(super) fn forsake(&mut self, transfer: u64) {
        if let Some(incoming) = self.incoming.get_mut(&transfer) {
            incoming.sink = None;
        }
    }

    /// A transfer is announced; its chunks that were early come back.
    pub(super) fn announce(
        &mut self,
        transfer: u64,
        cut: Cut,
        granted: u32,
        sink: Option<Arc<dyn Sink>>,
    ) -> Result<Vec<Parked>, ChunkError> {
        self.release(transfer);
        if self.staging_bytes + cut.staging() > UPLOADS {
            return Err(ChunkError::Staging { limit: UPLOADS });
        }
        self.staging_bytes += cut.staging();
        self.staging.insert(transfer, cut.staging());
        self.incoming.insert(transfer, Incoming { expected: Expected::new(cut, granted), sink });
        let early: Vec<Parked> =
            self.parked.extract_if(.., |parked| parked.transfer == transfer).collect();
        self.parked_bytes -= early.iter().map(|parked| parked.bytes.len()).sum::<usize>();
        Ok(early)
    }

    /// The staging memory of a transfer is free again.
    pub(super) fn release(&mut self, transfer: u64) {
        self.staging_bytes -= self.staging.remove(&transfer).unwrap_or(0);
    }

    pub(super) fn is_announced(&self, transfer: u64) -> bool {
        self.incoming.contains_key(&transfer)
    }

    pub(super) fn grant(&mut self, transfer: u64, granted: u32) {
        if let Some(incoming) = self.incoming.get_mut(&transfer) {
            incoming.expected.grant(granted);
        }
    }

    pub(super) fn begin(
        &mut self,
        transfer: u64,
        index: u32,
        len: u32,
    ) -> Result<Begin, ChunkError> {
        let Some(incoming) = self.incoming.get_mut(&transfer) else { return Ok(Begin::Unknown) };
        incoming.expected.begin(index, len)?;
        Ok(incoming.sink.as_ref().map_or(Begin::ThrowAway, |sink| Begin::Into(Arc::clone(sink))))
    }

    /// A chunk that began will not come whole over this connection.
    pub(super) fn broke_off(&mut self, transfer: u64, index: u32) {
        if let Some(incoming) = self.incoming.get_mut(&transfer) {
            incoming.expected.broke_off(index);
        }
    }

    /// A chunk has come whole. What that makes of its transfer.
    pub(super) fn finish(&mut self, transfer: u64) -> Came {
        let Some(incoming) = self.incoming.get_mut(&transfer) else { return Came::Some };
        if !incoming.expected.finish() {
            return Came::Some;
        }
        if self.incoming.remove(&transfer).is_some_and(|incoming| incoming.sink.is_none()) {
            self.release(transfer);
            return Came::AllThrownAway;
        }
        Came::All
    }

    /// Makes room to park a chunk, unless the client sends more than it may.
    pub(super) fn reserve_parking(&mut self, len: usize) -> bool {
        if self.parked_bytes + len > UPLOADS {
            return false;
        }
        self.parked_bytes += len;
        true
    }

    /// A chunk for which room was made will not come.
    pub(super) fn unreserve_parking(&mut self, len: usize) {
        self.parked_bytes -= len;
    }

    /// Parks a chunk for which room was made; hands it back if its transfer has been announced
    /// meanwhile.
    pub(super) fn park(&mut self, chunk: Parked) -> Option<Parked> {
        if self.is_announced(chunk.transfer) {
            self.parked_bytes -= chunk.bytes.len();
            return Some(chunk);
        }
        self.parked.push(chunk);
        None
    }
}
