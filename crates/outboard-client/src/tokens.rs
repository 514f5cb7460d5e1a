//! What programs pass to each other to share objects of the server: handles of 64 bytes, and
//! descriptors.
//!
//! Either contains a token, a random number of the server: without it a process cannot name the
//! object. A descriptor is one end of a socket pair in which the token waits to be read. A
//! receiving process reads the token without consuming it. The exporting process keeps the other
//! end and sees it hang up once the last copy of the descriptor, in any process, is closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use outboard_abi::CUresult;
use outboard_front::backend::{Result, Token};
pub(crate) use outboard_wire::token::TokenKind as Kind;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

/// The server's number for what is shared.
pub(crate) type Number = (u64, u64);

/// How a token of ours begins.
const MAGIC: [u8; 15] = *b"outboard-token\0";

/// The bytes for a number.
pub(crate) fn encode(kind: Kind, (high, low): Number) -> Token {
    let mut token = [0; 64];
    token[..15].copy_from_slice(&MAGIC);
    token[15] = kind as u8;
    token[16..24].copy_from_slice(&high.to_le_bytes());
    token[24..32].copy_from_slice(&low.to_le_bytes());
    token
}

/// The number, if these are the bytes of a token of that kind.
pub(crate) fn decode(kind: Kind, token: &Token) -> Result<Number> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&token[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let number = (word(16), word(24));
    if *token == encode(kind, number) {
        Ok(number)
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

/// The descriptors that this process has given out.
#[derive(Debug, Default)]
pub(crate) struct Descriptors(Mutex<Vec<(OwnedFd, Number)>>);

impl Descriptors {
    pub(crate) const fn new() -> Descriptors {
        Descriptors(Mutex::new(Vec::new()))
    }

    /// A descriptor with a token.
    pub(crate) fn give(&self, kind: Kind, number: Number) -> Result<OwnedFd> {
        let failed = |_| CUresult::CUDA_ERROR_OPERATING_SYSTEM;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(failed)?;
        send(&ours, &encode(kind, number), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            .map_err(failed)?;
        self.given().push((ours, number));
        Ok(theirs)
    }

    /// The numbers of descriptors whose last copy has been closed.
    pub(crate) fn closed(&self) -> Vec<Number> {
        self.given()
            .extract_if(.., |(ours, _)| is_hung_up(ours.as_fd()))
            .map(|(_, number)| number)
            .collect()
    }
}

impl Descriptors {
    fn given(&self) -> MutexGuard<'_, Vec<(OwnedFd, Number)>> {
        self.0.lock()
    }
}

fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().contains(PollFlags::HUP)
}

/// The number that a descriptor holds, if it is one of ours.
pub(crate) fn read(kind: Kind, descriptor: BorrowedFd<'_>) -> Result<Number> {
    let mut token = [0; 64];
    match recv(descriptor, &mut token, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((64, _)) => decode(kind, &token),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_tokens_of_the_kind_are_taken() {
        let token = encode(Kind::Memory, (1, u64::MAX));
        assert_eq!(decode(Kind::Memory, &token).unwrap(), (1, u64::MAX));
        assert!(decode(Kind::Event, &token).is_err() && decode(Kind::Memory, &[0; 64]).is_err());
        for at in (0..16).chain(32..64) {
            let mut other = token;
            other[at] ^= 1;
            assert!(decode(Kind::Memory, &other).is_err(), "{at}");
        }
    }

    #[test]
    fn descriptors_are_read_again_and_again_and_found_closed() {
        let descriptors = Descriptors::new();
        let given = descriptors.give(Kind::Pool, (7, 8)).unwrap();
        let copy = given.try_clone().unwrap();
        for _ in 0..3 {
            assert_eq!(read(Kind::Pool, given.as_fd()).unwrap(), (7, 8));
        }
        assert!(read(Kind::Physical, given.as_fd()).is_err());
        drop(given);
        assert!(descriptors.closed().is_empty());
        assert_eq!(read(Kind::Pool, copy.as_fd()).unwrap(), (7, 8));
        drop(copy);
        assert_eq!(descriptors.closed(), [(7, 8)]);
        assert!(descriptors.closed().is_empty());
    }

    #[test]
    fn other_descriptors_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(read(Kind::Pool, file.as_fd()).is_err());
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        assert!(read(Kind::Pool, one.as_fd()).is_err(), "nothing there, and no wait for it");
        send(&other, b"outboard-token", SendFlags::empty()).unwrap();
        assert!(read(Kind::Pool, one.as_fd()).is_err());
    }
}
