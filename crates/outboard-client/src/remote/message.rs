//! Links to the workers of other processes, for messages of MPI.

use std::sync::atomic::{AtomicU64, Ordering};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, DevicePtr, Result};
use outboard_front::profile::Connection;
use outboard_wire::codec::decode_all;
use outboard_wire::handshake::Local;
use outboard_wire::handshake::peers::Whereabouts;
use outboard_wire::{Encode as _, Writer, messages as msg};
use parking_lot::Mutex;

use super::Remote;
use super::peer_link::{Called, open_link};

/// What has gone from this session's worker to those of other processes, and from them to it.
pub(super) struct Messages {
    sent: AtomicU64,
    received: AtomicU64,
    /// Why a link could not be made, the first time.
    not_linked: Mutex<Option<String>>,
}

impl Messages {
    pub(super) const fn new() -> Messages {
        Messages {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            not_linked: Mutex::new(None),
        }
    }

    pub(super) fn tell(&self, connection: &mut Connection) {
        connection.message_bytes_sent = self.sent.load(Ordering::Relaxed);
        connection.message_bytes_received = self.received.load(Ordering::Relaxed);
        connection.messages_not_linked = self.not_linked.lock().clone();
    }
}

impl Remote {
    pub(super) fn message_whereabouts(&self) -> Result<Option<Vec<u8>>> {
        let session = self.session()?;
        let Some(introduction) = session.link().introduction() else { return Ok(None) };
        let mut addresses = introduction.addresses().to_vec();
        if addresses.is_empty() {
            addresses.push(session.server().to_owned());
        }
        let socket = introduction.socket().filter(|_| session.link().may_share());
        let whereabouts = Whereabouts {
            session: introduction.session(),
            addresses,
            fingerprint: introduction.fingerprint().map_or_else(Vec::new, Vec::from),
            host: socket.map_or(0, |socket| socket.host),
            user: socket.map_or(0, |socket| socket.user),
            socket: socket.map_or_else(String::new, |socket| socket.path.clone()),
        };
        let mut writer = Writer::with_capacity(256);
        whereabouts.encode(&mut writer);
        Ok(Some(writer.into_vec()))
    }

    pub(super) fn message_ticket(&self, link: u32) -> Result<Vec<u8>> {
        let session = self.session()?;
        let introduction =
            session.link().introduction().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        Ok(introduction.ticket(link).key.to_le_bytes().to_vec())
    }

    pub(super) fn message_link(
        &self,
        link: u32,
        whereabouts: &[u8],
        ticket: &[u8],
    ) -> Result<Option<String>> {
        let Ok(other) = decode_all::<Whereabouts>(whereabouts) else {
            return Ok(Some("what its process says of it makes no sense".to_owned()));
        };
        let session = self.session()?;
        let own = session.link().introduction().and_then(|own| own.socket());
        let shares = session.link().may_share()
            && other.host != 0
            && own.is_some_and(|own| own.host == other.host);
        let socket = Local { host: other.host, user: other.user, path: other.socket };
        let called = Called {
            addresses: &other.addresses,
            session: other.session,
            ticket,
            fingerprint: &other.fingerprint,
            socket: shares.then_some(&socket),
        };
        let failure = open_link(session, link, &called).err();
        if let Some(failure) = &failure {
            self.messages.not_linked.lock().get_or_insert_with(|| failure.clone());
        }
        Ok(failure)
    }

    pub(super) fn message_offer(
        &self,
        ctx: ContextId,
        link: u32,
        number: u64,
        address: DevicePtr,
        bytes: u64,
    ) -> Result<bool> {
        let message = msg::MessageOffer { link, number, address, bytes };
        let taken = self.call(ctx, &message, |reply| reply.taken)?;
        if taken {
            self.messages.sent.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(taken)
    }

    pub(super) fn message_take(
        &self,
        ctx: ContextId,
        link: u32,
        number: u64,
        address: DevicePtr,
        bytes: u64,
        combine: u32,
    ) -> Result<bool> {
        let message = msg::MessageTake { link, number, address, bytes, combine };
        let came = self.call(ctx, &message, |reply| reply.came)?;
        if came {
            self.messages.received.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(came)
    }
}
