//! Reliable connections between two adapters.

use std::ffi::{c_int, c_uint};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use crate::completion::Queue;
use crate::device::{Device, Endpoint, Mtu, Reads};
use crate::error::Error;
use crate::ffi;
use crate::gid::Gid;
use crate::region::{Access, Borrowed, Domain, Region, Remote};

/// How large a queue pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Works to send that may be under way.
    pub sends: u32,
    /// Receives that may be posted.
    pub receives: u32,
}

/// One end of a connection, and the memory that it may use.
pub struct QueuePair {
    pair: NonNull<ffi::QueuePair>,
    endpoint: Endpoint,
    domain: Arc<Domain>,
    regions: Vec<Region>,
    /// What the peer may do with memory of the domain to which it has a key.
    peer: Access,
    sent: Arc<Queue>,
    received: Arc<Queue>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for QueuePair {}
// SAFETY: and by several at once.
unsafe impl Sync for QueuePair {}

/// What the peer must know of an end to connect to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The queue pair's number.
    pub number: u32,
    /// The number of its first packet: 24 bits.
    pub first_packet: u32,
    /// The port's address within its InfiniBand subnet; 0 in Ethernet.
    pub lid: u16,
    /// The port's global address.
    pub gid: Option<Gid>,
    /// The largest packet that its link carries.
    pub mtu: Mtu,
}

/// How long an adapter waits for an answer before it asks again: 4.096 µs times two to the power
/// of this, 0.27 s. Adapters may take up to four times as long.
const TIMEOUT: u8 = 16;
/// How often it asks again, so that an answer is missed after 2 to 8 seconds. Soft-RoCE takes 7 for
/// ever.
const RETRIES: u8 = 6;
/// How often it asks a peer again that has posted no receive, which does not happen between peers
/// that keep to the rules.
const NOT_READY_RETRIES: u8 = 6;
/// How long to wait between: 0.64 ms.
const NOT_READY_TIMER: u8 = 12;
/// Routers that a packet may pass.
const HOPS: u8 = 64;

/// A part of one of a queue pair's regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The region, by its place among those that the pair was made with.
    pub region: usize,
    /// Where it begins.
    pub offset: usize,
    /// Its size.
    pub bytes: usize,
}

impl QueuePair {
    /// A new one that may use the regions, all of the domain; its `peer` may do so much with memory
    /// of the domain to which it has a key. The first completions are those of works to send, the
    /// second those of receives.
    ///
    /// # Errors
    /// Why the library makes none.
    pub fn create(
        endpoint: Endpoint,
        domain: &Arc<Domain>,
        regions: Vec<Region>,
        peer: Access,
        [sent, received]: [&Arc<Queue>; 2],
        sizes: Sizes,
    ) -> Result<QueuePair, Error> {
        let mut init = ffi::QueuePairInit {
            qp_context: null_mut(),
            send_cq: sent.queue.as_ptr(),
            recv_cq: received.queue.as_ptr(),
            srq: null_mut(),
            cap: ffi::QueuePairCap {
                max_send_wr: sizes.sends,
                max_recv_wr: sizes.receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: ffi::IBV_QPT_RC,
            sq_sig_all: 1,
        };
        let device = &domain.device;
        // SAFETY: domain and queues are the library's, and this value keeps them alive.
        let pair = unsafe { (device.library.ibv_create_qp)(domain.domain.as_ptr(), &mut init) };
        let pair = device.made("ibv_create_qp", pair)?;
        let pair = QueuePair {
            pair,
            endpoint,
            domain: Arc::clone(domain),
            regions,
            peer,
            sent: Arc::clone(sent),
            received: Arc::clone(received),
        };
        pair.initialize()?;
        Ok(pair)
    }

    /// Its regions.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The completions of works to send.
    #[must_use]
    pub fn sent(&self) -> &Queue {
        &self.sent
    }

    /// The completions of receives.
    #[must_use]
    pub fn received(&self) -> &Queue {
        &self.received
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.domain.device
    }

    /// What the peer must know. `first_packet` should not be guessable.
    #[must_use]
    pub fn address(&self, first_packet: u32) -> Address {
        // SAFETY: the library's structure lives as long as this value.
        let number = unsafe { self.pair.as_ref() }.qp_num;
        Address {
            number,
            first_packet: first_packet & 0xff_ffff,
            lid: self.endpoint.port.lid,
            gid: self.endpoint.gid.map(|entry| entry.gid),
            mtu: self.endpoint.port.mtu,
        }
    }

    /// From here on receives can be posted.
    fn initialize(&self) -> Result<(), Error> {
        let mut attr = ffi::QueuePairAttr {
            qp_state: ffi::IBV_QPS_INIT,
            port_num: self.endpoint.port.number,
            qp_access_flags: self.peer.of_peers(),
            ..Default::default()
        };
        let set = ffi::IBV_QP_PKEY_INDEX | ffi::IBV_QP_PORT | ffi::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, set)
    }

