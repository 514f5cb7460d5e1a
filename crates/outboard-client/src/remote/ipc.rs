//! Memory and events of other sessions of the same server.

use std::os::fd::{BorrowedFd, OwnedFd};

use outboard_front::backend::{ContextId, MemoryKind, ObjectId, Result, Sharing, Token};
use outboard_wire::messages as msg;

use super::Remote;
use crate::tokens::{Descriptors, Kind, Number, decode, encode, read};

/// Some of these calls are not of a context.
const NONE: ContextId = ContextId(0);

static DESCRIPTORS: Descriptors = Descriptors::new();

impl Remote {
    /// A descriptor for what the server calls `number`. Those that nobody holds any more are told of at this occasion.
    fn give(&self, kind: Kind, number: Number) -> Result<OwnedFd> {
        self.unshare_closed();
        DESCRIPTORS.give(kind, number).inspect_err(|_| {
            let _ = self.post(NONE, &msg::Unshare { token: number });
        })
    }

    /// Tells the server which descriptors nobody holds any more: what they named is kept for them.
    pub(super) fn unshare_closed(&self) {
        for token in DESCRIPTORS.closed() {
            let _ = self.post(NONE, &msg::Unshare { token });
        }
    }
}

impl Sharing for Remote {
    fn share_memory(&self, ctx: ContextId, address: u64, bytes: u64) -> Result<Token> {
        self.call(ctx, &msg::ShareMemory { address, bytes }, |reply| encode(Kind::Memory, reply.token))
    }

    fn open_memory(&self, ctx: ContextId, token: &Token, flags: u32) -> Result<(u64, u64)> {
        let token = decode(Kind::Memory, token)?;
        self.call(ctx, &msg::OpenMemory { token, flags }, |reply| (reply.address, reply.bytes))
    }

    fn close_memory(&self, ctx: ContextId, address: u64) -> Result<()> {
        self.call(ctx, &msg::CloseMemory { address }, |_| ())
    }

    fn share_event(&self, ctx: ContextId, event: ObjectId) -> Result<Token> {
        self.call(ctx, &msg::ShareEvent { event: event.0 }, |reply| encode(Kind::Event, reply.token))
    }

    fn open_event(&self, ctx: ContextId, event: ObjectId, token: &Token) -> Result<()> {
        let token = decode(Kind::Event, token)?;
        self.session()?.progress().share_event(event.0);
        self.call(ctx, &msg::OpenEvent { event: event.0, token }, |_| ())
    }

    fn export_physical(&self, memory: ObjectId) -> Result<OwnedFd> {
        let number = self.call(NONE, &msg::ExportPhysical { memory: memory.0 }, |reply| reply.token)?;
        self.give(Kind::Physical, number)
    }

    fn import_physical(&self, memory: ObjectId, fd: BorrowedFd<'_>) -> Result<(u64, MemoryKind)> {
        let token = read(Kind::Physical, fd)?;
        self.call(NONE, &msg::ImportPhysical { memory: memory.0, token }, |reply| {
            let msg::ImportPhysicalReply { bytes, device, handle_types, compression, usage, .. } = reply;
            (bytes, MemoryKind { device, handle_types, compression, usage })
        })
    }

    fn export_pool(&self, pool: ObjectId) -> Result<OwnedFd> {
        let number = self.call(NONE, &msg::ExportPool { pool: pool.0 }, |reply| reply.token)?;
        self.give(Kind::Pool, number)
    }

    fn import_pool(&self, pool: ObjectId, fd: BorrowedFd<'_>) -> Result<u32> {
        let token = read(Kind::Pool, fd)?;
        self.call(NONE, &msg::ImportPool { pool: pool.0, token }, |reply| reply.device)
    }

    fn share_pooled(&self, address: u64, bytes: u64) -> Result<Token> {
        self.session()?.reuse().release(address);
        self.call(NONE, &msg::SharePooled { address, bytes }, |reply| encode(Kind::Pooled, reply.token))
    }

    fn open_pooled(&self, ctx: ContextId, pool: ObjectId, token: &Token) -> Result<(u64, u64)> {
        let token = decode(Kind::Pooled, token)?;
        self.call(ctx, &msg::OpenPooled { pool: pool.0, token }, |reply| (reply.address, reply.bytes))
    }
}
