//! Random bytes for keys and tokens.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of the system's random numbers, fit for keys.
///
/// # Errors
/// The system's error, such as on a kernel without `getrandom`.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
