//! Memory and events of other sessions of the same server.

use std::os::fd::OwnedFd;

use outboard_front::backend::{ContextId, DevicePtr, ObjectId, Result, Token};
use outboard_wire::messages as msg;

use super::{NO_CONTEXT, Remote};
use crate::tokens::{Kind, Number, decode, encode};

impl Remote {
    /// A descriptor for what the server calls `number`. This call also reports descriptors whose
    /// last copy has been closed.
    fn give(&self, kind: Kind, number: Number) -> Result<OwnedFd> {
        self.unshare_closed();
        self.descriptors.give(kind, number).inspect_err(|_| {
            let _ = self.post(NO_CONTEXT, &msg::Unshare { token: number });
        })
    }

    /// Tells the server which descriptors' last copies have been closed: it keeps shared objects
    /// for them.
    pub(super) fn unshare_closed(&self) {
        for token in self.descriptors.closed() {
            let _ = self.post(NO_CONTEXT, &msg::Unshare { token });
        }
    }
}

impl Remote {
    pub(super) fn share_memory(
        &self,
        ctx: ContextId,
        address: DevicePtr,
        bytes: u64,
    ) -> Result<Token> {
        let token = self.call(ctx, &msg::ShareMemory { address, bytes }, |reply| {
            encode(Kind::Memory, reply.token)
        })?;
        if let Some(arena) = self.session()?.arena() {
            arena.exported(address);
        }
        Ok(token)
    }

    pub(super) fn open_event(&self, ctx: ContextId, event: ObjectId, token: &Token) -> Result<()> {
        let token = decode(Kind::Event, token)?;
        self.session()?.progress().share_event(event);
        self.call(ctx, &msg::OpenEvent { event, token }, |_| ())
    }

    pub(super) fn export_physical(&self, memory: ObjectId) -> Result<OwnedFd> {
        let number = self.call(NO_CONTEXT, &msg::ExportPhysical { memory }, |reply| reply.token)?;
        self.give(Kind::Physical, number)
    }

    pub(super) fn export_pool(&self, pool: ObjectId) -> Result<OwnedFd> {
        let number = self.call(NO_CONTEXT, &msg::ExportPool { pool }, |reply| reply.token)?;
        self.give(Kind::Pool, number)
    }

    pub(super) fn share_pooled(&self, address: DevicePtr, bytes: u64) -> Result<Token> {
        self.session()?.reuse().release(address);
        self.call(NO_CONTEXT, &msg::SharePooled { address, bytes }, |reply| {
            encode(Kind::Pooled, reply.token)
        })
    }

    pub(super) fn vmm_release(&self, memory: ObjectId) -> Result<()> {
        self.unshare_closed();
        self.post_idle(NO_CONTEXT, &msg::VmmRelease { memory })
    }
}
