//! What is asked of the kernel, in the words of its `linux/tls.h`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{Ordering, compiler_fence};

use libc::{c_int, c_void, socklen_t};
use rustls::ConnectionTrafficSecrets;

use super::Without;
use crate::tls::keys::{Kind, wrong};

/// Options of a socket of TLS: the keys of its directions.
const TLS_TX: c_int = 1;
const TLS_RX: c_int = 2;
/// Ancillary messages: what a record is about.
const TLS_SET_RECORD_TYPE: c_int = 1;
const TLS_GET_RECORD_TYPE: c_int = 2;

const TLS_1_3_VERSION: u16 = 0x0304;
const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;
const CHACHA20_POLY1305: u16 = 54;

/// The name of TLS among protocols that lie upon TCP (`TCP_ULP`).
const NAME: &[u8] = b"tls";

/// `struct tls12_crypto_info_…`: an algorithm, a key, and the number of its next record. `SALT` and
/// `IV` are the bytes that TLS 1.3 calls the initialization vector.
#[repr(C)]
struct CryptoInfo<const SALT: usize, const IV: usize, const KEY: usize> {
    version: u16,
    cipher: u16,
    iv: [u8; IV],
    key: [u8; KEY],
    salt: [u8; SALT],
    number: [u8; 8],
}

type Aes128 = CryptoInfo<4, 8, 16>;
type Aes256 = CryptoInfo<4, 8, 32>;
type ChaCha20 = CryptoInfo<0, 12, 32>;

/// Bytes of version and algorithm, which all of them begin with.
const HEAD: usize = 4;

const _: () = {
    assert!(size_of::<Aes128>() == 40 && size_of::<Aes256>() == 56 && size_of::<ChaCha20>() == 56);
    assert!(std::mem::offset_of!(Aes128, iv) == HEAD);
    assert!(std::mem::offset_of!(Aes128, key) == 12 && std::mem::offset_of!(Aes128, salt) == 28);
    assert!(std::mem::offset_of!(Aes128, number) == 32);
    assert!(std::mem::offset_of!(Aes256, key) == 12 && std::mem::offset_of!(Aes256, salt) == 44);
    assert!(std::mem::offset_of!(Aes256, number) == 48);
    assert!(std::mem::offset_of!(ChaCha20, key) == 16);
    assert!(std::mem::offset_of!(ChaCha20, number) == 48);
};

/// Which of the keys.
#[derive(Debug, Clone, Copy)]
pub(super) enum Direction {
    Sent = TLS_TX as isize,
    Received = TLS_RX as isize,
}

/// A record of which some bytes have been received, or all.
pub(super) struct Received {
    pub(super) count: usize,
    /// None at the end of the connection.
    pub(super) kind: Option<u8>,
    /// Whether the last byte of a record is among them.
    pub(super) is_whole: bool,
}

/// Makes a connected TCP socket one of TLS, which goes on in the clear until it gets keys.
pub(super) fn prepare(fd: BorrowedFd<'_>) -> Result<(), Without> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_ULP, NAME).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOPROTOOPT) => Without::Tls,
        _ => Without::System(error),
    })
}

/// Has the kernel make the records of one direction from here on.
pub(super) fn set_key(
    fd: BorrowedFd<'_>,
    direction: Direction,
    number: u64,
    secrets: &ConnectionTrafficSecrets,
) -> Result<(), Without> {
    use ConnectionTrafficSecrets as Of;
    match secrets {
        Of::Aes128Gcm { key, iv } => {
            set_info::<4, 8, 16>(fd, direction, (AES_GCM_128, "AES-128-GCM"), key, iv, number)
        }
        Of::Aes256Gcm { key, iv } => {
            set_info::<4, 8, 32>(fd, direction, (AES_GCM_256, "AES-256-GCM"), key, iv, number)
        }
        Of::Chacha20Poly1305 { key, iv } => {
            let cipher = (CHACHA20_POLY1305, "ChaCha20-Poly1305");
            set_info::<0, 12, 32>(fd, direction, cipher, key, iv, number)
        }
        _ => Err(Without::Algorithm("the algorithm")),
    }
}

fn set_info<const SALT: usize, const IV: usize, const KEY: usize>(
    fd: BorrowedFd<'_>,
    direction: Direction,
    (cipher, name): (u16, &'static str),
    key: impl AsRef<[u8]>,
    iv: impl AsRef<[u8]>,
    number: u64,
) -> Result<(), Without> {
    let mut info = CryptoInfo::<SALT, IV, KEY> {
        version: TLS_1_3_VERSION,
        cipher,
        iv: [0; IV],
        key: [0; KEY],
        salt: [0; SALT],
        number: number.to_be_bytes(),
    };
    let (key, iv) = (key.as_ref(), iv.as_ref());
    if key.len() != KEY || iv.len() != SALT + IV {
        return Err(Without::Algorithm(name));
    }
    info.key.copy_from_slice(key);
    info.salt.copy_from_slice(&iv[..SALT]);
    info.iv.copy_from_slice(&iv[SALT..]);
    // SAFETY: there is no byte between its fields (their sizes are checked above), and any byte may
    // be written to them.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut((&raw mut info).cast::<u8>(), size_of_val(&info)) };
    let result = set(fd, libc::SOL_TLS, direction as c_int, bytes);
    wipe(bytes);
    result.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOPROTOOPT) => {
            Without::Algorithm(name)
        }
        _ => Without::System(error),
    })
}

