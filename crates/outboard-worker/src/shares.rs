//! Memory, events and pools that sessions share: the driver's own handles travel between workers,
//! tokens between clients.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_wire::codec::decode_all;
pub(crate) use outboard_wire::token::TokenKind as Kind;
use outboard_wire::{Decode, DevicePtr, Encode, ObjectId, Writer};

use super::budget::Charge;
use super::io::Registry;

/// There is no supervisor to ask.
const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

/// A token as messages have it.
pub(crate) type Token = (u64, u64);

/// The object behind a token, under the client's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Thing {
    Memory(DevicePtr),
    Pooled(DevicePtr),
    Event(ObjectId),
    Physical(ObjectId),
    Pool(ObjectId),
}

impl Thing {
    fn kind(self) -> Kind {
        match self {
            Thing::Memory(_) => Kind::Memory,
            Thing::Pooled(_) => Kind::Pooled,
            Thing::Event(_) => Kind::Event,
            Thing::Physical(_) => Kind::Physical,
            Thing::Pool(_) => Kind::Pool,
        }
    }
}

/// Tokens that are out.
#[derive(Default)]
pub(crate) struct Shared {
    /// By what they stand for.
    named: HashMap<Thing, u128>,
    /// Those that programs have as descriptors.
    given: HashMap<u128, Given>,
}

/// Descriptors that the client has made for one token.
struct Given {
    count: u64,
    /// Memory behind the token counts for the session, even after its release.
    _charge: Option<Arc<Charge>>,
}

impl Shared {
    pub(crate) fn get(&self, what: Thing) -> Option<u128> {
        self.named.get(&what).copied()
    }

    /// Whether a token is for something of this session's own.
    pub(crate) fn is_named(&self, token: Token) -> bool {
        self.named.values().any(|named| *named == number(token))
    }

    /// The token of something of which the client makes one more descriptor.
    pub(crate) fn give_again(&mut self, what: Thing) -> Option<u128> {
        let token = self.get(what)?;
        self.given.get_mut(&token)?.count += 1;
        Some(token)
    }

    /// The thing has lost its name, which may come to mean another one; descriptors of it are as
    /// good as before.
    pub(crate) fn forget_name(&mut self, what: Thing) {
        self.named.remove(&what);
    }

    /// One descriptor with that token is gone; whether it was the last.
    fn take_back(&mut self, token: u128) -> bool {
        if let Some(given) = self.given.get_mut(&token) {
            given.count -= 1;
            if given.count > 0 {
                return false;
            }
        }
        self.given.remove(&token);
        self.named.retain(|_, other| *other != token);
        true
    }
}

pub(crate) fn number((high, low): Token) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// A share as the sharing worker has written it.
pub(crate) fn read<T: for<'a> Decode<'a>>(payload: &[u8]) -> Result<T, CUresult> {
    decode_all(payload).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
}

pub(crate) fn token(number: u128) -> Token {
    ((number >> 64) as u64, number as u64)
}

/// 128 random bits.
fn draw() -> Result<u128, CUresult> {
    let bytes = outboard_transport::random().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    Ok(u128::from_le_bytes(bytes))
}

impl Shared {
    /// Shares a thing of the session's, whose token stays the same while it lasts.
    pub(crate) fn share(
        &mut self,
        registry: Option<&Registry>,
        what: Thing,
        payload: &impl Encode,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Token, CUresult> {
        let drawn = draw()?;
        let mut writer = Writer::new();
        writer.put(payload);
        registry
            .ok_or(UNKNOWN)?
            .share(drawn, what.kind() as u8, writer.into_vec(), descriptor)
            .map_err(|error| {
                tracing::warn!(%error, "nothing more can be shared");
                CUresult::CUDA_ERROR_OUT_OF_MEMORY
            })?;
        self.named.insert(what, drawn);
        Ok(token(drawn))
    }

    /// The same with a descriptor, of which the client makes one. Its memory counts for the session
    /// as long as the client has any.
    pub(crate) fn share_descriptor(
        &mut self,
        registry: Option<&Registry>,
        what: Thing,
        payload: &impl Encode,
        descriptor: BorrowedFd<'_>,
        charge: Option<Arc<Charge>>,
    ) -> Result<Token, CUresult> {
        let token = self.share(registry, what, payload, Some(descriptor))?;
        self.given.insert(number(token), Given { count: 1, _charge: charge });
        Ok(token)
    }

    /// The thing is gone, or its address means another one from now on.
    pub(crate) fn unshare(&mut self, registry: Option<&Registry>, what: Thing) {
        if let Some(token) = self.named.remove(&what) {
            self.given.remove(&token);
            unshare_token(registry, token);
        }
    }

    /// Nobody holds a descriptor any more that was made for the token.
    pub(crate) fn drop_token(&mut self, registry: Option<&Registry>, token: Token) {
        let token = number(token);
        if self.take_back(token) {
            // The supervisor takes back only what this session has shared.
            unshare_token(registry, token);
        }
    }
}

fn unshare_token(registry: Option<&Registry>, token: u128) {
    if let Some(registry) = registry {
        let _ = registry.unshare(token);
    }
}

/// What another session has shared under a token.
pub(crate) fn find_shared<T: for<'a> Decode<'a>>(
    registry: Option<&Registry>,
    kind: Kind,
    token: Token,
) -> Result<(T, Option<OwnedFd>), CUresult> {
    let (payload, descriptor) = find_payload(registry, kind, token)?;
    Ok((read(&payload)?, descriptor))
}

/// The same, for [`read`].
pub(crate) fn find_payload(
    registry: Option<&Registry>,
    kind: Kind,
    token: Token,
) -> Result<(Vec<u8>, Option<OwnedFd>), CUresult> {
    let found = registry.ok_or(UNKNOWN)?.find(number(token), kind as u8).map_err(|error| {
        tracing::warn!(%error, "the supervisor does not say what is shared");
        CUresult::CUDA_ERROR_UNKNOWN
    })?;
    found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}
