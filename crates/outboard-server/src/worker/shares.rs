//! Memory, events and pools that sessions share: the driver's own handles travel between workers, tokens between clients.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use outboard_abi::CUresult;
use outboard_wire::Reader;
pub(crate) use outboard_wire::token::TokenKind as Kind;

use super::Worker;

/// A token as messages have it.
pub(crate) type Token = (u64, u64);

/// Tokens that are out, by what they stand for: its name or address.
#[derive(Default)]
pub(crate) struct Shared(HashMap<(Kind, u64), u128>);

impl Shared {
    pub(crate) fn get(&self, kind: Kind, what: u64) -> Option<u128> {
        self.0.get(&(kind, what)).copied()
    }
}

fn number((high, low): Token) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

pub(crate) fn token(number: u128) -> Token {
    ((number >> 64) as u64, number as u64)
}

/// 128 bits that nobody guesses.
fn draw() -> Result<u128, CUresult> {
    let bytes = outboard_transport::random().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    Ok(u128::from_le_bytes(bytes))
}

impl Worker {
    fn registry(&self) -> Result<&super::io::Registry, CUresult> {
        Ok(self.replier.as_ref().ok_or(CUresult::CUDA_ERROR_UNKNOWN)?.registry())
    }

    /// Shares a thing of the session's, whose token stays the same while it lasts.
    pub(crate) fn share(
        &mut self,
        kind: Kind,
        what: u64,
        payload: Vec<u8>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Token, CUresult> {
        let drawn = draw()?;
        self.registry()?.share(drawn, kind as u8, payload, descriptor).map_err(|error| {
            tracing::warn!(%error, "nothing more can be shared");
            CUresult::CUDA_ERROR_OUT_OF_MEMORY
        })?;
        // An older one for the same thing is one that its descriptor's holders still know.
        self.shared.0.insert((kind, what), drawn);
        Ok(token(drawn))
    }

    /// The thing is gone, or its address means another one from now on.
    pub(crate) fn unshare(&mut self, kind: Kind, what: u64) {
        if let Some(token) = self.shared.0.remove(&(kind, what)) {
            self.unshare_token(token);
        }
    }

    fn unshare_token(&self, token: u128) {
        if let Ok(registry) = self.registry() {
            let _ = registry.unshare(token);
        }
    }

    /// Nobody holds the token any more.
    pub(crate) fn drop_token(&mut self, token: Token) {
        let token = number(token);
        self.shared.0.retain(|_, other| *other != token);
        // The supervisor takes back only what this session has shared.
        self.unshare_token(token);
    }

    /// What another session has shared under a token.
    pub(crate) fn find_shared(&self, kind: Kind, token: Token) -> Result<(Vec<u8>, Option<OwnedFd>), CUresult> {
        let found = self.registry()?.find(number(token), kind as u8).map_err(|error| {
            tracing::warn!(%error, "the supervisor does not say what is shared");
            CUresult::CUDA_ERROR_UNKNOWN
        })?;
        found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

/// A reader for what another worker has written.
pub(crate) fn read<T>(
    payload: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, outboard_wire::DecodeError>,
) -> Result<T, CUresult> {
    read(&mut Reader::new(payload)).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
}
