//! What the pager moves its bytes with.

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, CopyMode, HostPtr, Result, StreamId, UnifiedPtr};
use outboard_wire::limits::MAX_INLINE;
use outboard_wire::messages as msg;

use crate::copies::HostCopy;
use crate::link::bulk::Direction;
use crate::pager::{Home, Kind, Store};
use crate::remote::Remote;
use crate::remote::names::{pager_event, pager_stream};
use crate::remote::stream::NON_BLOCKING;

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;
/// Bytes of mapped memory that travel in one message.
const PIECE: usize = 1 << 20;

impl Remote {
    /// The stream for managed memory of a context.
    pub(in crate::remote) fn pager_stream(&self, ctx: ContextId) -> Result<StreamId> {
        let (stream, event) = (pager_stream(ctx), pager_event(ctx));
        // A thread that finds it here names it in the next command: it must be made by then.
        let mut ready = self.moving.lock();
        if ready.insert(ctx) {
            self.session()?
                .post(ctx, &msg::StreamCreate { stream, flags: NON_BLOCKING, priority: 0 })?;
            self.session()?.post(ctx, &msg::EventCreate { event, flags: NO_TIMING })?;
        }
        Ok(StreamId::created(stream))
    }
}

/// Moves the pager's bytes over the session. Managed memory moves in a stream of its own, which no
/// other work holds up.
impl Store for &'static Remote {
    unsafe fn fetch(
        &self,
        home: Home,
        address: UnifiedPtr,
        to: *mut u8,
        bytes: usize,
        seed: Option<u64>,
    ) -> Result<bool> {
        let mut differs = home.kind == Kind::Managed;
        let most = match home.kind {
            Kind::Managed if bytes > MAX_INLINE => {
                let stream = self.pager_stream(home.ctx)?;
                let copy = HostCopy::row(
                    Direction::Down,
                    address.device(),
                    HostPtr::of(to),
                    bytes as u64,
                    stream,
                    CopyMode::Synchronous,
                );
                // SAFETY: by the trait's contract.
                unsafe { self.session()?.copy(home.ctx, &copy) }?;
                return Ok(true);
            }
            Kind::Managed => MAX_INLINE,
            Kind::Mapped => PIECE,
        };
        for at in (0..bytes).step_by(most) {
            let (src, bytes) = (address.offset(at as u64), most.min(bytes - at));
            // SAFETY: by the trait's contract.
            let here = unsafe { std::slice::from_raw_parts_mut(to.add(at), bytes) };
            let put = |here: &mut [u8], data: &[u8]| {
                let fits = data.len() == bytes;
                let differs = fits && here != data;
                if differs {
                    here.copy_from_slice(data);
                }
                if fits { Ok(differs) } else { Err(CUresult::CUDA_ERROR_UNKNOWN) }
            };
            differs |= match (home.kind, seed) {
                (Kind::Managed, _) => {
                    let message = msg::CopyOut {
                        src: src.device(),
                        stream: self.pager_stream(home.ctx)?,
                        bytes: bytes as u32,
                    };
                    self.session()?.ask(home.ctx, &message, |reply| put(here, reply.data))??
                }
                (Kind::Mapped, None) => {
                    let message = msg::MappedRead { address: src, bytes: bytes as u32 };
                    self.session()?.ask(home.ctx, &message, |reply| put(here, reply.data))??
                }
                (Kind::Mapped, Some(seed)) => {
                    let sum = outboard_wire::sum::sum(seed, here);
                    let message =
                        msg::MappedReadChanged { address: src, bytes: bytes as u32, seed, sum };
                    self.session()?.ask(home.ctx, &message, |reply| match reply.data {
                        [] => Ok(false),
                        data => put(here, data),
                    })??
                }
            };
        }
        Ok(differs)
    }

    unsafe fn push(
        &self,
        home: Home,
        address: UnifiedPtr,
        from: *const u8,
        bytes: usize,
    ) -> Result<()> {
        if home.kind == Kind::Managed {
            let (session, stream) = (self.session()?, self.pager_stream(home.ctx)?);
            let (device, host, mode) = (address.device(), HostPtr::of(from), CopyMode::Pageable);
            // SAFETY: by the trait's contract.
            return unsafe {
                session.copy(
                    home.ctx,
                    &HostCopy::row(Direction::Up, device, host, bytes as u64, stream, mode),
                )
            };
        }
        // SAFETY: by the trait's contract.
        let data = unsafe { std::slice::from_raw_parts(from, bytes) };
        for (index, data) in data.chunks(PIECE).enumerate() {
            let address = address.offset((index * PIECE) as u64);
            self.patch(home, address, &[], data)?;
        }
        Ok(())
    }

    fn patch(&self, home: Home, address: UnifiedPtr, mask: &[u8], data: &[u8]) -> Result<()> {
        // No work of any stream: what is done is known to be done still.
        self.session()?.post_numbered(home.ctx, &msg::MappedWrite { address, mask, data }).map(drop)
    }

    fn compare(
        &self,
        ctx: ContextId,
        seed: u64,
        known: &[(UnifiedPtr, u32, u64)],
    ) -> Result<Vec<bool>> {
        // Asks whether the pager's stream is done, which it mostly is; if not, that is an error.
        let message = msg::WaitComparing {
            what: 1,
            name: self.pager_stream(ctx)?.0,
            ask: true,
            places: Vec::new(),
            seed,
            known: known.to_vec(),
        };
        self.session()?.ask(ctx, &message, |reply| reply.same)
    }

    fn settle(&self, home: ContextId) -> Result<()> {
        let message = msg::StreamSynchronize { stream: self.pager_stream(home)? };
        self.session()?.ask(home, &message, |_| ())
    }

    fn join(&self, home: ContextId, ctx: ContextId, stream: StreamId) -> Result<()> {
        let (from, event) = (self.pager_stream(home)?, pager_event(home));
        self.session()?.post(home, &msg::EventRecord { event, stream: from, flags: 0 })?;
        self.session()?.post(ctx, &msg::StreamWaitEvent { stream, event, flags: 0 })
    }

    fn close(&self, home: Home, address: UnifiedPtr, bytes: u64) {
        // What the worker has as a file's goes its own way.
        if self.host.find(address.host()).is_none() {
            self.close_mapped(home.ctx, (address, bytes), false);
        }
    }
}