    /// Connects to the peer, with packets of at most `mtu`. `own` is what the peer was told.
    /// Neither side reads the other's memory.
    ///
    /// # Errors
    /// Why the library cannot: such as [`Error::Call`] with `ENETUNREACH` if there is no way to
    /// the peer's address.
    pub fn connect(&self, own: Address, peer: Address, mtu: Mtu) -> Result<(), Error> {
        self.connect_to_read(own, peer, mtu, Reads::default())
    }

    /// The same, with so many reads under way.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_to_read(
        &self,
        own: Address,
        peer: Address,
        mtu: Mtu,
        reads: Reads,
    ) -> Result<(), Error> {
        let port = &self.endpoint.port;
        let mut attr = ffi::QueuePairAttr {
            qp_state: ffi::IBV_QPS_RTR,
            path_mtu: mtu.min(own.mtu).min(peer.mtu).number(),
            dest_qp_num: peer.number,
            rq_psn: peer.first_packet & 0xff_ffff,
            min_rnr_timer: NOT_READY_TIMER,
            max_dest_rd_atomic: reads.served,
            ..Default::default()
        };
        attr.ah_attr.port_num = port.number;
        attr.ah_attr.dlid = peer.lid;
        if let (true, Some(own), Some(peer)) = (port.ethernet, self.endpoint.gid, peer.gid) {
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh = ffi::GlobalRoute {
                dgid: ffi::GidBytes(peer.0),
                flow_label: 0,
                sgid_index: own.index,
                hop_limit: HOPS,
                traffic_class: 0,
            };
        }
        let set = ffi::IBV_QP_AV
            | ffi::IBV_QP_PATH_MTU
            | ffi::IBV_QP_DEST_QPN
            | ffi::IBV_QP_RQ_PSN
            | ffi::IBV_QP_MAX_DEST_RD_ATOMIC
            | ffi::IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attr, set)?;
        let mut attr = ffi::QueuePairAttr {
            qp_state: ffi::IBV_QPS_RTS,
            sq_psn: own.first_packet,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: NOT_READY_RETRIES,
            max_rd_atomic: reads.begun,
            ..Default::default()
        };
        let set = ffi::IBV_QP_TIMEOUT
            | ffi::IBV_QP_RETRY_CNT
            | ffi::IBV_QP_RNR_RETRY
            | ffi::IBV_QP_SQ_PSN
            | ffi::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, set)
    }

    /// Ends the connection: all works under way are flushed.
    ///
    /// # Errors
    /// Why the library cannot.
    pub fn fail(&self) -> Result<(), Error> {
        let mut attr = ffi::QueuePairAttr { qp_state: ffi::IBV_QPS_ERR, ..Default::default() };
        self.modify(&mut attr, 0)
    }

    fn modify(&self, attr: &mut ffi::QueuePairAttr, set: c_uint) -> Result<(), Error> {
        let set = (set | ffi::IBV_QP_STATE) as c_int;
        let device = self.device();
        // SAFETY: the pair is this value's; the library reads the attributes that `set` names.
        let result = unsafe { (device.library.ibv_modify_qp)(self.pair.as_ptr(), attr, set) };
        device.check("ibv_modify_qp", result)
    }

    /// Posts a receive: into a part of a region, or for what is written elsewhere.
    ///
    /// # Errors
    /// Why the adapter does not take it, such as a queue that is full.
    pub fn receive(&self, work: u64, part: Option<Part>) -> Result<(), Error> {
        let mut piece = self.piece(part);
        let mut receive = ffi::ReceiveWork {
            wr_id: work,
            next: null_mut(),
            sg_list: &mut piece,
            num_sge: part.is_some().into(),
        };
        let (device, mut bad) = (self.device(), null_mut());
        // SAFETY: the table of functions is the open device's.
        let post = unsafe { device.context.as_ref() }.ops.post_recv;
        let post = post.ok_or_else(|| self.lacks("ibv_post_recv"))?;
        // SAFETY: the pair is this value's, which keeps the region until after the pair is
        // destroyed; the library copies what describes the work.
        let result = unsafe { post(self.pair.as_ptr(), &mut receive, &mut bad) };
        device.check("ibv_post_recv", result)
    }

    /// Sends a number, and a part of a region with it: into a receive that the peer has posted,
    /// or to a place in the peer's memory.
    ///
    /// # Errors
    /// Why the adapter does not take it, such as a queue that is full.
    pub fn send(
        &self,
        work: u64,
        immediate: u32,
        part: Option<Part>,
        to: Option<Remote>,
    ) -> Result<(), Error> {
        let opcode =
            if to.is_some() { ffi::IBV_WR_RDMA_WRITE_WITH_IMM } else { ffi::IBV_WR_SEND_WITH_IMM };
        let piece = part.map(|part| self.piece(Some(part)));
        self.post(work, (opcode, immediate), piece, to)
    }

    /// Writes the `bytes` at an address of lent memory to a place in the peer's memory. The peer is
    /// not told.
    ///
    /// # Panics
    /// If the bytes are not all in the memory.
    ///
    /// # Errors
    /// Why the adapter does not take it, such as a queue that is full.
    pub fn write(
        &self,
        work: u64,
        (lent, address): (&Borrowed, u64),
        bytes: usize,
        to: Remote,
    ) -> Result<(), Error> {
        let piece = lent.piece(address, bytes);
        self.post(work, (ffi::IBV_WR_RDMA_WRITE, 0), Some(piece), Some(to))
    }

    /// Reads `bytes` at a place in the peer's memory to an address of lent memory.
    ///
    /// # Safety
    /// Nobody else uses the bytes at that address until the work has been done.
    ///
    /// # Panics
    /// If they are not all in the memory.
    ///
    /// # Errors
    /// Why the adapter does not take it, such as a queue that is full.
    pub unsafe fn read(
        &self,
        work: u64,
        (lent, address): (&Borrowed, u64),
        bytes: usize,
        from: Remote,
    ) -> Result<(), Error> {
        let piece = lent.piece(address, bytes);
        self.post(work, (ffi::IBV_WR_RDMA_READ, 0), Some(piece), Some(from))
    }

    fn post(
        &self,
        work: u64,
        (opcode, immediate): (c_uint, u32),
        piece: Option<ffi::Piece>,
        there: Option<Remote>,
    ) -> Result<(), Error> {
        let there = there.unwrap_or(Remote { address: 0, rkey: 0 });
        let num_sge = piece.is_some().into();
        let mut piece = piece.unwrap_or_default();
        let mut send = ffi::SendWork {
            wr_id: work,
            next: null_mut(),
            sg_list: &mut piece,
            num_sge,
            opcode,
            send_flags: ffi::IBV_SEND_SIGNALED,
            imm_data: immediate.to_be(),
            remote_addr: there.address,
            rkey: there.rkey,
            _others: [0; 9],
        };
        let (device, mut bad) = (self.device(), null_mut());
        // SAFETY: the table of functions is the open device's.
        let post = unsafe { device.context.as_ref() }.ops.post_send;
        let post = post.ok_or_else(|| self.lacks("ibv_post_send"))?;
        // SAFETY: the pair is this value's, which keeps its regions until after the pair is
        // destroyed; lent memory stays mapped by the contract of `Borrowed::create`. The library
        // copies what describes the work.
        let result = unsafe { post(self.pair.as_ptr(), &mut send, &mut bad) };
        device.check("ibv_post_send", result)
    }

    fn piece(&self, part: Option<Part>) -> ffi::Piece {
        part.map_or_else(ffi::Piece::default, |part| {
            self.regions[part.region].piece(part.offset, part.bytes)
        })
    }

    fn lacks(&self, call: &'static str) -> Error {
        Error::Call { call, device: self.device().name().to_owned(), errno: libc::EOPNOTSUPP }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the library made it. The adapter uses none of the regions afterwards.
        unsafe { (self.device().library.ibv_destroy_qp)(self.pair.as_ptr()) };
    }
}