/// The number of the next record that is sent: so many were encrypted with the present key.
pub(super) fn records_sent(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut head = [0; HEAD];
    get(fd, libc::SOL_TLS, TLS_TX, &mut head)?;
    let [_, _, cipher @ ..] = head;
    let mut room = [0; size_of::<Aes256>()];
    let info = match u16::from_ne_bytes(cipher) {
        AES_GCM_128 => &mut room[..size_of::<Aes128>()],
        _ => &mut room[..],
    };
    let result = get(fd, libc::SOL_TLS, TLS_TX, info);
    let number = info.last_chunk().map_or(u64::MAX, |number| u64::from_be_bytes(*number));
    wipe(info);
    result.map(|()| number)
}

/// Overwrites a key, though nobody reads it again.
fn wipe(bytes: &mut [u8]) {
    for byte in &mut *bytes {
        // SAFETY: it is a byte of the slice.
        unsafe { ptr::write_volatile(byte, 0) };
    }
    compiler_fence(Ordering::SeqCst);
}

fn set(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
    let (length, value) = (value.len() as socklen_t, value.as_ptr().cast::<c_void>());
    // SAFETY: `fd` is open while borrowed; the kernel reads `length` bytes of the value.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &mut [u8]) -> io::Result<()> {
    let mut length = value.len() as socklen_t;
    let value = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: `fd` is open while borrowed; the kernel writes at most `length` bytes to the value,
    // and the length.
    match unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, value, &mut length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Room for one ancillary message.
#[repr(C, align(8))]
struct Ancillary([u8; 64]);

/// Receives bytes of records of one kind; of another kind than data, of one record.
pub(super) fn receive(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<Received> {
    receive_by(fd, room, 0)
}

/// Whether a record has come as a whole, or the end of the connection. It stays there.
pub(super) fn has_record(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match receive_by(fd, &mut [0], libc::MSG_PEEK) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

fn receive_by(fd: BorrowedFd<'_>, room: &mut [u8], flags: c_int) -> io::Result<Received> {
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut ancillary = Ancillary([0; _]);
    let mut message = message(&mut part, &mut ancillary, size_of::<Ancillary>());
    let count = loop {
        // SAFETY: `fd` is open while borrowed; `message` points to one part, which is `room`, and
        // to `ancillary`, with their sizes.
        let count = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, flags) };
        match usize::try_from(count) {
            Ok(count) => break count,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(said(error)),
            },
        }
    };
    // SAFETY: the kernel has filled `message`, which points to what lives still.
    let kind = unsafe { libc::CMSG_FIRSTHDR(&message).as_ref() }
        .filter(|head| (head.cmsg_level, head.cmsg_type) == (libc::SOL_TLS, TLS_GET_RECORD_TYPE))
        // SAFETY: such a message holds one byte.
        .map(|head| unsafe { *libc::CMSG_DATA(head) });
    Ok(Received { count, kind, is_whole: message.msg_flags & libc::MSG_EOR != 0 })
}

/// Sends a record of another kind than data.
pub(super) fn send(fd: BorrowedFd<'_>, kind: Kind, plain: &mut [u8]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: plain.as_mut_ptr().cast(), iov_len: plain.len() };
    let mut ancillary = Ancillary([0; _]);
    // SAFETY: it only computes.
    let space = unsafe { libc::CMSG_SPACE(1) } as usize;
    let message = message(&mut part, &mut ancillary, space);
    // SAFETY: `message` points to `ancillary`, in which there is room for such a message and its
    // byte.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&message);
        (*head).cmsg_level = libc::SOL_TLS;
        (*head).cmsg_type = TLS_SET_RECORD_TYPE;
        (*head).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(head) = kind as u8;
    }
    // SAFETY: `fd` is open while borrowed; `message` points to one part, which is `plain`, and to
    // `ancillary`.
    match unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_NOSIGNAL) } {
        count if count >= 0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn message(part: &mut libc::iovec, ancillary: &mut Ancillary, length: usize) -> libc::msghdr {
    // SAFETY: it is made of integers and pointers, for which all zeros are a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (part, 1);
    message.msg_control = ancillary.0.as_mut_ptr().cast();
    message.msg_controllen = length as _;
    message
}

/// What the kernel says of records that it cannot take, as this crate says it.
fn said(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EBADMSG) => wrong("the kernel cannot decrypt a record of the peer"),
        Some(libc::EMSGSIZE) => wrong("a record of the peer is too long"),
        Some(libc::EINVAL) => wrong("what the peer sends is no record"),
        _ => error,
    }
}
